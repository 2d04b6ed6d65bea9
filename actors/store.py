"""The Store protocol: where records go to become durable, and come back from; two loops, no await."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

FORKING = "forking"


class Record(msgspec.Struct, frozen=True, gc=False):
    """One event in its written form; `turn` None between turns."""

    seq: int
    at_ms: int
    turn: int | None
    body: bytes


class Header(msgspec.Struct, frozen=True, gc=False):
    """What a store knows of a session without reading its log; `due_ms` is the next alarm, None without one.

    `status` is `idle`, or `forking` while the log of a fork is being copied: until then it is no session.
    """

    id: str
    parent: str | None = None
    root: str = ""
    path: str = "/root"
    title: str | None = None
    status: str = "idle"
    due_ms: int | None = None
    created_ms: int = 0
    updated_ms: int = 0
    events: int = 0

    @property
    def unfinished(self) -> bool:
        """Whether this is a fork that is being made, or that a crash left half made: nobody may see it."""
        return self.status == FORKING


class Due(msgspec.Struct, frozen=True, gc=False):
    """When a session is to be woken next, from here on; None: never."""

    at_ms: int | None


Place: TypeAlias = tuple[int, str]  # where a session stands among those that come due: wall milliseconds, and its id
Done: TypeAlias = Callable[[Exception | None], None]
RunSoon: TypeAlias = Callable[[Callable[[], None]], None]


class Store(Protocol):
    """Append-only records of many sessions.

    `append` and `sync` are called on the loops' thread and never wait for the disk. `read`, `header`, `headers` and
    `last` and `due` may be called from any thread and see what is committed; call them in a thread when `blocking`.
    """

    @property
    def blocking(self) -> bool:
        """Whether reading may wait for a disk."""
        ...

    def open(self, run_soon: RunSoon) -> None:
        """Get ready; `run_soon(fn)` calls `fn` soon on the loops' thread, and may be called from any thread."""
        ...

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        """Take records in order, the session's changed header, and its changed due time: all of them or none.

        A `due` beside a header counts, not the header's. Raises `LogError` when closed or full.
        """
        ...

    def sync(self, done: Done, session: str | None = None) -> None:
        """Call `done(None)` once all that was appended before is durable, or `done(error)`; maybe before returning.

        With `session` the answer is about that session's records alone: another's refusal is not its own.
        """
        ...

    def read(self, session: str, after: int, limit: int) -> list[Record]:
        """Committed records with seq > after, in order, at most `limit`."""
        ...

    def header(self, session: str) -> Header | None:
        """The header of one session, None for an unknown one."""
        ...

    def headers(self) -> list[Header]:
        """All sessions, newest first."""
        ...

    def last(self, session: str, kinds: Sequence[str], before: int, limit: int) -> list[Record]:
        """Committed records with seq < before, newest first, at most `limit`, that may be of one of these kinds."""
        ...

    def due(self, upto_ms: int, after: Place, limit: int) -> list[Place]:
        """The sessions that come due up to `upto_ms` and stand behind `after`, earliest first, at most `limit`."""
        ...

    def close(self) -> None:
        """Commit what was taken and let go of the disk; harmless when repeated."""
        ...
