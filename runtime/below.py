"""Below: the turn of one agent that is being aborted, whose end the turn of somebody above waits for."""

from typing import Any

from callboard.actors.abort import AbortWindow
from callboard.actors.books import TURN
from callboard.actors.session import Session


class Below:
    """Stands in the window of the turn above until the agent has answered that it is told, and its turn has ended."""

    __slots__ = ("_agent", "_answered", "_window")

    def __init__(self, agent: Session, window: AbortWindow) -> None:
        """`answered` is the reply of the interrupt that the agent is sent."""
        self._agent, self._window, self._answered = agent, window, False
        window.below[self] = None
        agent.log.watch(self._look)

    def answered(self, _: Any) -> None:
        """What stood before the interrupt in its mailbox was done too: no turn of it begins by that any more."""
        self._answered = True
        self._look()

    def _look(self) -> None:
        """(the log) Something was appended."""
        if self._answered and not self._agent.log[TURN].open:
            self._agent.log.unwatch(self._look)
            self._window.ended(self)
