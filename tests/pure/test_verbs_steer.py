"""What steer, submit_or_steer and inject write and answer, and what becomes of steered input that no step took."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors import verbs
from callboard.actors.answered import answered
from callboard.actors.books import HISTORY, PARKED, QUEUE
from callboard.actors.claim import first_claim, goes_on, later_claim, left_over, next_start
from callboard.actors.events import (
    Event,
    Message,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    QueueParked,
    TurnEnded,
    TurnStarted,
    VerbAnswered,
)
from callboard.actors.messages import (
    Accepted,
    Answer,
    Inject,
    Interrupt,
    Refused,
    SetMode,
    Steer,
    Steered,
    Submit,
    SubmitOrSteer,
    Verbs,
)
from callboard.actors.model import User
from callboard.actors.seen import SEEN

from .event_samples import log_of

OPEN = (TurnStarted(1),)
OVER = (TurnStarted(1), TurnEnded(1, "completed"))
COMPACT = (TurnStarted(1, "compact"),)
PARK, RELEASE = QueueParked(parked=True), QueueParked(parked=False)
NO_TURN = Refused("no_active_turn", "no turn takes input now: submit starts one")
OTHER_TURN = Refused("turn_mismatch", "turn 1 is running, not turn 2")
NOT_REGULAR = Refused("not_steerable", "turn 1 is a compact turn, which takes no input")
EMPTY = Refused("empty_input", "there is no text to join the turn")
NO_SCHEMA = Refused("schema_mismatch", "turn 1 was started without a schema for its answer")


def steered(id_: str, seq: int, **given_: Any) -> MessageQueued:
    """The event of a message that joined turn 1."""
    return MessageQueued(id_, "x", "steer", seq=seq, turn=1, **given_)


# The log before, the verb, whether a turn may start, whether the running one takes input; what is written and answered.
CASES: dict[str, tuple[tuple[Event, ...], Verbs, bool, bool, tuple[Event, ...], Answer]] = {
    "steer": (OPEN, Steer("x"), False, True, (steered("auto:1", 2),), Steered(1)),
    "steer this turn": (OPEN, Steer("x", "a", 1), False, True, (steered("a", 2, given=True),), Steered(1)),
    "steer releases": ((PARK, *OPEN), Steer("x"), False, True, (RELEASE, steered("auto:1", 4)), Steered(1)),
    "steer, idle": ((), Steer("x"), True, False, (), NO_TURN),
    "steer, too late": (OPEN, Steer("x"), False, False, (), NO_TURN),
    "steer, after the end": (OVER, Steer("x", None, 1), True, False, (), NO_TURN),
    "steer another turn": (OPEN, Steer("x", None, 2), False, True, (), OTHER_TURN),
    "steer a compaction": (COMPACT, Steer("x"), False, True, (), NOT_REGULAR),
    "steer nothing": (OPEN, Steer(" \n"), False, True, (), EMPTY),
    "steer with a schema": (OPEN, Steer("x", schema={"type": "object"}), False, True, (), NO_SCHEMA),
    "no turn before all": (COMPACT, Steer("", None, 2, {}), False, False, (), NO_TURN),
    "the turn before its kind": (COMPACT, Steer("", None, 2, {}), False, True, (), OTHER_TURN),
    "the kind before the text": (COMPACT, Steer("", None, 1, {}), False, True, (), NOT_REGULAR),
    "the text before the schema": (OPEN, Steer("", None, 1, {}), False, True, (), EMPTY),
    "either, running": (OPEN, SubmitOrSteer("x"), False, True, (steered("auto:1", 2),), Steered(1)),
    "either, idle": (
        OVER,
        SubmitOrSteer("x", "a"),
        True,
        False,
        (MessageQueued("a", "x", given=True, seq=3, turn=2),),
        Accepted(3, 2),
    ),
    "either, ending": (OPEN, SubmitOrSteer("x"), False, False, (MessageQueued("auto:1", "x", seq=2),), Accepted(2)),
    "either, compaction": (COMPACT, SubmitOrSteer("x"), False, True, (), NOT_REGULAR),
    "either, nothing": ((), SubmitOrSteer(" "), True, False, (), EMPTY),
    "inject, idle": (
        (),
        Inject("x"),
        True,
        False,
        (MessageQueued("auto:1", "x", "notice", seq=1, wake=False),),
        Accepted(1),
    ),
    "inject, running": (
        OPEN,
        Inject("x", "a"),
        False,
        True,
        (MessageQueued("a", "x", "notice", given=True, seq=2, wake=False),),
        Accepted(2),
    ),
    "inject releases nothing": (
        (PARK,),
        Inject("x"),
        True,
        False,
        (MessageQueued("auto:1", "x", "notice", seq=2, wake=False),),
        Accepted(2),
    ),
}


@pytest.mark.parametrize(("before", "letter", "idle", "joins", "events", "answer"), CASES.values(), ids=CASES)
def test_input_for_a_running_turn(before, letter, idle, joins, events, answer):
    """Each verb writes its one message, or the first reason in the way is its answer and nothing is written."""
    assert (events, answer) == verbs.decide(log_of(*before), letter, idle=idle, joins=joins)


FIRST: tuple[Verbs, ...] = (Submit("x", "a"), Steer("x", "a"), SubmitOrSteer("x", "a"), Inject("x", "a"))


@pytest.mark.parametrize("again", FIRST, ids=lambda letter: type(letter).__name__)
@pytest.mark.parametrize("first", FIRST, ids=lambda letter: type(letter).__name__)
@pytest.mark.parametrize("fate", [(), (MessagesClaimed(("a",)),), (MessageWithdrawn("a"),)])
def test_one_id_is_one_message(first, again, fate):
    """Whichever verb brings an id again, and whatever became of its message, the first answer is given again."""
    log = log_of(*OPEN)
    events, answer = verbs.decide(log, first, idle=False, joins=True)
    log.append(*events, *fate, TurnEnded(1, "completed"))
    assert ((), answer) == verbs.decide(log, again, idle=True, joins=False)


def test_a_refusal_is_remembered_for_its_verb_alone():
    """An id that a steer was refused under answers a steer again, and is free for every other verb."""
    log = log_of()
    events, answer = verbs.decide(log, Steer("x", "a"), idle=True, joins=False)
    log.append(*events)
    assert (NO_TURN, (VerbAnswered("a", "steer", msgspec.to_builtins(NO_TURN)),)) == (answer, events)
    others = (Interrupt(id="a"), Submit("x", "a"), SetMode(active=True, id="a"), Steer("x", "b"), Steer("x"))
    assert (NO_TURN, *[None] * 5) == tuple(answered(log[SEEN], one) for one in (Steer("y", "a"), *others))


# -- what no step took


U, S, N = Message("u", "x"), Message("s", "x", "steer"), Message("n", "x", "notice", wake=False)
BACK = Message("s", "x", "steer", returned=True)


@pytest.mark.parametrize("reason", ["aborted", "interrupted"])
def test_steered_input_comes_back_to_the_front(reason):
    """A turn that was cut off gives back what it did not take, marked, before what was queued for other turns."""
    queued = [MessageQueued(m.id, m.text, m.source, wake=m.wake) for m in (U, N, S)]
    log = log_of(*OPEN, *queued, TurnEnded(1, reason))
    assert ((BACK, U, N), (BACK, U, N)) == (log[QUEUE], log[HISTORY].queue)


@pytest.mark.parametrize("reason", ["completed", "blocked"])
def test_a_turn_that_ends_by_itself_gives_nothing_back(reason):
    """The queue stays as it is, and is the same object."""
    log = log_of(*OPEN, MessageQueued("u", "x"), MessageQueued("s", "x", "steer"))
    queue = log[QUEUE]
    log.append(TurnEnded(1, reason))
    assert queue is log[QUEUE]


def test_what_came_back_is_offered_with_the_next_thing_the_user_says():
    """It starts a turn of the user, joins none that runs or starts by itself, and is left over from none."""
    queue = (BACK, U, N)
    assert ("user", None) == (
        next_start((BACK,), parked=False, plan_mode=True),
        next_start((BACK,), parked=True, plan_mode=False),
    )
    assert ((BACK, U, N), (N,), (N,)) == (
        first_claim(queue, "user"),
        first_claim(queue, "automatic"),
        later_claim(queue),
    )
    assert (False, (), (S,)) == (goes_on((BACK, N)), left_over(queue), left_over((S, N)))


def test_what_came_back_enters_history_once():
    """Claimed by a later turn it reads as it was written, with its source."""
    log = log_of(*OPEN, MessageQueued("s", "x", "steer"), TurnEnded(1, "aborted"))
    log.append(TurnStarted(2), MessagesClaimed(("s",)))
    assert ([User("x", "steer")], ()) == (list(log[HISTORY].messages), log[QUEUE])


@given(st.lists(st.sampled_from(["submit", "steer", "either", "inject", "open", "cut", "end", "claim"]), max_size=30))
def test_every_accepted_message_is_queued_or_was_claimed(acts):
    """Whatever the order of verbs, turns and claims, no message is lost and none is there twice."""
    log = log_of()
    accepted: list[str] = []
    claimed: list[str] = []
    turn, running = 0, False
    for n, act in enumerate(acts):
        id_ = f"m{n}"
        made: dict[str, Verbs] = {
            "submit": Submit("x", id_),
            "steer": Steer("x", id_),
            "either": SubmitOrSteer("x", id_),
            "inject": Inject("x", id_),
        }
        if act in made:
            events, answer = verbs.decide(log, made[act], idle=not running, joins=running)
            log.append(*events) if events else None
            accepted += [] if isinstance(answer, Refused) else [id_]
            assert any(isinstance(e, MessageQueued) for e in events) is not isinstance(answer, Refused)
        elif act == "open" and not running:
            turn, running = turn + 1, True
            log.append(TurnStarted(turn))
        elif act == "claim" and running:
            ids = tuple(m.id for m in first_claim(log[QUEUE], "user"))
            claimed += ids
            log.append(MessagesClaimed(ids))
        elif act in ("cut", "end") and running:
            running = False
            log.append(TurnEnded(turn, "aborted" if act == "cut" else "completed"))
    assert sorted(accepted) == sorted([*claimed, *(m.id for m in log[QUEUE])])
    assert log[PARKED] is False
