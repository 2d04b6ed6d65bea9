"""What the tests of the core share: strategies built from the event types themselves, and short ways to fold events."""

import functools
import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from callboard import plugins
from callboard.actors.books import BUILT_IN, QUEUE, TURN
from callboard.actors.codec import Codec
from callboard.actors.envelope import CORE_EVENTS
from callboard.actors.errors import MissingExtra
from callboard.actors.eventlog import EventLog
from callboard.actors.events import Event, SessionOpened
from callboard.actors.facts import PLUGIN_EVENTS
from callboard.actors.fold import Folds, Projection
from callboard.actors.invariants import check
from callboard.actors.memory import MemoryStore

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
INTEGERS = st.integers(-(2**63), 2**64)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)

SIMPLE: Mapping[type[inspect.Type], st.SearchStrategy[Any]] = {
    inspect.StrType: TEXTS,
    inspect.BoolType: st.booleans(),
    inspect.IntType: INTEGERS,
    inspect.FloatType: FLOATS,
    inspect.NoneType: st.none(),
    inspect.BytesType: st.binary(max_size=20),
    inspect.AnyType: JSON,
}


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of a type as msgspec reads it."""
    simple = SIMPLE.get(type(kind))
    if simple is not None:
        return simple
    match kind:
        case inspect.LiteralType(values=allowed):
            return st.sampled_from(allowed)
        case inspect.UnionType(types=parts):
            return st.one_of([values(part) for part in parts])
        case inspect.VarTupleType(item_type=item):
            return st.lists(values(item), max_size=3).map(tuple)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values(key), values(value), max_size=3)
        case inspect.StructType(cls=struct, fields=fields):
            return structs(struct, fields)
    raise NotImplementedError(f"no values of {kind}")


def structs(struct: type, fields: Iterable[inspect.Field]) -> st.SearchStrategy[Any]:
    """Structs with each field given, or left to its default."""
    required = {f.name: values(f.type) for f in fields if f.required}
    optional = {f.name: values(f.type) for f in fields if not f.required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: struct(**given))


@functools.cache
def events_of(kind: type[Event]) -> st.SearchStrategy[Any]:
    """Any event of one type."""
    return values(inspect.type_info(kind))


def plugin_modules(broken: dict[str, Exception]) -> Iterator[ModuleType]:
    """Every module of the shipped plugins that can be imported here; the others, with the reason, into `broken`."""
    for found in pkgutil.iter_modules(plugins.__path__):
        try:
            yield importlib.import_module(f"callboard.plugins.{found.name}")
        except (ImportError, MissingExtra):
            continue  # its extra is not installed
        except Exception as error:
            broken[found.name] = error


def named(kind: type) -> list[Any]:
    """Values of a type that stand at module level in the shipped plugins, each once."""
    seen: dict[int, Any] = {}
    for module in plugin_modules({}):
        seen |= {id(value): value for value in vars(module).values() if isinstance(value, kind)}
    return list(seen.values())


PROJECTIONS: tuple[Projection[Any], ...] = tuple(dict.fromkeys((*BUILT_IN, *named(Projection))))
EVENTS: tuple[type[Event], ...] = tuple(
    dict.fromkeys(
        (
            *CORE_EVENTS,
            *PLUGIN_EVENTS,
            *(
                kind
                for kind in named(type)
                if issubclass(kind, Event) and kind.__module__.startswith("callboard.plugins")
            ),
        )
    )
)
CODEC = Codec(EVENTS)
FOLDS = Folds(BUILT_IN)


class Book:
    """The built-in folds over events that are checked as a log checks them."""

    def __init__(self, *events: Event) -> None:
        self.states: list[Any] = list(FOLDS.zeros)
        self.events: list[Event] = []
        self.add(*events)

    def add(self, *events: Event) -> "Book":
        """Check and fold; an event that must not follow raises and changes nothing."""
        for event in events:
            check(self[TURN], self[QUEUE], event)
            FOLDS.apply(self.states, event)
            self.events.append(event)
        return self

    def __getitem__(self, projection: Projection[Any]) -> Any:
        return self.states[FOLDS.place[projection]]


def same_bytes_after_one_reading(event: Event) -> tuple[bytes, bytes]:
    """What an event is written as once it was read, and once that was read again."""
    once = CODEC.encode(CODEC.decode(CODEC.encode(event)))
    return once, CODEC.encode(CODEC.decode(once))


def plain(value: Any) -> Any:
    """A state as plain values, to be compared with one that was recorded."""
    return msgspec.to_builtins(value, enc_hook=lambda other: list(other) if hasattr(other, "plus") else repr(other))


def log_of(*events: Event) -> EventLog:
    """A log with its opening and these events, on a store of its own."""
    store = MemoryStore()
    store.open(lambda fn: fn())
    log = EventLog("s", store, CODEC, FOLDS, lambda: 5, lambda event, session, turn: None)
    log.append(SessionOpened(root="s"), *events)
    return log
