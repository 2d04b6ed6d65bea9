"""The tools of a prompt as OpenAI's protocols name them, and calls back from those names."""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Literal

import attrs

from callboard.actors.events import Call
from callboard.actors.model import ToolSpec
from callboard.runtime.models.strict import has_optional, strict_schema, without_nulls
from callboard.runtime.models.wire import CUT_ARGUMENTS, plain_name


@attrs.frozen
class Catalogue:
    """Tools of one request: `entries` as they are sent, and what is undone when a model calls them."""

    entries: tuple[Mapping[str, Any], ...] = ()
    names: Mapping[str, str] = attrs.field(factory=dict)
    nullable: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)  # ours by name: null may stand for left out
    strict: bool = False

    def call(self, name: str, arguments: Any, id_: str, kind: str = "function", *, whole: bool = True) -> Call:
        """A call as the runtime takes it."""
        ours = self.names.get(name, name)
        schema = self.nullable.get(ours)
        if whole and schema is not None and isinstance(arguments, str):
            arguments = without_nulls(arguments, schema)
        return Call(ours, arguments, id_, kind, "" if whole else CUT_ARGUMENTS)


def catalogue(tools: Sequence[ToolSpec], api: Literal["responses", "chat"], *, strict: bool) -> Catalogue:
    """The tools for one of the two protocols; strict where the schema can be said so."""
    entries, names, nullable, any_strict = [], {}, {}, False
    for spec in tools:
        name = plain_name(spec.name)
        names[name] = spec.name
        exact = strict_schema(spec.parameters, checked=True) if strict else None
        if exact is not None:
            any_strict = True
            if has_optional(spec.parameters):
                nullable[spec.name] = spec.parameters
        entries.append(_entry(spec, name, exact, api, strict=strict))
    return Catalogue(tuple(entries), names, nullable, any_strict)


def _entry(spec: ToolSpec, name: str, exact: Any, api: str, *, strict: bool) -> Mapping[str, Any]:
    parameters = spec.parameters if exact is None else exact
    function: dict[str, Any] = {"name": name, "description": spec.description, "parameters": parameters}
    if api == "responses" or strict:  # Responses is strict where nothing is said
        function["strict"] = exact is not None
    return {"type": "function", **function} if api == "responses" else {"type": "function", "function": function}


class Catalogues:
    """The catalogues of the tools asked with lately; sessions of a runtime mostly share their tools."""

    def __init__(self, kept_max: int = 16) -> None:
        self._kept_max = kept_max
        self._kept: dict[tuple[object, ...], tuple[tuple[ToolSpec, ...], Catalogue]] = {}
        self._guard = Lock()  # long requests are written in threads

    def of(self, tools: tuple[ToolSpec, ...], api: Literal["responses", "chat"], *, strict: bool) -> Catalogue:
        """The catalogue of these tools."""
        key = (api, strict, *map(id, tools))
        with self._guard:
            kept = self._kept.get(key)  # what is kept holds the tools, so no other has their identity
            if kept is None:
                if len(self._kept) >= self._kept_max:
                    del self._kept[next(iter(self._kept))]
                kept = self._kept[key] = (tools, catalogue(tools, api, strict=strict))
        return kept[1]
