"""Which sessions of the file are ours: met, claimed, released; and the lease that keeps them."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from callboard.actors.errors import LogError
from callboard.actors.memory import misplaced
from callboard.runtime.clock import steady_s
from callboard.runtime.stores.owners import (
    RENEWALS_MIN,
    Holder,
    held,
    may_take,
    new_owner,
    process,
    read_about,
    taken_over,
    this_program,
    written,
)
from callboard.runtime.stores.sqlite_wide import Wide
from callboard.runtime.stores.writing import Claim, Wish

KNOWN_MAX: Final = 100_000
"""So many sessions are known by heart; beyond it all are looked up again."""


class Refused(Exception):
    """Inside the store: one session of a group may not write."""

    def __init__(self, why: LogError) -> None:
        super().__init__(str(why))
        self.why = why


class Owning:
    """One owner: this opening of the file. `enter`, `meet` and `grant` run inside a transaction of the caller.

    What is learned in a transaction counts once the caller says `settled`, and is forgotten with `undone`.
    """

    def __init__(self, db: sqlite3.Connection, name: str, lease_s: float, now_ms: Callable[[], int]) -> None:
        self.owner, self._name = new_owner(), name
        self.numbers: dict[str, int] = {}
        """Sessions that are ours, whose next record is known to follow the last one stored: the number of each."""
        self.doubtful = False
        """Whether the lease was once over: others may have been there, so a claim is asked of the file."""
        self.epochs: dict[str, int] = {}
        """Under which epoch we own those in `numbers` that had another owner before; the rest is in its first."""
        self._met: list[str] = []  # those that came to be known in the running transaction
        self._db, self._now_ms, self._here, self._lease_s = db, now_ms, this_program(lease_s), lease_s
        self._lease_ms, self._renewed_s = 0, 0.0  # until when the list of owners has us, 0: it does not
        self._entering = False
        self._known = Wide(
            "SELECT id, number, (SELECT max(seq) FROM events WHERE session = number), epoch, s.owner,"
            " o.lease_ms, o.about FROM sessions s LEFT JOIN owners o ON o.owner = s.owner"
            " WHERE id IN (SELECT column1 FROM ",
            1,
            ")",
        )
        self._take = Wide("UPDATE sessions SET owner = ?, epoch = column2 FROM ", 2, " WHERE id = column1", self.owner)
        self._let_go = Wide("UPDATE sessions SET owner = nullif(owner, ?) FROM ", 1, " WHERE id = column1", self.owner)

    # -- in a transaction ----------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Be on the list of owners before anything is owned; whose lease is over leaves it."""
        if not self._lease_ms and not self._entering:
            self._entering = True
            self._db.execute("DELETE FROM owners WHERE lease_ms < ?", (self._now_ms(),))
            self._renew()

    def meet(self, firsts: Mapping[str, int | None]) -> None:
        """Learn the numbers of sessions, that they are ours or become it, and that their first record comes next.

        None for one that only changes its header. Raises `Refused`.
        """
        taken: list[tuple[str, int]] = []
        for session, number, last, epoch, why in self.standings(firsts):
            if session in self.numbers and epoch != self.epochs.get(session, 1):
                why = taken_over(session, self._name)
            if why is not None:
                raise Refused(why)
            expected, first = 0 if last is None else last + 1, firsts[session]
            if first is not None and first != expected:
                raise Refused(misplaced(session, first, expected))
            self._learn(session, number, epoch, taken)
        self._take.run(self._db, taken)

    def grant(self, wishes: Sequence[Wish]) -> dict[str, LogError]:
        """Claim and release in order; those that cannot be ours. One that is not stored yet needs no claim."""
        denied: dict[str, LogError] = {}
        for claims, some in groupby(wishes, lambda wish: isinstance(wish, Claim)):
            sessions = [wish.session for wish in some]
            if not claims:
                self._let_go.run(self._db, [(session,) for session in sessions])
                self.forget(sessions)
                continue
            taken: list[tuple[str, int]] = []
            for session, number, _, epoch, why in self.standings(sessions):
                if why is None:
                    self._learn(session, number, epoch, taken)
                else:
                    denied[session] = why
            self._take.run(self._db, taken)
        return denied

    def standings(self, sessions: Iterable[str]) -> Iterable[tuple[str, int, int | None, int, LogError | None]]:
        """Of each that is stored: its number, last record, epoch, negative for one that would begin, and refusal."""
        own = {session: session for session in sessions}  # not the copy that SQLite answers: 60 bytes a session
        now_ms = self._now_ms()
        for copy, number, last, epoch, owner, lease_ms, about in self._known.run(self._db, [(one,) for one in own]):
            session, why = own[copy], None
            if owner is not None and owner != self.owner:
                holder = Holder(lease_ms, read_about(about))
                if not may_take(holder, self._here, now_ms, process):
                    why = held(session, holder, now_ms)
            yield session, number, last, epoch if owner == self.owner else -(epoch + 1), why

    def _learn(self, session: str, number: int, epoch: int, taken: list[tuple[str, int]]) -> None:
        """It is ours; a negative epoch is one that begins now."""
        if epoch < 0:
            epoch = -epoch
            taken.append((session, epoch))
        self.numbers[session] = number
        self.epochs.pop(session, None)
        if epoch != 1:
            self.epochs[session] = epoch
        self._met.append(session)

    # -- around transactions -------------------------------------------------------------------------------------------

    def settled(self) -> None:
        """The transaction is durable."""
        self._met.clear()
        self._entering = False

    def undone(self) -> None:
        """The transaction never was."""
        self.forget(self._met)
        self._met.clear()
        if self._entering:
            self._entering, self._lease_ms = False, 0

    def forget(self, sessions: Iterable[str]) -> None:
        """Know them no more: what comes next of them is looked up again."""
        for session in sessions:
            self.numbers.pop(session, None)
            self.epochs.pop(session, None)

    def trim(self) -> None:
        """Keep what is known by heart bounded."""
        if len(self.numbers) > KNOWN_MAX:
            self.numbers.clear()
            self.epochs.clear()

    def is_sure(self) -> bool:
        """Whether nobody may have taken anything of ours, as after the lease, or when the clock was set back.

        A program that was stopped may be asked before it renews.
        """
        return not self.doubtful and 0 <= self._lease_ms - self._now_ms() <= self._here.length_ms

    # -- the lease -----------------------------------------------------------------------------------------------------

    def renew_if_due(self) -> bool:
        """Make the lease last again, as a transaction of its own; whether that was due."""
        if not self._lease_ms or steady_s() - self._renewed_s < self._lease_s / RENEWALS_MIN:
            return False
        self.doubtful = not self.is_sure()
        self._renew()
        return True

    def _renew(self) -> None:
        lease_ms = self._now_ms() + self._here.length_ms
        self._db.execute(
            "INSERT INTO owners(owner, lease_ms, about) VALUES(?, ?, ?)"
            " ON CONFLICT(owner) DO UPDATE SET lease_ms = excluded.lease_ms",
            (self.owner, lease_ms, written(self._here)),
        )
        self._lease_ms, self._renewed_s = lease_ms, steady_s()

    def leave(self) -> None:
        """Own nothing any more: who is not on the list of owners holds nothing."""
        if self._lease_ms:
            self._db.execute("DELETE FROM owners WHERE owner = ?", (self.owner,))
