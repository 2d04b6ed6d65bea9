"""Which sessions of a PostgreSQL store are ours: met, claimed, released; and the lease that keeps them."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec

from callboard.actors.errors import LogError
from callboard.actors.memory import misplaced
from callboard.actors.store import Record
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
from callboard.runtime.stores.postgres_place import Bounded
from callboard.runtime.stores.postgres_rows import FORGET, LOCK, NEW, RELEASE, RENEW, STANDINGS, SWEEP, TAKE
from callboard.runtime.stores.writing import Claim, Wish

KNOWN_MAX: Final = 100_000
"""So many sessions are known by heart; beyond it all are looked up again."""


class Held(msgspec.Struct, frozen=True, gc=False):
    """A session that is ours: its number, the epoch it is ours in, and the era in which that was last seen."""

    number: int
    epoch: int
    era: int


class Refused(Exception):
    """Inside the store: one session of a group may not write."""

    def __init__(self, why: LogError) -> None:
        super().__init__(str(why))
        self.why = why


class Owning:
    """One owner: this opening of the store. `meet` and `grant` run inside a transaction of the caller.

    What is learned in a transaction counts once the caller says `settled`, and is forgotten with `undone`.
    """

    def __init__(self, name: str, lease_s: float) -> None:
        self.owner, self._name = new_owner(), name
        self.held: dict[str, Held] = {}
        """Sessions that are ours, whose next record is known to follow the last one stored, if seen in this era."""
        self._era = 0
        self._doubtful: set[str] = set()  # sessions of a group that was under way when the connection broke
        self._met: dict[str, Held | None] = {}  # what those were before that came to be known in this transaction
        self._here, self._lease_s = this_program(lease_s), lease_s
        self._renewed_s: float | None = None  # when the lease was last renewed

    def is_known(self, session: str) -> bool:
        """Whether nothing has to be asked to know that it is ours and what comes next in it."""
        one = self.held.get(session)
        return one is not None and one.era == self._era and session not in self._doubtful

    def lost(self, doubtful: Iterable[str] = ()) -> None:
        """The connection is gone, or the lease was over: all is looked at again before it is written to.

        The doubtful sessions may or may not have in the store what was being written.
        """
        self._era += 1
        self._doubtful.update(doubtful)

    # -- in a transaction ----------------------------------------------------------------------------------------------

    def meet(self, db: Bounded, firsts: Mapping[str, Record | None]) -> Mapping[str, int]:
        """Make sure that sessions are ours, or become it, and that their first record comes next. Raises `Refused`.

        None for one that only changes its header. Those that were in doubt come back with the last record they have.
        The rows are locked before the records are looked at: whoever wrote to them is done with it then.
        """
        created = [0 if record is None else record.at_ms for record in firsts.values()]
        db.execute(NEW, (self.owner, [session.encode() for session in firsts], created))
        ours, others, lasts = self._lock(db, firsts, known=self.held)
        for why in others.values():
            raise Refused(why)
        stored = dict[str, int]()
        for session, last in lasts.items():
            self._check_next(session, firsts[session], -1 if last is None else last)
            if session in self._doubtful and last is not None:
                stored[session] = last
        self._learn(ours)
        return stored

    def _check_next(self, session: str, first: Record | None, last: int) -> None:
        if first is None or first.seq == last + 1 or (session in self._doubtful and first.seq <= last):
            return
        if session in self.held and first.seq > last + 1:
            raise Refused(
                LogError(
                    f"session {session!r}: the {self._name} has lost records {last + 1} to {first.seq - 1}, which it "
                    "had taken: it crashed without durability=full; open the session again."
                )
            )
        raise Refused(misplaced(session, first.seq, last + 1))

    def grant(self, db: Bounded, wishes: Sequence[Wish]) -> dict[str, LogError]:
        """Claim and release in order; those that cannot be ours. One that is not stored yet needs no claim."""
        denied: dict[str, LogError] = {}
        for claims, some in groupby(wishes, lambda wish: isinstance(wish, Claim)):
            sessions = dict.fromkeys(wish.session for wish in some)
            if claims:
                ours, others, _ = self._lock(db, sessions, known={})
                self._learn(ours)
                denied |= others
            else:
                db.execute(RELEASE, (self.owner, [session.encode() for session in sessions]))
                self.forget(sessions)
        return denied

    def lock(self, db: Bounded, sessions: Iterable[str]) -> tuple[dict[str, int], dict[str, LogError]]:
        """Lock the rows of sessions and take what may be taken: the numbers of ours, and why others are not."""
        ours, others, _ = self._lock(db, sessions, known={})
        return {session: one.number for session, one in ours.items()}, others

    def _lock(
        self, db: Bounded, sessions: Iterable[str], known: Mapping[str, Held]
    ) -> tuple[dict[str, Held], dict[str, LogError], dict[str, int | None]]:
        """Lock the rows of those that are stored and take what may be taken: ours now, why others not, last records.

        Of those that are known, only the epoch that is known is ours: another one says that somebody was there.
        """
        ids = {session.encode(): session for session in sessions}
        ours, others, taken = dict[str, Held](), dict[str, LogError](), list[int]()
        lasts = dict[str, int | None]()
        db.execute(LOCK, (list(ids),))
        rows = db.cursor(binary=True).execute(STANDINGS, (list(ids),)).fetchall()
        for id_, number, epoch, owner, lease_ms, about, now_ms, last in rows:
            session = ids[bytes(id_)]
            lasts[session] = last
            holder, before = Holder(lease_ms, read_about(about)), known.get(session)
            if before is not None and before.epoch != epoch:
                others[session] = taken_over(session, f"the {self._name}")
            elif owner == self.owner:
                ours[session] = Held(number, epoch, self._era)
            elif owner is None or may_take(holder, self._here, now_ms, process):
                taken.append(number)
                ours[session] = Held(number, epoch + 1, self._era)
            else:
                others[session] = held(session, holder, now_ms)
        if taken:
            db.execute(TAKE, (self.owner, taken))
        return ours, others, lasts

    def _learn(self, ours: Mapping[str, Held]) -> None:
        for session, one in ours.items():
            self._met.setdefault(session, self.held.get(session))
            self.held[session] = one

    # -- around transactions -------------------------------------------------------------------------------------------

    def settled(self, sessions: Iterable[str]) -> None:
        """The transaction is durable, and nothing of these sessions is in doubt."""
        self._met.clear()
        if self._doubtful:
            self._doubtful.difference_update(sessions)

    def undone(self) -> None:
        """The transaction never was, as far as is known."""
        for session, before in self._met.items():
            if before is None:
                self.held.pop(session, None)
            else:
                self.held[session] = before
        self._met.clear()

    def forget(self, sessions: Iterable[str]) -> None:
        """Know them no more: what comes next of them is looked up again."""
        for session in sessions:
            self.held.pop(session, None)
            self._met.pop(session, None)

    def trim(self) -> None:
        """Keep what is known by heart bounded."""
        if len(self.held) > KNOWN_MAX:
            self.held.clear()

    def is_sure(self) -> bool:
        """Whether nobody may have taken anything of ours: a program that was stopped may be asked before it renews."""
        return self._renewed_s is not None and steady_s() - self._renewed_s <= self._lease_s

    # -- the lease -----------------------------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Whether the lease is to be renewed."""
        return self._renewed_s is None or steady_s() - self._renewed_s >= self._lease_s / RENEWALS_MIN

    def renew(self, db: Bounded) -> None:
        """Make the lease last again; after one that was over everything is looked at again."""
        if self._renewed_s is None:
            db.execute(SWEEP)
        elif steady_s() - self._renewed_s > self._lease_s:
            self.lost()
        asked_s = steady_s()
        db.execute(RENEW, (self.owner, self._here.length_ms, written(self._here)))
        self._renewed_s = asked_s

    def leave(self, db: Bounded) -> None:
        """Own nothing any more: who is not on the list of owners holds nothing."""
        db.execute(FORGET, (self.owner,))
