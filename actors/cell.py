"""Cell: the calls that the body of one call makes: their gate, their number, and which of them are open."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from callboard.actors.errors import ToolError
from callboard.actors.events import Cause

NESTED_MAX = 1_000  # calls of one cell, as many as a model may ask for in one reply

TOO_MANY = f"this call has made {NESTED_MAX:,} calls of its own, the most it may make."


class Gate:
    """A reader-writer gate in order of arrival: who shares it is inside with others, everybody else is alone."""

    __slots__ = ("_alone", "_sharing", "_waiting")

    def __init__(self) -> None:
        self._sharing, self._alone = 0, False
        self._waiting: deque[tuple[bool, trio.Event]] = deque()

    @asynccontextmanager
    async def inside(self, *, shared: bool) -> AsyncIterator[None]:
        """(Trio) Wait to be let in; be inside for the length of the block."""
        ticket = (shared, trio.Event())
        self._waiting.append(ticket)
        self._let_in()
        try:
            await ticket[1].wait()
            yield
        finally:
            if ticket[1].is_set():
                self._leave(shared=shared)
            else:
                self._waiting.remove(ticket)
            self._let_in()

    def _leave(self, *, shared: bool) -> None:
        if shared:
            self._sharing -= 1
        else:
            self._alone = False

    def _let_in(self) -> None:
        while self._waiting and not self._alone:
            shared, let_in = self._waiting[0]
            if not shared and self._sharing:
                return
            self._waiting.popleft()
            self._sharing, self._alone = self._sharing + shared, not shared
            let_in.set()


class Inner(Protocol):
    """One call inside."""

    def close(self, cause: Cause | None) -> None:
        """Give it its one result, if it has none."""
        ...

    def leave(self) -> None:
        """Its turn is over."""
        ...


class Cell:
    """The calls that the body of the call `id` makes."""

    __slots__ = ("count", "gate", "id", "open")

    def __init__(self, id: str) -> None:
        self.id, self.gate, self.count = id, Gate(), 0
        self.open: dict[Inner, None] = {}

    def number(self) -> int:
        """The number of the next call, from 1; a `ToolError` when there were too many."""
        if self.count == NESTED_MAX:
            raise ToolError(TOO_MANY)
        self.count += 1
        return self.count

    def close(self, cause: Cause | None) -> None:
        """Give each open call its one result."""
        for inner in tuple(self.open):
            inner.close(cause)
        self.open.clear()

    def leave(self) -> None:
        """The turn is over."""
        for inner in tuple(self.open):
            inner.leave()
