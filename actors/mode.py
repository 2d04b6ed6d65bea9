"""Plan mode as the log tells it: one fold, and whether a session is to be held to it."""

from callboard.actors.events import Value
from callboard.actors.facts import PlanModeRequested, PlanModeSet
from callboard.actors.fold import Projection, table


class Mode(Value, frozen=True, omit_defaults=False):
    """Plan mode: `active` by the log, and a selection that waits for the next step (None without one)."""

    active: bool = False
    pending: bool | None = None
    narrate: bool = True

    @property
    def target(self) -> bool:
        """Whether the next step will be in Plan mode, as far as is known."""
        return self.active if self.pending is None else self.pending

    @property
    def bars(self) -> bool:
        """Whether no turn may start by itself: it could neither leave nor enter Plan mode."""
        return self.active or self.pending is True


def _chosen(state: Mode, event: PlanModeRequested) -> Mode:
    return Mode(state.active, event.active, event.narrate)


def _set(_: Mode, event: PlanModeSet) -> Mode:
    return Mode(event.active)


MODE: Projection[Mode] = table("plan_mode", Mode(), {PlanModeRequested: _chosen, PlanModeSet: _set})
