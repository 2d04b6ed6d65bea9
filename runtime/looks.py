"""Looks: what a runtime tells of itself: statistics, its health, and what it shows to other programs."""

import os
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any

import attrs

from callboard.actors.session import Session
from callboard.metrics.collector import Snapshot
from callboard.runtime.clock import steady_s
from callboard.runtime.ground import Ground
from callboard.runtime.nodes import NAMES_MAX, Shown, tree_of
from callboard.runtime.peek import program_name
from callboard.runtime.place import ENDING, record_of
from callboard.runtime.registry import Registry
from callboard.runtime.supervisor import Supervisor
from callboard.runtime.trees import Trees
from callboard.runtime.vitals import STUCK_S, health_of


def is_stuck(actor: Session) -> bool:
    """Whether its turn does not come out of being aborted."""
    return (record_of(actor).aborting_s or 0.0) > STUCK_S


class Looks:
    """Reads, and changes nothing. `gave_up` answers whether the root supervisor has ended."""

    def __init__(
        self, ground: Ground, registry: Registry, trees: Trees, root: Supervisor, gave_up: Callable[[], bool]
    ) -> None:
        self._trees = trees
        self._ground, self._registry, self._root, self._gave_up = ground, registry, root, gave_up
        self._began_s = steady_s()

    def statistics(self, snapshot: Snapshot) -> dict[str, Any]:
        """The whole tree, the counts, and the trees of agents by their roots."""
        trees = {root: self._trees.account(root) for root in tuple(self._trees.open)}
        return {"tree": attrs.asdict(self._root.statistics()), **self._counts(snapshot), "trees": trees}

    def _counts(self, snapshot: Snapshot) -> dict[str, Any]:
        abandoned = self._ground.stage.abandoned
        return {
            "sessions": {phase: count for phase, count in snapshot.phases.items() if count},
            "mailbox_messages": sum(snapshot.mailbox.values()),
            "queued_messages": sum(snapshot.queued.values()),
            "subscribers": snapshot.subscribers,
            "abandoned": list(abandoned.names()),
            "parked": list(abandoned.parked),
            "can_drop": self._ground.stage.can_drop,
        }

    def health(self, phase: str, left: Sequence[str]) -> dict[str, Any]:
        """Plain data for a health check; after the end it is about what is left."""
        is_open = phase == "open"
        live = tuple(self._registry.live.values()) if is_open else ()
        vitals, abandoned = self._ground.vitals, self._ground.stage.abandoned
        vitals.delayed_are(actor.id for actor in live if actor.log.durable < actor.log.seq - 1)
        return health_of(
            vitals,
            phase,
            gave_up=is_open and self._gave_up(),
            stuck=[actor.id for actor in live if actor.phase in ENDING and is_stuck(actor)],
            abandoned=abandoned.count(),
            parked=len(abandoned.parked),
            left=left,
        )

    def shown(self, phase: str, snapshot: Snapshot) -> Generator[None, None, Shown]:
        """(the local socket) All there is to see, in slices."""
        tree = yield from tree_of(self._root)
        counts = self._counts(snapshot)
        return Shown(
            os.getpid(),
            program_name(sys.argv),
            steady_s() - self._began_s,
            self.health(phase, ()),
            counts["sessions"],
            tree,
            tuple(counts["abandoned"][:NAMES_MAX]),
            tuple(counts["parked"][:NAMES_MAX]),
        )
