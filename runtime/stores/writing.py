"""Writing: what group commit is given, and what it asks of whatever it writes to; each store brings its own."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import attrs
import msgspec

from callboard.actors.errors import LogError
from callboard.actors.store import Change, Done, Due, Header, Record


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One append, as it was taken; `size_bytes` is that of the bodies.

    `first` when nobody has checked yet that it follows what is stored.
    """

    session: str
    records: tuple[Record, ...]
    header: Header | None
    size_bytes: int
    first: bool
    due: Due | None = None


@attrs.frozen
class Claim:
    """A session is to become ours; `done` hears whether it did."""

    session: str
    done: Done


@attrs.frozen
class Release:
    """A session may be anybody's from here on."""

    session: str


@attrs.frozen
class Rename:
    """Sessions get other ids and headers; `done` hears whether they did, and `session` is the first of them.

    `numbers` are those that the sessions have in the store, once somebody looked: a change that was asked for twice,
    because a connection broke before it said so, is known by them.
    """

    session: str
    changes: tuple[Change, ...]
    done: Done
    numbers: dict[str, int] = attrs.field(factory=dict)

    @property
    def names(self) -> list[str]:
        """The ids that are given up or taken."""
        return [
            name for one in self.changes for name in (one.session, *(() if one.header is None else (one.header.id,)))
        ]


Wish: TypeAlias = Claim | Release | Rename
ANSWERED = (Claim, Rename)
"""The wishes that somebody waits for."""


class Trouble(Exception):
    """The disk does not take what it was given now, nothing of it was written, and it may be given again.

    `passing` when trying again soon may help; `silent` when that is no news before a while, as with a short lock.
    """

    def __init__(self, why: LogError, *, passing: bool, silent: bool = False) -> None:
        super().__init__(str(why))
        self.why, self.passing, self.silent = why, passing, silent


class Writing(Protocol):
    """The writing half of a store: one connection and its transactions. One thread at a time uses it.

    `refused` and `is_ours` are also asked by the loops' thread, while another one writes.
    """

    @property
    def name(self) -> str:
        """What the store is called in a sentence; no secrets."""
        ...

    @property
    def refused(self) -> dict[str, LogError]:
        """Sessions that write no more through this store until they are claimed again, and why, the last one last."""
        ...

    def is_ours(self, session: str) -> bool:
        """Whether nothing has to be asked to know that we own it."""
        ...

    def write(self, entries: Sequence[Entry]) -> None:
        """Make all entries durable but those of sessions in `refused`, which may grow by this. Raises `Trouble`."""
        ...

    def grant(self, wishes: Sequence[Wish]) -> Mapping[str, LogError]:
        """Claim, release and rename in order; the sessions of wishes that cannot be, and why. Raises `Trouble`.

        A claimed session leaves `refused`.
        """
        ...

    def renew(self) -> None:
        """Make the lease last again if that is due and anything is owned. Raises `Trouble`."""
        ...

    def rest(self, *, waiting: bool) -> None:
        """Between two commits: do what makes the next ones fast if it is due; rather not while somebody is waiting."""
        ...

    def wants_rest(self) -> bool:
        """Whether `rest` has something to do."""
        ...

    def close(self) -> None:
        """After the last commit: let go of what is owned and of the connection; never raises."""
        ...
