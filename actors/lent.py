"""Lent: what a View hands out beside the log: the interrupt to look at, things to close, questions to ask."""

from collections.abc import Sequence
from typing import Protocol

import attrs

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
