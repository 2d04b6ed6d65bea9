"""What a new agent is given of its parent's history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.events import Call, NoteAdded
from callboard.actors.forked import forked
from callboard.actors.model import Assistant, Developer, Result, User

CALLS = (Call("spawn_agent", {"task_name": "a"}, "c1"),)
FIRST = (User("hello"), Assistant("hi"))
SECOND = (
    Developer("a note"),
    User("look around"),
    Assistant("I look", (Call("ls", {}, "c0"),)),
    Result("c0", "ls", "files"),
    User("over there", "steer"),
    Assistant("found it"),
)
MAILED = (User("Mail from agent /root/x:\nnews", "agent:/root/x"), Assistant("thanks"))
REMINDED = (User("remember", "schedule"), Assistant("cut o", interrupted=True), User("<turn_aborted>", "marker"))
LAST = (User("split up"), Assistant("", CALLS), Result("c1", "spawn_agent", "{}"), Assistant("now", CALLS))
ALL = (*FIRST, *SECOND, *MAILED, *REMINDED, *LAST)

KEPT_LAST = (NoteAdded("split up", "user", "user"),)
KEPT_REMINDED = (NoteAdded("remember", "user", "schedule"), NoteAdded("<turn_aborted>", "user", "marker"))
KEPT_MAILED = (NoteAdded("thanks", "assistant"),)
KEPT_SECOND = (
    NoteAdded("look around", "user", "user"),
    NoteAdded("over there", "user", "steer"),
    NoteAdded("found it", "assistant"),
)
KEPT_FIRST = (NoteAdded("hello", "user", "user"), NoteAdded("hi", "assistant"), NoteAdded("a note", "developer"))


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (1, KEPT_LAST),
        (2, KEPT_REMINDED + KEPT_LAST),
        (3, KEPT_MAILED + KEPT_REMINDED + KEPT_LAST),
        (4, KEPT_SECOND + KEPT_MAILED + KEPT_REMINDED + KEPT_LAST),
        (5, KEPT_FIRST + KEPT_SECOND + KEPT_MAILED + KEPT_REMINDED + KEPT_LAST),
        (99, KEPT_FIRST + KEPT_SECOND + KEPT_MAILED + KEPT_REMINDED + KEPT_LAST),
        ("all", KEPT_FIRST + KEPT_SECOND + KEPT_MAILED + KEPT_REMINDED + KEPT_LAST),
    ],
)
def test_what_is_copied(turns, expected):
    """Input and final answers of the last turns; no calls, no results, nothing said beside them or cut, no mail."""
    assert expected == forked(ALL, turns)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((), ()),
        ((Assistant("alone"),), (NoteAdded("alone", "assistant"),)),
        ((User("a"), User("b")), (NoteAdded("b", "user", "user"),)),  # the turn of the first came to nothing
        (
            (User("said before", "notice"), User("go"), Assistant("done")),
            (
                NoteAdded("said before", "user", "notice"),
                NoteAdded("go", "user", "user"),
                NoteAdded("done", "assistant"),
            ),
        ),
        ((User("one"), Assistant(""), User("two")), (NoteAdded("two", "user", "user"),)),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_last_turn(messages, expected):
    """What joined the first step of a turn belongs to it; a message of the user begins one."""
    assert expected == forked(messages, 1)


SOURCES = st.sampled_from(["user", "steer", "plan", "schedule", "goal", "agent:/root/x", "notice", "marker", "shell"])
MESSAGES = st.lists(
    st.one_of(
        st.builds(User, st.text(max_size=5), SOURCES),
        st.builds(Developer, st.text(max_size=5)),
        st.builds(Assistant, st.text(max_size=5), st.sampled_from([(), CALLS]), st.booleans()),
        st.builds(Result, st.just("c1"), st.just("t"), st.text(max_size=5)),
    ),
    max_size=30,
)


@given(MESSAGES, st.integers(1, 40))
def test_fewer_turns_are_the_end_of_more(messages, turns):
    """What is copied of fewer turns is the end of what is copied of more, and nothing of it is mail or a call."""
    fewer, more, whole = forked(messages, turns), forked(messages, turns + 1), forked(messages, "all")
    assert more[len(more) - len(fewer) :] == fewer
    assert whole[len(whole) - len(more) :] == more
    assert not any(note.source.startswith("agent:") for note in whole)
    assert len(whole) <= len(messages)
