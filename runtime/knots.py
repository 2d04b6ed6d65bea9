"""Knots: who would wait for itself: a turn for its own end, or for one above that waits for it."""

from collections.abc import Callable, Iterator

from callboard.actors.books import OPENED, TURN
from callboard.actors.children import CHILDREN, child_of
from callboard.actors.errors import UsageError
from callboard.actors.inside import INSIDE
from callboard.actors.messages import Await, Letter, Submit
from callboard.actors.seen import SEEN
from callboard.actors.session import Session
from callboard.runtime.crossing import is_waited_for

OWN = (
    "turn {turn} of session {id!r} cannot wait for its own session from inside, it would never end: "
    "submit without waiting, or wait outside of the turn."
)
ABOVE = (
    "turn {turn} of session {id!r} cannot wait for session {other!r}, which waits for it: "
    "submit without waiting, or wait outside of the turn."
)


def check_wait(actor_of: Callable[[str], Session | None], target: str, letter: Letter) -> None:
    """A `UsageError` where this letter to `target` would wait, from inside a turn, for what waits for that turn."""
    inside = INSIDE.get() if isinstance(letter, Await | Submit) else None
    if inside is None or not is_waited_for():
        return
    id_, turn = inside
    waiting = next((one for one in _waiting(actor_of, id_, turn) if one.id == target), None)
    if waiting is not None and _waits(waiting, letter):
        raise UsageError((OWN if target == id_ else ABOVE).format(id=id_, turn=turn, other=target))


def _waiting(actor_of: Callable[[str], Session | None], id_: str, turn: int) -> Iterator[Session]:
    """The session whose turn it is, and each above whose turn waits for the one before as for a foreground agent."""
    actor = actor_of(id_)
    if actor is not None and actor.kept is None and actor.log[TURN].open and actor.log[TURN].number == turn:
        yield actor
        opened = actor.log[OPENED]
        parent = None if opened is None or opened.parent is None else actor_of(opened.parent)
        known = None if parent is None or parent.kept is not None else child_of(parent.log[CHILDREN], id_)
        if parent is not None and known is not None and known.call != "":
            yield from _waiting(actor_of, parent.id, known.called)


def _waits(actor: Session, letter: Letter) -> bool:
    """Whether a session with an open turn keeps this letter's answer until that has ended."""
    if isinstance(letter, Await):
        return letter.turn is None or letter.turn >= actor.log[TURN].number
    if not isinstance(letter, Submit) or letter.ended is None:
        return False
    return letter.id is None or letter.id not in actor.log[SEEN].ids  # sent before, it may have been answered
