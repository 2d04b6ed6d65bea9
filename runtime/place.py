"""Place: one live session as its supervisor and its actor see it."""

from collections.abc import Awaitable
from typing import Literal, Protocol

import attrs

from callboard.actors.books import QUEUE
from callboard.actors.childspec import Exit, Restart
from callboard.actors.messages import Stop
from callboard.actors.phase import Phase
from callboard.actors.session import Session
from callboard.runtime.registry import opened_of
from callboard.runtime.spawn import Spawner

ENDING = (Phase.ABORTING, Phase.STOPPING)


@attrs.frozen
class SessionRecord:
    """A live session at one moment; `aborting_s` is how long ago the turn that is being aborted was asked to end."""

    phase: str
    path: str
    mailbox: int
    queued: int
    aborting_s: float | None = None


def record_of(actor: Session) -> SessionRecord:
    """What a live session does now."""
    phase, window, aborting_s = actor.phase, actor.scene.window, None
    if phase in ENDING and window is not None and window.cause is not None:
        aborting_s = max(0.0, actor.stage.now_s() - window.opened_s)
    return SessionRecord(phase.value, opened_of(actor).path, len(actor.mailbox), len(actor.log[QUEUE]), aborting_s)


class Home(Protocol):
    """The sessions, as the place of one needs them."""

    polite_s: float
    spawner: Spawner

    def life(self, actor: Session) -> Awaitable[Exit]:
        """(Trio) The actor's whole life."""
        ...


class Place:
    """A `Spec` that knows only the sessions and the actor: 0.3 KB a session less than a ChildSpec and its closures."""

    __slots__ = ("_actor", "_home")
    kind: Literal["actor"] = "actor"
    significant: Literal[False] = False
    below: None = None

    def __init__(self, home: Home, actor: Session) -> None:
        self._home, self._actor = home, actor

    @property
    def id(self) -> str:
        """The session's id."""
        return self._actor.id

    @property
    def restart(self) -> Restart:
        """A crash of a root session is followed by a new run; that of a subagent is its parent's news."""
        return "transient" if opened_of(self._actor).parent is None else "temporary"

    @property
    def shutdown_s(self) -> float:
        """How long it may take to end by itself."""
        return self._home.polite_s

    def start(self) -> Awaitable[Exit]:
        """(Trio) The actor's whole life."""
        return self._home.life(self._actor)

    def stop(self) -> None:
        """Ask it to end."""
        self._actor.tell(Stop())

    def about(self) -> SessionRecord:
        """What it does now."""
        return record_of(self._actor)

    @property
    def rests(self) -> bool:
        """Whether it waits for its user, with nothing to do."""
        actor = self._actor
        return actor.phase is Phase.IDLE and not len(actor.mailbox) and not actor.log[QUEUE]

    def aborted(self) -> int:
        """(the actor) Its turn is being aborted, or it was to be and rests; how many of its agents are too."""
        return self._home.spawner.interrupt_children(self._actor)
