"""Registry: which sessions there are, live or passivated; a message to one that left memory brings it back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol, TypeAlias, TypeVar

from callboard.actors.books import OPENED, QUEUE
from callboard.actors.errors import SessionClosed, UsageError
from callboard.actors.eventlog import EventLog
from callboard.actors.events import SessionOpened
from callboard.actors.messages import Await, Letter, Passivate, Reply
from callboard.actors.notices import Notice
from callboard.actors.passivation import Kept, is_free, keep
from callboard.actors.phase import Phase
from callboard.actors.session import Session
from callboard.actors.stage import Stage
from callboard.runtime.knots import check_wait
from callboard.runtime.reading import Audience, Reading, Source
from callboard.runtime.waiting import Pending

State: TypeAlias = Literal["live", "evicting", "cold", "loading"]

T = TypeVar("T")

OTHER_THREAD = (
    "sessions are used in the thread of their event loop; from another thread use "
    "asyncio.run_coroutine_threadsafe(session.run(...), loop).result()."
)
AGENTS_OF = "agents of "  # and the id of the root is what the supervisor of its agents is called
PAGE_MAX = 1_000  # records read from the store at once


class Registry:
    """Sessions by id: the live actors, and what is kept of those that left memory.

    Whoever wants a session goes through here at each message, so nobody else needs to hold an actor. `begin(actor)`
    starts one that comes back and adds it here; `holds(actor)` is what else keeps one in memory; `left(actor)` is told
    in the same piece in which it leaves.
    """

    def __init__(
        self,
        stage: Stage,
        on_notice: Callable[[Notice], None],
        *,
        begin: Callable[[Session], None],
        holds: Callable[[Session], bool],
        left: Callable[[Session], None],
    ) -> None:
        self._stage, self._on_notice, self._begin, self._holds, self._left = stage, on_notice, begin, holds, left
        self.live: dict[str, Session] = {}
        self.cold: dict[str, Kept] = {}
        self.audience = Audience()
        self.open = True  # whether a session may still come
        self._evicting: set[str] = set()
        self._thread = threading.get_ident()

    def __contains__(self, session_id: object) -> bool:
        return isinstance(session_id, str) and (self.get(session_id) is not None or session_id in self.cold)

    def state(self, session_id: str) -> State | None:
        """Where a session is on its way into memory and out of it; None for one that is not open."""
        if session_id in self.cold:
            return "cold"
        actor = self.get(session_id)
        if actor is None:
            return None
        return "loading" if actor.kept is not None else "evicting" if session_id in self._evicting else "live"

    # -- who is there ------------------------------------------------------------------------------------------------

    def get(self, session_id: str) -> Session | None:
        """The actor in memory, None without one."""
        actor = self.live.get(session_id)
        return None if actor is None or actor.phase is Phase.STOPPED else actor

    def actor(self, session_id: str) -> Session:
        """The actor in memory; `SessionClosed` when there is none."""
        return self._there(session_id, self.get(session_id))

    def _there(self, session_id: str, found: T | None) -> T:
        if found is not None:
            return found
        why = "has ended: open it again to go on."
        if not self.open:
            why = "has ended: the runtime is closed."
        elif session_id in self.cold:
            why = "is not in memory: its handle brings it back."
        raise SessionClosed(f"session {session_id!r} {why}")

    def is_passivated(self, session_id: str) -> bool:
        """Whether it left memory: it rests, and nobody waits for it."""
        return session_id in self.cold

    def opened(self, session_id: str) -> SessionOpened | None:
        """How a session in memory was opened; None for one that is not."""
        actor = self.live.get(session_id)
        return None if actor is None else opened_of(actor)

    def kept(self, session_id: str) -> Kept | None:
        """What there is of a session whose log is not in memory: it is cold or loading. None for any other."""
        actor = self.live.get(session_id)
        return self.cold.get(session_id) if actor is None else actor.kept

    def tell(self, session_id: str, letter: Letter) -> None:
        """Put a message into the session's mailbox, in memory or not; `SessionClosed` when there is none.

        A `UsageError` in a thread that is not the loops', and inside a turn that would wait for itself.
        """
        self.check_thread()
        check_wait(self.live.get, session_id, letter)
        actor = self.awake(session_id)
        if actor is None and self.open and session_id in self.cold:
            raise SessionClosed(f"session {session_id!r} cannot come back: no session starts any more.")
        self._there(session_id, actor).tell(letter)

    def check_thread(self) -> None:
        """A `UsageError` in a thread that is not the loops': it would wake the actor from outside, which loses it."""
        if threading.get_ident() != self._thread:
            raise UsageError(OTHER_THREAD)

    # -- reading -----------------------------------------------------------------------------------------------------

    def log(self, session_id: str) -> tuple[EventLog, Phase]:
        """The log and the phase; `SessionClosed` when there is no such session.

        A log that is not in memory is read for this once, here and now, and let go again.
        """
        kept, actor = self.kept(session_id), self.get(session_id)
        if kept is not None:
            return self._read(session_id), Phase.PASSIVATED if actor is None else actor.phase
        actor = self._there(session_id, actor)
        return actor.log, actor.phase

    def read(self, session_id: str, after: int, *, deltas: bool, queue_max: int) -> Reading:
        """A reader of a session that is open, or else of what the store has."""
        self.check_thread()
        stage, kept = self._stage, self.kept(session_id)
        source = Source(
            stage.store,
            stage.codec,
            session_id,
            self.get(session_id),
            None if kept is None else kept.last,
            self.audience.discard,
            self._on_notice,
        )
        reading = Reading(source, after, deltas=deltas, queue_max=queue_max)
        if session_id in self:
            self.audience.add(reading)
        return reading

    @contextmanager
    def opening(self, session_id: str) -> Iterator[None]:
        """The store lets the session go again when what is done here does not bring it in."""
        try:
            yield
        finally:
            if session_id not in self:
                self.release(session_id)

    def release(self, session_id: str) -> None:
        """Other programs may have it."""
        self._stage.store.release(session_id)

    async def loaded(self, session_id: str) -> Session:
        """(Trio) The actor with its log in memory; `SessionClosed` when there is none."""
        if self.kept(session_id) is not None:
            answered = Pending()
            self.tell(session_id, at_once(answered.reply))
            await answered.get()
        return self.actor(session_id)

    def _read(self, session_id: str) -> EventLog:
        stage = self._stage
        log = EventLog(session_id, stage.store, stage.codec, stage.folds, stage.now_ms, stage.on_event)
        log.resume(log.start_of(stage.store.snapshots(session_id)))
        while records := stage.store.read(session_id, log.seq - 1, PAGE_MAX):
            log.load(records)
        return log

    def above(self, session_id: str) -> list[EventLog]:
        """The logs of those above a live session, its parent's first; one that is not in memory is read for it."""
        found: list[EventLog] = []
        parent = opened_of(self.actor(session_id)).parent
        while parent is not None:
            actor = self.get(parent)
            log = self._read(parent) if actor is None or actor.kept is not None else actor.log
            found.append(log)
            opened = log[OPENED]
            parent = None if opened is None else opened.parent
        return found

    def places(self) -> list[tuple[str, SessionOpened]]:
        """The ids of all, the live ones first, and where they stand in their trees."""
        live = [(actor.id, opened_of(actor)) for actor in self.live.values()]
        return live + [(id_, kept.opened(id_)) for id_, kept in self.cold.items()]

    def count(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Sessions, messages in mailboxes and queued messages, each by phase."""
        phases: dict[str, int] = {}
        mailbox: dict[str, int] = {}
        queued: dict[str, int] = {}
        for actor in tuple(self.live.values()):
            phase = actor.phase.value
            phases[phase] = phases.get(phase, 0) + 1
            mailbox[phase] = mailbox.get(phase, 0) + len(actor.mailbox)
            queued[phase] = queued.get(phase, 0) + len(actor.log[QUEUE])
        cold, phase = tuple(self.cold.values()), Phase.PASSIVATED.value
        phases[phase], queued[phase] = len(cold), sum(kept.queued for kept in cold)
        return phases, mailbox, queued

    # -- coming ------------------------------------------------------------------------------------------------------

    def add(self, actor: Session) -> None:
        """It is started: from here on it is the session."""
        self.cold.pop(actor.id, None)
        self.live[actor.id] = actor
        self.audience.join(actor)

    def awake(self, session_id: str) -> Session | None:
        """The actor; one that left memory begins to load, once, and takes messages meanwhile. None without any."""
        kept = self.cold.get(session_id)
        if kept is None or not self.open:
            return self.get(session_id)
        actor = Session(self._stage, session_id, kept.opened(session_id), kept)
        try:
            self._begin(actor)
        except SessionClosed:  # the supervisor gave up, or the loops end: it stays where it is
            return None
        return actor

    # -- going -------------------------------------------------------------------------------------------------------

    def drop(self, actor: Session) -> bool:
        """It has ended; False when another is the session by now, or it left memory."""
        if self.live.get(actor.id) is not actor:
            return False
        del self.live[actor.id]
        self._evicting.discard(actor.id)
        return True

    def may_leave(self, actor: Session) -> bool:
        """Whether nothing holds it in memory now."""
        return is_free(actor) and not self._holds(actor)

    def evict(self, actor: Session) -> None:
        """Ask it to leave memory; it does unless something comes up until it has flushed."""
        self._evicting.add(actor.id)
        letter = Passivate(self._leave, reply=lambda _: self._evicting.discard(actor.id))
        actor.mailbox.put(letter, urgent=True)

    def _leave(self, actor: Session) -> bool:
        """The last step, in one piece: nothing came up since the flush, so what is kept is the session; else it stays.

        Nothing on the log since the flush also says that its next alarm, which stays with the runtime, is the same.
        """
        self._evicting.discard(actor.id)
        if self.live.get(actor.id) is not actor or not self.may_leave(actor):
            return False
        del self.live[actor.id]
        self.cold[actor.id] = keep(actor)
        self.audience.part(actor.id)
        self._left(actor)
        return True


def opened_of(actor: Session) -> SessionOpened:
    """Where the session stands in its tree, also while its log is being read."""
    opened = actor.log[OPENED] or actor.opening
    assert opened is not None, "an actor is live only once its log is open, or it was before"
    return opened


class Lineage(Protocol):
    """What says where a session stands: the first event of its log, or its header in the store."""

    @property
    def parent(self) -> str | None:
        """The id of its parent, None for a root."""
        ...

    @property
    def root(self) -> str:
        """The id of the root of its tree; it may be left out of a root's own."""
        ...


def root_of(lineage: Lineage, session_id: str) -> str:
    """The id of the root of a session's tree."""
    return session_id if lineage.parent is None else lineage.root or session_id


def at_once(reply: Reply) -> Await:
    """Asks for the end of a turn before the first, which is answered by any actor that has read its log."""
    return Await(0, reply=reply)
