"""Passivation: what keeps a resting session in memory, and what is kept of one that left it."""

from typing import Protocol

import msgspec
import trio

from callboard.actors.asked import APPROVALS, QUESTIONS
from callboard.actors.books import OPENED, QUEUE
from callboard.actors.children import CHILDREN
from callboard.actors.errors import LogError
from callboard.actors.eventlog import LOGGER, EventLog
from callboard.actors.events import SessionOpened
from callboard.actors.mailbox import Mailbox
from callboard.actors.messages import Passivate
from callboard.actors.phase import Phase
from callboard.actors.snapping import LEAVING_FACTOR
from callboard.actors.view import CallView, Scene
from callboard.actors.waiters import Waiters


class Kept(msgspec.Struct, frozen=True, gc=False):
    """All that stays of a passivated session; the rest is in the store. `place` is None for a root session."""

    last: int  # the number of its last event
    place: SessionOpened | None
    held: bool
    fresh: bool
    has_children: bool
    queued: int
    suspects: frozenset[str]

    def opened(self, session_id: str) -> SessionOpened:
        """Who its parent is, and where it stands; nothing else of its opening."""
        return SessionOpened(root=session_id) if self.place is None else self.place


class Resting(Protocol):
    """A session, as far as leaving memory goes."""

    phase: Phase
    log: EventLog
    scene: Scene
    mailbox: Mailbox
    waiters: Waiters | None
    waits: bool
    suspects: frozenset[str]
    held: bool


async def passivated(actor: Resting, letter: Passivate) -> bool:
    """(Trio) Flush, then leave in one piece; False when something came up meanwhile, or holds the session."""
    with trio.move_on_after(actor.scene.stage.limits.flush_stall_s):
        try:
            await actor.log.flush()
        except LogError as error:
            LOGGER.warning("session %s stays in memory: %s", actor.log.session, error)
    if not letter.leave(actor):
        return False
    actor.log.snap(actor.scene.stage.limits.snap_bytes // LEAVING_FACTOR)
    actor.phase = Phase.PASSIVATED
    actor.scene.epoch += 1
    return True


def is_free(actor: Resting) -> bool:
    """Whether nothing of its own keeps it in memory: it rests, all is durable, and nobody waits for it."""
    log = actor.log
    return (
        actor.phase is Phase.IDLE
        and not (len(actor.mailbox) or actor.waiters or actor.waits or actor.scene.belongings)
        and log.durable == log.seq - 1
        and not log[QUESTIONS]
        and not log[APPROVALS]
        and not _plugins_hold(actor.scene)
    )


def keep(actor: Resting) -> Kept:
    """What must outlive its memory besides the log."""
    log, scene = actor.log, actor.scene
    children, queued = bool(log[CHILDREN]), len(log[QUEUE])
    return Kept(log.seq - 1, _place(log), actor.held, scene.fresh, children, queued, actor.suspects)


def _place(log: EventLog) -> SessionOpened | None:
    """The place of a subagent without the texts that it was opened with; None for a root session."""
    opened = log[OPENED]
    if opened is None or opened.parent is None:
        return None
    return SessionOpened(opened.parent, opened.root, opened.depth, opened.path)


def _plugins_hold(scene: Scene) -> bool:
    """Whether a plugin has something in this session that a load from the store would not bring back."""
    for plugin in scene.stage.plugins:
        if plugin.holds is not None:
            with CallView(scene) as view:
                if plugin.holds(view):
                    return True
    return False
