"""Lent: what a View hands out beside the log: the interrupt, things to close, questions to ask, the other agents."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import attrs

from callboard.actors.children import Status
from callboard.actors.events import Cause
from callboard.actors.facts import Option


class Interrupted(Protocol):
    """Whether the running turn is being aborted: true, `is_set()`, or `await wait()` (on Trio)."""

    def __bool__(self) -> bool: ...
    @property
    def cause(self) -> Cause | None:
        """Why, once the interrupt came."""
        ...

    def is_set(self) -> bool:
        """True once the interrupt came."""
        ...

    async def wait(self) -> None:
        """(Trio) Return once the interrupt came."""
        ...


class Closable(Protocol):
    """Anything with a `close()` that does not wait."""

    def close(self) -> None:
        """Let go; harmless when repeated."""
        ...


@attrs.frozen
class Query:
    """One of several questions that a call asks at once; `id` tells them apart."""

    question: str
    options: Sequence[Option]
    id: str = ""
    header: str = ""
    detail: str = ""


@attrs.frozen
class Agent:
    """One agent of a tree, as it stands now; `text` is what its last turn ended with, or its error.

    A `closed` one, or one below such a one, was ended for good.
    """

    id: str
    path: str
    status: Status
    text: str = ""
    task: str = ""
    role: str = ""
    turn: int = 0
    closed: bool = False
    detached: bool = False


class Agents(Protocol):
    """The agents of one session's tree."""

    async def all(self) -> tuple[Agent, ...]:
        """(Trio) Every agent of the tree, each before those below it, the root first."""
        ...

    def own(self) -> tuple[Agent, ...]:
        """Those that this session started."""
        ...

    def now(self, agents: Sequence[Agent]) -> tuple[Agent, ...]:
        """The same agents as they stand at this moment."""
        ...

    async def find(self, path: str) -> Agent | None:
        """(Trio) The agent at a path of the tree, None where there never was one."""
        ...

    async def until(self, met: Callable[[], bool], whom: Callable[[], Iterable[str]]) -> None:
        """(Trio) Return once `met()` is true; asked again when something happens here or to the agents of these ids."""
        ...

    def interrupt(self, id: str, *, turn: int | None = None) -> None:
        """Have an agent below this session stop its turn, and those below it that are not detached theirs first.

        `ToolError` for an id of anybody else; so does `close`.
        """
        ...

    async def close(self, id: str) -> None:
        """(Trio) End an agent below this session for good, those below it first; it goes on if nobody waits any more.

        A repeat waits for the same end.
        """
        ...
