"""What each control verb writes and answers, over logs in every state that matters to it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors import verbs
from callboard.actors.books import BUILT_IN, PARKED, QUEUE, TURN
from callboard.actors.checks import ID_MAX_CHARS, check_schema, check_submit
from callboard.actors.children import CHILDREN, news_of
from callboard.actors.codec import Codec
from callboard.actors.errors import UsageError
from callboard.actors.eventlog import EventLog
from callboard.actors.events import (
    Event,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    QueueParked,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)
from callboard.actors.facts import ChildEnded, ChildSpawned
from callboard.actors.fold import Folds
from callboard.actors.memory import MemoryStore, check_id
from callboard.actors.messages import (
    Accepted,
    Answer,
    ChildDone,
    Interrupt,
    Refused,
    Submit,
    Verbs,
    Withdraw,
    Withdrawn,
)
from callboard.actors.verbs import CHILD_TEXT_MAX_CHARS

from .event_samples import log_of

PARK, RELEASE = QueueParked(parked=True), QueueParked(parked=False)


def submitted(
    log: EventLog, letter: Verbs, *, idle: bool = True, joins: bool = False
) -> tuple[tuple[Event, ...], Answer]:
    """What a verb decides, after the log has taken it."""
    decided = verbs.decide(log, letter, idle=idle, joins=joins)
    if decided[0]:
        log.append(*decided[0])
    return decided


# -- submit


# The log before, the message, whether the session is idle; and what is written and answered.
SUBMITS: dict[str, tuple[tuple[Event, ...], Submit, bool, tuple[Event, ...], Accepted]] = {
    "idle": ((), Submit("x"), True, (MessageQueued("auto:1", "x", seq=1, turn=1),), Accepted(1, 1)),
    "an id of its own": (
        (),
        Submit("x", "a"),
        True,
        (MessageQueued("a", "x", given=True, seq=1, turn=1),),
        Accepted(1, 1),
    ),
    "an empty id is none": ((), Submit("x", ""), True, (MessageQueued("auto:1", "x", seq=1, turn=1),), Accepted(1, 1)),
    "a turn runs": (
        (TurnStarted(1),),
        Submit("x"),
        False,
        (MessageQueued("auto:1", "x", seq=2),),
        Accepted(2),
    ),
    "behind the user's older message": (
        (PARK, MessageQueued("a", "x")),
        Submit("y"),
        True,
        (RELEASE, MessageQueued("auto:2", "y", seq=4)),
        Accepted(4),
    ),
    "before an automatic message": (
        (MessageQueued("goal:1", "x", "goal"),),
        Submit("y"),
        True,
        (MessageQueued("auto:2", "y", seq=2, turn=1),),
        Accepted(2, 1),
    ),
    "the user releases a parked queue": (
        (PARK,),
        Submit("y"),
        True,
        (RELEASE, MessageQueued("auto:1", "y", seq=3, turn=1)),
        Accepted(3, 1),
    ),
    "so does steering": (
        (PARK,),
        Submit("y", source="steer"),
        False,
        (RELEASE, MessageQueued("auto:1", "y", "steer", seq=3)),
        Accepted(3),
    ),
    "nobody else does": (
        (PARK,),
        Submit("y", "agent-1", source="agent:/root/a"),
        True,
        (MessageQueued("agent-1", "y", "agent:/root/a", given=True, seq=2),),
        Accepted(2),
    ),
    "a later turn": (
        (TurnStarted(1), TurnEnded(1, "completed")),
        Submit("x"),
        True,
        (MessageQueued("auto:1", "x", seq=3, turn=2),),
        Accepted(3, 2),
    ),
}


@pytest.mark.parametrize(("before", "letter", "idle", "events", "answer"), SUBMITS.values(), ids=SUBMITS)
def test_submit(before, letter, idle, events, answer):
    """The message is queued under its id, with the answer it got, and the user's releases what is parked."""
    assert (events, answer) == submitted(log_of(*before), letter, idle=idle)


@pytest.mark.parametrize(
    "fate", [(), (MessagesClaimed(("a",)),), (MessageWithdrawn("a"),)], ids=["queued", "claimed", "withdrawn"]
)
def test_a_repeated_id_writes_nothing_and_answers_the_same(fate):
    """Whatever became of the first message, its repeat gets the first answer again."""
    log = log_of()
    _, answer = submitted(log, Submit("x", "a"))
    log.append(*(TurnStarted(1),), *fate)
    assert ((), answer) == submitted(log, Submit("something else", "a"), idle=False)


def test_a_repeat_is_known_after_a_restart():
    """The answers to given ids are on the log, so a loaded session gives them again."""
    store = MemoryStore()
    store.open(lambda fn: fn())
    logs = [
        EventLog("s", store, Codec(), Folds(BUILT_IN), lambda: 5, lambda event, session, turn: None) for _ in range(2)
    ]
    logs[0].append(SessionOpened(root="s"))
    _, answer = submitted(logs[0], Submit("x", "a"))
    logs[1].load(store.read("s", -1, 10))
    assert ((), answer) == submitted(logs[1], Submit("x", "a"))


def test_two_messages_without_an_id_are_two():
    """The same text twice is no repeat."""
    log = log_of()
    for _ in range(2):
        submitted(log, Submit("x"), idle=False)
    assert ["auto:1", "auto:2"] == [message.id for message in log[QUEUE]]


@given(st.lists(st.sampled_from([None, "", "a", "b", "auto:1", "auto:2", "auto:3", "m1"]), max_size=12))
def test_ids_in_the_queue_never_repeat(ids):
    """Whatever ids senders choose, every message is taken once and under an id of its own."""
    log = log_of()
    answers: dict[str, Answer] = {}
    for id_ in ids:
        events, answer = submitted(log, Submit("x", id_), idle=False)
        if id_ and id_ in answers:
            assert ((), answers[id_]) == (events, answer)
        elif id_ and events and events[-1].id == id_:  # type: ignore[attr-defined]
            answers[id_] = answer
    queued = [message.id for message in log[QUEUE]]
    assert len(queued) == len(set(queued))


# -- withdraw and resume


def test_withdraw_takes_back_what_waits():
    """A queued message is withdrawn on the log."""
    log = log_of(MessageQueued("a", "x"))
    assert ((MessageWithdrawn("a"),), Withdrawn()) == verbs.withdraw(log, Withdraw("a"))


@pytest.mark.parametrize("before", [(), (MessageQueued("a", "x"), TurnStarted(1), MessagesClaimed(("a",)))])
def test_withdraw_of_what_does_not_wait_is_refused(before):
    """A claimed or unknown message cannot be taken back."""
    expected = ((), Refused("already_claimed", "message 'a' is not in the queue"))
    assert expected == verbs.withdraw(log_of(*before), Withdraw("a"))


def test_resume_releases_a_parked_queue_once():
    """Resuming writes only when something is parked, and answers with the number of its event."""
    log = log_of(PARK)
    events, answer = verbs.resume(log)
    assert ((RELEASE,), Accepted(2)) == (events, answer)
    assert 2 == log.append(*events)
    assert ((), Accepted(2), False) == (*verbs.resume(log), log[PARKED])


# -- children


def test_the_end_of_a_child_is_written_with_its_mail():
    """The end and the mail that tells the model are one write, and the mail's number is the answer."""
    log = log_of(ChildSpawned("k", "/root/a", "dig"))
    letter = ChildDone("k", "/root/a", "completed", "done", 1, wake=False)
    mail = MessageQueued("child:k:1", "Agent /root/a finished.\ndone", "agent:/root/a", given=True, seq=3, wake=False)
    events, answer = verbs.child_done(log, letter)
    assert ((ChildEnded("k", "completed", "done", 1), mail), Accepted(3)) == (events, answer)
    assert 3 == log.append(*events)


def test_the_end_of_a_child_is_told_once():
    """A repeat of an end, an older one, and one of a stranger write nothing; a later turn's end is news."""
    log = log_of(ChildSpawned("k", "/root/a", "dig"))
    ends = [("k", 2), ("k", 2), ("k", 1), ("stranger", 1), ("k", 3)]
    written = []
    for child, turn in ends:
        events, _ = verbs.child_done(log, ChildDone(child, "/root/a", "completed", "done", turn))
        written.append(len(events))
        if events:
            log.append(*events)
    assert [2, 0, 0, 0, 2] == written
    assert ["child:k:2", "child:k:3"] == [message.id for message in log[QUEUE]]
    assert 3 == log[CHILDREN][0].turn


NEWS = (
    ("completed", "done", "Agent /root/a finished.\ndone"),
    ("completed", "", "Agent /root/a finished. It gave no answer: ask it again, or do that part yourself."),
    ("failed", "no", "Agent /root/a failed.\nno"),
    ("interrupted", "", "Agent /root/a was interrupted."),
    ("stopped", "", "Agent /root/a ended."),
)


@pytest.mark.parametrize(("status", "text", "news"), NEWS)
def test_news_of_a_child(status, text, news):
    """The mail says which agent ended, how, and with what words."""
    assert news == news_of("/root/a", status, text)


def test_the_last_words_of_a_child_are_bounded():
    """Of a very long text only the beginning reaches the parent."""
    log = log_of(ChildSpawned("k", "/root/a", "dig"))
    (ended, mail), _ = verbs.child_done(log, ChildDone("k", "/root/a", "completed", "x" * 1_000_000, 1))
    assert isinstance(ended, ChildEnded)
    assert isinstance(mail, MessageQueued)
    assert (CHILD_TEXT_MAX_CHARS, True) == (len(ended.text), len(mail.text) < CHILD_TEXT_MAX_CHARS + 100)


# -- interrupt


INTERRUPTS: dict[str, tuple[tuple[Event, ...], int | None, Refused | None]] = {
    "any turn": ((TurnStarted(1),), None, None),
    "any turn, none runs": ((), None, None),
    "the running turn": ((TurnStarted(1),), 1, None),
    "another turn": (
        (TurnStarted(1),),
        2,
        Refused("turn_mismatch", "turn 2 is not running: turn 1 is running"),
    ),
    "a turn that ended": (
        (TurnStarted(1), TurnEnded(1, "completed")),
        1,
        Refused("turn_mismatch", "turn 1 is not running: no turn is running"),
    ),
}


@pytest.mark.parametrize(("before", "turn", "answer"), INTERRUPTS.values(), ids=INTERRUPTS)
def test_an_interrupt_that_names_a_turn_means_only_that_one(before, turn, answer):
    """An interrupt for a turn that does not run is refused, and one without a number is for whatever runs."""
    assert answer == verbs.wrong_turn(log_of(*before), Interrupt(turn))


# -- what the front door refuses


BAD: dict[str, tuple[Any, Any, str]] = {
    "no text": (5, None, "submit takes text, got int."),
    "bytes": (b"x", None, "submit takes text, got bytes."),
    "empty": ("", None, "submit got an empty text: write what the session should do."),
    "blank": (" \n\t", None, "submit got an empty text: write what the session should do."),
    "long": ("x" * 1_001, None, "submit got 1,001 characters: at most 1,000; put it into a file instead."),
    "an empty id": ("x", "", "a message id is 1 to 200 printable characters, got ''."),
    "a number as id": ("x", 5, "a message id is 1 to 200 printable characters, got 5."),
    "an id with a newline": ("x", "a\nb", "a message id is 1 to 200 printable characters, got 'a\\nb'."),
    "half a character": ("x", "\ud800", "a message id is 1 to 200 printable characters, got '\\ud800'."),
    "an id of the session's own": (
        "x",
        "auto:1",
        "message ids that begin with auto: are given by the session; choose another.",
    ),
    "an id of a child's mail": (
        "x",
        "child:k:1",
        "message ids that begin with child: are given by the session; choose another.",
    ),
}


@pytest.mark.parametrize(("text", "id_", "error"), BAD.values(), ids=BAD)
def test_a_bad_submit_is_the_callers_mistake(text, id_, error):
    """Each mistake is named, with what to write instead."""
    with pytest.raises(UsageError) as refused:
        check_submit(text, id_, 1_000)
    assert error == str(refused.value)


def test_a_long_id_is_refused_in_a_short_text():
    """The refusal of a huge id does not repeat all of it."""
    with pytest.raises(UsageError) as refused:
        check_submit("x", "y" * 100_000, 1_000)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(("text", "id_"), [("x" * 1_000, "y" * ID_MAX_CHARS), (" x ", None), ("x", "autobahn")])
def test_a_good_submit_passes(text, id_):
    """A text and an id within their limits are taken as they are."""
    assert text == check_submit(text, id_, 1_000)


def test_the_text_of_a_submit_is_made_fit_for_the_log():
    """Half a character in a text is replaced, so that it can be kept."""
    assert "a\ufffd" == check_submit("a\ud800", None, 1_000)


def test_turn_numbers_are_promised_rightly():
    """The turn that an answer names is the one that starts next."""
    log = log_of(TurnStarted(1), TurnEnded(1, "completed"))
    _, answer = submitted(log, Submit("x"))
    assert isinstance(answer, Accepted)
    assert (log[TURN].number + 1, answer.turn) == (answer.turn, answer.turn_id)


@pytest.mark.parametrize("schema", [{"a": 10**5_000}, {"a": object()}, [1]], ids=["number", "object", "list"])
def test_a_schema_that_cannot_be_kept_is_the_callers_error(schema):
    """Whatever it holds, and however its own text fails, the caller hears one clear sentence."""
    with pytest.raises(UsageError, match=r"schema takes a JSON schema as a dict, got (dict|list)"):
        check_schema(schema)


@pytest.mark.parametrize("session", [None, 5, b"x"])
def test_a_session_id_that_is_no_text_is_the_callers_error(session):
    """A store says what is wrong with an id before it looks for it."""
    with pytest.raises(UsageError, match="a session id is text, got "):
        check_id(session)
