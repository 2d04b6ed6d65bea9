"""Troupes: which supervisor each session stands under: a root session under the first, its agents under their own."""

import logging
from collections.abc import Callable, Iterable
from functools import partial

import trio

from callboard.actors.childspec import Intensity
from callboard.actors.notices import ChildRestarted
from callboard.actors.session import Session
from callboard.runtime.crossing import Starts
from callboard.runtime.place import Place
from callboard.runtime.registry import AGENTS_OF, opened_of, root_of
from callboard.runtime.supervisor import Supervisor

LOGGER = logging.getLogger("callboard")
ENDS_AT_ONCE_MAX = 256  # sessions that are ended side by side: fast, and no loop stalls for long


class Troupes:
    """One supervisor of all root sessions, `top`; below it one for the agents of each root that has any in memory.

    Sessions have nothing to do with each other: one that crashes too often is given up alone, and only when more than
    `restarts_max` are given up within `period_s` does `top` give up. A troupe is made with its first agent, goes with
    its last, and costs a root without agents nothing.
    """

    def __init__(
        self, guest: Starts, intensity: Intensity, on_notice: Callable[[ChildRestarted], object], *, polite_s: float
    ) -> None:
        self._guest, self._intensity, self._on_notice, self._polite_s = guest, intensity, on_notice, polite_s
        self._below: dict[str, Supervisor] = {}
        self.top = self._supervisor("sessions", None)

    def _supervisor(self, id_: str, on_empty: Callable[[], object] | None) -> Supervisor:
        return Supervisor(
            self._guest,
            id=id_,
            intensity=self._intensity,
            each=self._intensity,
            ends_at_once_max=ENDS_AT_ONCE_MAX,
            on_notice=self._on_notice,
            on_empty=on_empty,
        )

    def start(self, place: Place, root: str) -> None:
        """Start a session under its supervisor; `SessionClosed` when that is ending."""
        if place.id == root:
            self.top.start_child(place)
            return
        troupe = self._below.get(root)
        if troupe is None:
            id_ = f"{AGENTS_OF}{root}"
            troupe = self._supervisor(id_, partial(self._empty, root))
            self.top.start_child(troupe.as_child(restart="temporary", shutdown_s=2 * self._polite_s))
            self._below[root] = troupe
        troupe.start_child(place)

    def _empty(self, root: str) -> None:
        """(a troupe) Nobody is left in it: it ends, and whoever comes next starts another."""
        troupe = self._below.pop(root, None)
        if troupe is not None:
            self.top.let_go(troupe.id)
            troupe.end()

    async def stop(self, session_id: str, root: str) -> bool:
        """End a session for good and say whether it ended within its time; True when it does not run.

        (asyncio or Trio) On asyncio the ending goes on when the caller is cancelled.
        """
        supervisor = self._of(session_id, root)
        return supervisor is None or await supervisor.stop_child(session_id)

    def expects(self, actor: Session) -> bool:
        """Whether a session ends because it was asked to."""
        supervisor = self._of(actor.id, root_of(opened_of(actor), actor.id))
        return supervisor is None or supervisor.expects(actor.id)

    def let_go(self, session_id: str, root: str) -> None:
        """(the session itself, about to end) Another may take its id at once."""
        supervisor = self._of(session_id, root)
        if supervisor is not None:
            supervisor.let_go(session_id)

    def _of(self, session_id: str, root: str) -> Supervisor | None:
        return self.top if session_id == root else self._below.get(root)

    async def end_all(self, actors: Iterable[Session]) -> list[Session]:
        """(Trio) Stop these, so many at once; those that did not end within their time."""
        waiting, left = list(actors), []

        async def end() -> None:
            while waiting:
                actor = waiting.pop()
                if not await self.stop(actor.id, root_of(opened_of(actor), actor.id)):
                    LOGGER.error("session %s did not end within %g s and was left", actor.id, self._polite_s)
                    left.append(actor)

        async with trio.open_nursery() as nursery:
            for _ in range(min(ENDS_AT_ONCE_MAX, len(waiting))):
                nursery.start_soon(end)
        return left

    def living(self) -> tuple[str, ...]:
        """The ids of all that run, those of agents included."""
        below = [child.id for troupe in self._below.values() for child in troupe.children()]
        return (*(child.id for child in self.top.children() if child.kind == "actor"), *below)
