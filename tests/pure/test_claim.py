"""Which queued input starts a turn, and which enters it: the tables, and what holds for every queue."""

from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.claim import Owner, first_claim, goes_on, later_claim, next_start, owner_of, room_for
from callboard.actors.events import Message, StartKind

USER, OLDER = Message("u", "x"), Message("v", "x")
STEER = Message("s", "x", "steer")
ROUND, REMINDER = Message("g", "x", "goal"), Message("r", "x", "schedule")
MAIL, TRIGGER = Message("m", "x", "agent:/root/a", wake=False), Message("t", "x", "agent:/root/b")
QUIET = Message("q", "x", "notice", wake=False)

OWNERS: tuple[tuple[str, Owner], ...] = (
    ("user", "user"),
    ("schedule", "automatic"),
    ("goal", "automatic"),
    ("steer", "joins"),
    ("agent:/root/a", "joins"),
    ("notice", "joins"),
    ("marker", "joins"),
    ("shell", "joins"),
    ("anything", "joins"),
)


@pytest.mark.parametrize(("source", "owner"), OWNERS)
def test_owner_of(source, owner):
    """The source of a message decides what it starts."""
    assert owner == owner_of(Message("a", "x", source))


# The queue, and how the next turn starts: free; parked; in Plan mode; parked in Plan mode.
STARTS: tuple[tuple[str, tuple[Message, ...], tuple[StartKind | None, ...]], ...] = (
    ("nothing", (), (None, None, None, None)),
    ("a user's message", (USER,), ("user", None, "user", None)),
    ("steered input that no step took", (STEER,), ("user", None, "user", None)),
    ("a goal round", (ROUND,), ("automatic", "automatic", None, None)),
    ("a reminder", (REMINDER,), ("automatic", "automatic", None, None)),
    ("mail that wakes", (TRIGGER,), ("automatic", "automatic", None, None)),
    ("mail that wakes nobody", (MAIL,), (None, None, None, None)),
    ("a quiet note", (QUIET,), (None, None, None, None)),
    ("a user's message behind others", (ROUND, TRIGGER, USER), ("user", "automatic", "user", None)),
    ("a user's message before others", (USER, ROUND), ("user", "automatic", "user", None)),
    ("steered input beside mail", (STEER, TRIGGER), ("user", "automatic", "user", None)),
    ("quiet mail beside a user's message", (MAIL, USER), ("user", None, "user", None)),
)


@pytest.mark.parametrize(("queue", "starts"), [row[1:] for row in STARTS], ids=[row[0] for row in STARTS])
def test_next_start(queue, starts):
    """The user comes first unless parked, and nothing automatic starts in Plan mode."""
    modes = product((False, True), (False, True))
    assert starts == tuple(next_start(queue, parked=parked, plan_mode=plan_mode) for plan_mode, parked in modes)


CLAIMS: tuple[tuple[str, tuple[Message, ...], StartKind, tuple[Message, ...]], ...] = (
    ("nothing", (), "user", ()),
    ("the oldest of the user's", (OLDER, USER), "user", (OLDER,)),
    ("it and what joins, in queue order", (MAIL, ROUND, USER, STEER, OLDER), "user", (MAIL, USER, STEER)),
    ("what joins alone", (STEER, MAIL), "user", (STEER, MAIL)),
    ("no automatic message for the user", (ROUND, REMINDER), "user", ()),
    ("the oldest automatic message", (USER, REMINDER, ROUND), "automatic", (REMINDER,)),
    ("it and mail", (TRIGGER, ROUND), "automatic", (TRIGGER, ROUND)),
    ("no message of the user for an automatic start", (USER, TRIGGER), "automatic", (TRIGGER,)),
    ("what joins, after a crash", (USER, ROUND, STEER), "recovery", (STEER,)),
)


@pytest.mark.parametrize(("queue", "start", "claim"), [row[1:] for row in CLAIMS], ids=[row[0] for row in CLAIMS])
def test_first_claim(queue, start, claim):
    """The first step takes what joins and the one message that started the turn."""
    assert claim == first_claim(queue, start)


LATER = (
    ((), (), False),
    ((USER, ROUND, REMINDER), (), False),
    ((USER, STEER, MAIL, ROUND, TRIGGER, QUIET), (STEER, MAIL, TRIGGER, QUIET), True),
    ((MAIL, QUIET), (MAIL, QUIET), False),
    ((STEER,), (STEER,), True),
)


@pytest.mark.parametrize(("queue", "claim", "more"), LATER)
def test_later_steps(queue, claim, more):
    """Later steps take what joins, and only what wakes keeps a turn going after its last word."""
    assert (claim, more) == (later_claim(queue), goes_on(queue))


SOURCES = st.sampled_from([source for source, _ in OWNERS])
QUEUES = st.lists(st.tuples(SOURCES, st.booleans()), max_size=8).map(
    lambda rows: tuple(Message(f"m{at}", "x", source, wake=wake) for at, (source, wake) in enumerate(rows))
)


@given(QUEUES, st.sampled_from(get_args(StartKind)))
def test_a_claim_is_part_of_the_queue_in_its_order(queue, start):
    """A claim invents nothing, keeps the order, and takes at most one message that does not join."""
    for claim in (first_claim(queue, start), later_claim(queue)):
        assert tuple(message for message in queue if message in claim) == claim
        assert sum(owner_of(message) != "joins" for message in claim) <= 1


@given(QUEUES, st.booleans(), st.booleans())
def test_a_turn_that_starts_has_something_to_claim(queue, parked, plan_mode):
    """No start is without input for its first step, so no turn starts again and again over the same queue."""
    start = next_start(queue, parked=parked, plan_mode=plan_mode)
    assert start is None or first_claim(queue, start)


NEWS = Message("n", "news", "agent:/root/a", wake=False)
MAIL = Message("m", "mail", "agent:/root/a")
SAID = Message("u", "said", "user")


@pytest.mark.parametrize(
    ("queue", "waiting", "quiet", "plan_mode", "room"),
    [
        ((), 0, False, False, True),
        ((), 2, False, False, True),
        ((), 2, True, False, False),  # the last place is for what starts something
        ((), 3, False, False, False),
        ((NEWS, NEWS), 0, True, False, False),
        ((NEWS, NEWS), 0, False, False, True),
        ((NEWS,) * 9, 0, False, False, True),  # or nobody could ever have them read
        ((NEWS,) * 9, 1, False, False, False),
        ((NEWS,) * 9, 0, True, False, False),
        ((NEWS, NEWS, MAIL), 0, False, False, False),  # a turn starts that reads them all
        ((NEWS, NEWS, MAIL), 0, False, True, True),  # none starts by that in Plan mode
        ((NEWS, NEWS, SAID), 0, False, False, False),
        ((NEWS, NEWS, SAID), 0, False, True, False),
        ((NEWS, NEWS, Message("t", "", "user", task="compact")), 0, False, False, False),
    ],
)
def test_room_for_input(queue, waiting, quiet, plan_mode, room):
    """Input finds room up to the bound; beyond it only what starts a turn where nothing else would."""
    assert room is room_for(queue, waiting, quiet=quiet, mail=False, most=3, plan_mode=plan_mode)
    by_mail = room and not (plan_mode and len(queue) >= 3)  # mail starts nothing in Plan mode
    assert by_mail is room_for(queue, waiting, quiet=quiet, mail=True, most=3, plan_mode=plan_mode)
