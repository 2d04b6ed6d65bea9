"""What the tests of schemas and tools share: types that may be arguments, and tools made of them."""

import enum
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from callboard.actors.tool import Tool, tool

T = TypeVar("T")


class Spot(msgspec.Struct, forbid_unknown_fields=True):
    """A place in a file."""

    line: int
    title: str = "here"


class Color(enum.Enum):
    """What it says."""

    RED = "red"
    BLUE = "blue"


class ByName(msgspec.Struct, forbid_unknown_fields=True, tag=True):
    name: str


class ByLine(msgspec.Struct, forbid_unknown_fields=True, tag=True):
    line: int


class Box(msgspec.Struct, Generic[T], forbid_unknown_fields=True):
    value: T


class Edit(msgspec.Struct):
    """Change a file."""

    path: Annotated[str, msgspec.Meta(description="From the root.", min_length=1)]
    spots: list[Spot] = []
    last: Spot | None = None
    named: dict[str, Spot] = {}
    mode: Literal["fast", "slow"] = "fast"
    color: Color = Color.RED
    where: ByName | ByLine | None = None
    size: tuple[int, float] = (1, 1.0)
    properties: int = 0
    extra: Any = None


SPOT = {
    "description": "A place in a file.",
    "type": "object",
    "properties": {"line": {"type": "integer"}, "title": {"type": "string"}},
    "required": ["line"],
    "additionalProperties": False,
}


def made_with(hint: Any) -> Tool:
    """A tool with one plain parameter x of this type."""

    def made(x): ...

    made.__annotations__ = {"x": hint}
    return tool(made)


def made_of(arguments: type[msgspec.Struct]) -> Tool:
    """A tool that takes this Struct."""

    def made(arguments): ...

    made.__annotations__ = {"arguments": arguments}
    return tool(made)
