"""proposals: what is open of a session's plans: one that nobody decided on, and those on their way to a new session."""

from callboard.actors.books import TURN
from callboard.actors.mode import MODE
from callboard.actors.session import Session
from callboard.plugins.handovers import HANDOVERS, PROPOSED, Proposal
from callboard.plugins.proposed import plan_id


def proposal_in(session: Session) -> Proposal | None:
    """The plan that the last turn proposed, if that turn completed in Plan mode and nobody has taken the plan up."""
    log = session.log
    if PROPOSED not in session.stage.folds.place:
        return None
    turn, mode, end = log[TURN], log[MODE], log.last_end
    if turn.open or not (mode.active and mode.target) or end is None:
        return None
    if end.reason != "completed" or end.error is not None:
        return None
    return next((one for one in log[PROPOSED] if one.id == plan_id(turn.number) and one.execution is None), None)


def hands_over(session: Session) -> bool:
    """Whether a plan is on its way to a session of its own."""
    if HANDOVERS not in session.stage.folds.place:
        return False
    return any(one.state in ("due", "refused") for one in session.log[HANDOVERS])
