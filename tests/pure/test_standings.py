"""How agents are named in calls, what the tools for them refuse by themselves, and how many standings fit."""

import msgspec
import pytest

from callboard.actors.errors import ToolError
from callboard.actors.lent import Agent
from callboard.plugins.orders import MESSAGE_MAX_CHARS, check_below, text_of, told_roles, turns_of
from callboard.plugins.standings import SHOWN_MAX_BYTES, Standing, path_of, shown


@pytest.mark.parametrize(
    ("here", "target", "path"),
    [
        ("/root", "/root", "/root"),
        ("/root", "a", "/root/a"),
        ("/root/a", "b/c", "/root/a/b/c"),
        ("/root/a", "/root/b", "/root/b"),
        ("/root", "0_9", "/root/0_9"),
    ],
)
def test_targets(here, target, path):
    """A target is a path from the root, or one from the agent that names it."""
    assert path == path_of(here, target)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("", "names no agent"),
        ("/", "names no agent"),
        ("a/", "names no agent"),
        ("//a", "names no agent"),
        ("/roots", "names no agent"),
        ("/root/", "names no agent"),
        ("A", "names no agent"),
        ("a b", "names no agent"),
        ("a\n", "names no agent"),
        ("\x00\x1b[31m", "names no agent"),
        ("\ud800", "names no agent"),
        ("x" * 65, "names no agent"),
        ("x/" * 500_000, "names no agent"),
        ("root", "are reserved"),
        (".", "are reserved"),
        ("..", "are reserved"),
        ("a/../b", "are reserved"),
        ("/root/..", "are reserved"),
        ("/root/root", "are reserved"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_wrong_targets(target, words):
    """What is no path is told apart from what is reserved, and is quoted in one line that any log can keep."""
    with pytest.raises(ToolError, match=words) as caught:
        path_of("/root/a", target)
    text = str(caught.value)
    assert (True, True) == (text.isprintable(), len(text) < 300)


@pytest.mark.parametrize(
    ("here", "path", "words"),
    [
        ("/root", "/root", "/root is not an agent that was started"),
        ("/root/a", "/root", "/root is not an agent that was started"),
        ("/root/a", "/root/a", "an agent cannot be the target of its own stop"),
        ("/root/a", "/root/b", "/root/b is not below you"),
        ("/root/a", "/root/ab", "/root/ab is not below you"),
    ],
)
def test_who_is_not_below(here, path, words):
    """Nobody stops the root, itself, or an agent that is not below it."""
    with pytest.raises(ToolError, match=words):
        check_below("stop", here, path)


@pytest.mark.parametrize(
    ("given", "turns"),
    [(None, 0), ("none", 0), ("all", "all"), (1, 1), ("3", 3), ("0007", 7), (1_000_000, 1_000_000)],
    ids=repr,
)
def test_turns(given, turns):
    """How many turns are copied may be a word, a number, or a number as text."""
    assert turns == turns_of(given)


@pytest.mark.parametrize(
    "given",
    ["", "some", "-1", 0, -5, 1_000_001, "1" * 5000, "\N{ARABIC-INDIC DIGIT THREE}", "1.5", "\x00"],
    ids=lambda v: repr(v)[:20],
)
def test_wrong_turns(given):
    """Anything else is refused in one short line."""
    with pytest.raises(
        ToolError, match="fork_turns must be none, all or a number of turns from 1 to 1,000,000"
    ) as caught:
        turns_of(given)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "output is empty"),
        (" \n", "output is empty"),
        ("x" * (MESSAGE_MAX_CHARS + 1), "output has 100,001 characters"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_wrong_texts(text, words):
    """A message that says nothing, or too much, is refused under the name of its field."""
    with pytest.raises(ToolError, match=words):
        text_of("output", text)


def test_told_roles():
    """Roles are told by name and first line, at most twenty of them."""
    assert "" == told_roles({})
    assert "\nRoles: scout (Look around.), writer." == told_roles(
        {"writer": "", "scout": "Look around.\nWrite nothing."}
    )
    assert told_roles({f"r{n:02}": "" for n in range(21)}).endswith(", r19, ....")


def agents(count, **fields):
    """So many agents."""
    return [Agent(f"p.a{n}", f"/root/a{n}", "completed", **fields) for n in range(count)]


def test_all_is_shown_that_fits():
    """A few standings are whole; texts or tasks, as asked for, and who asks."""
    agent = Agent("p.a", "/root/a", "failed", "why", "dig", "scout", 2, closed=True, detached=True)
    texts, tasks = shown([agent], "/root", tasks=False), shown([agent], "/root/a", tasks=True)
    assert ([Standing("/root/a", "failed", "why", role="scout", closed=True)], 0) == texts
    assert ([Standing("/root/a", "failed", "", "dig", "scout", closed=True, detached=True, you=True)], 0) == tasks


@pytest.mark.parametrize("text", ["x" * 20_000, "\x00" * 20_000, "\N{SNOWMAN}" * 20_000, ""], ids=lambda v: repr(v)[:8])
@pytest.mark.parametrize("count", [1, 12, 300, 2000])
def test_standings_never_burst(count, text):
    """However many agents, and whatever they said, the answer is not cut; who is left out is counted."""
    standings, left_out = shown(agents(count, text=text), "/root", tasks=False)
    assert len(msgspec.json.encode(standings)) <= SHOWN_MAX_BYTES
    assert count == len(standings) + left_out
    assert left_out == 0 or count == 2000


def test_who_works_is_left_out_last():
    """Of too many agents those that work are shown, in their order."""
    many = [*agents(3000), Agent("p.w", "/root/w", "running"), Agent("p.v", "/root/v", "waiting")]
    standings, left_out = shown(many, "/root", tasks=False)
    assert left_out > 0
    assert ["/root/w", "/root/v"] == [one.path for one in standings[-2:]]
