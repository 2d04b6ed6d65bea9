"""The Store protocol: where records go to become durable, and come back from; two loops, no await."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

FORKING, REWOUND = "forking", "rewound"


class Record(msgspec.Struct, frozen=True, gc=False):
    """One event in its written form; `turn` None between turns."""

    seq: int
    at_ms: int
    turn: int | None
    body: bytes


class Header(msgspec.Struct, frozen=True, gc=False):
    """What a store knows of a session without reading its log; `due_ms` is the next alarm, None without one.

    `status` is `idle`, or `forking` while the log of a fork or an import is being written: until then it is no session;
    or `rewound` for the old log of a session that another took the id of: it is read and forked, never opened.
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

    @property
    def rewound(self) -> bool:
        """Whether this is the old log of a session that was rewound, or of an agent below it."""
        return self.status == REWOUND


class Change(msgspec.Struct, frozen=True, gc=False):
    """What a stored session is from here on: the header, its id included; None: it and its records are gone."""

    session: str
    header: Header | None


class Due(msgspec.Struct, frozen=True, gc=False):
    """When a session is to be woken next, from here on; None: never."""

    at_ms: int | None


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """The state of one projection in its written form, true for all records up to `seq`; a cache, never the truth."""

    key: str
    version: int
    seq: int
    body: bytes


Place: TypeAlias = tuple[int, str]  # where a session stands among those that come due: wall milliseconds, and its id
Done: TypeAlias = Callable[[Exception | None], None]
RunSoon: TypeAlias = Callable[[Callable[[], None]], None]


class Store(Protocol):
    """Append-only records of many sessions.

    `append`, `sync`, `claim`, `release` and `snap` are called on the loops' thread and never wait for the disk. `read`,
    `header`, `headers`, `last`, `due` and `snapshots` may be called from any thread and see what is committed; call
    them in a thread when `blocking`.
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

    def claim(self, session: str, done: Done) -> None:
        """Become the one owner who may write to a session that is stored; call on the loops' thread.

        `done(None)` when it is ours, as it is for a session that nobody owns, and for one that is not stored yet: its
        first append makes it ours. `done(Fenced)` while another owner's lease lasts.
        """
        ...

    def release(self, session: str) -> None:
        """Let any owner have it, once all that was appended before is durable; harmless when it is not ours."""
        ...

    def snap(self, session: str, snapshots: Sequence[Snapshot]) -> None:
        """Keep these in place of older ones of the same keys, some time soon; may be lost, and never raises."""
        ...

    def snapshots(self, session: str) -> list[Snapshot]:
        """What was kept of a session's projections, of any thread; those whose records are not all stored left out."""
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


class Renaming(Protocol):
    """What a Store that can give its sessions other ids does beside."""

    def rename(self, changes: Sequence[Change], done: Done) -> None:
        """Change ids and headers once all that was appended before is durable: all at one moment, or none.

        Call on the loops' thread. `done(None)` when that is durable; `done(LogError)` when a session is not there, an
        id would be taken twice, or one is to go that is not unfinished; `done(Fenced)` when another owner has one.
        Nobody owns what was changed.
        """
        ...
