"""Plans in blocks of their own: what is a tag, what is shown when, and that no split over pieces changes anything."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.facts import PlanProposed
from callboard.plugins.proposed import Proposals, read_blocks

OPEN, CLOSE = "<proposed_plan>", "</proposed_plan>"

# A text, what is said beside the blocks, and the plan of the last one.
TEXTS: tuple[tuple[str, str, str | None], ...] = (
    ("", "", None),
    ("hello", "hello", None),
    (f"Intro\n{OPEN}\n- Step 1\n- Step 2\n{CLOSE}\nOutro", "Intro\nOutro", "- Step 1\n- Step 2\n"),
    (f"{OPEN}\nx\n{CLOSE}", "", "x\n"),
    (f"\n \n{OPEN}\nx\n{CLOSE}\n\n", "", "x\n"),
    (f"\t {OPEN} \r\nx\r\n {CLOSE}\t\r\n", "", "x\r\n"),
    (f"{OPEN}\nx\n", "", "x\n"),
    (f"{OPEN}\nx", "", "x"),
    (f"a\n{OPEN}", "a\n", ""),
    (f"{OPEN}\n{CLOSE}", "", ""),
    (f"{OPEN} x\ny", f"{OPEN} x\ny", None),
    (f"x {OPEN}\ny\n{CLOSE}\n", f"x {OPEN}\ny\n{CLOSE}\n", None),
    (f"{OPEN}\nx {CLOSE}\n{CLOSE} y\n{CLOSE}", "", f"x {CLOSE}\n{CLOSE} y\n"),
    (f"{OPEN}\n{OPEN}\nx\n{CLOSE}\nend", "end", f"{OPEN}\nx\n"),
    (f"{CLOSE}\nx", f"{CLOSE}\nx", None),
    (f"```\n{OPEN}\nx\n{CLOSE}\n```", "```\n```", "x\n"),
    (f"{OPEN}\na\n{CLOSE}\nmid\n{OPEN}\nb\n{CLOSE}\n", "mid\n", "b\n"),
    (f"{OPEN}\na\n{CLOSE}\n{OPEN}\n{CLOSE}\n", "", ""),
    (f"{OPEN}\n{CLOSE}\n{OPEN}\nb", "", "b"),
    (f"{OPEN.upper()}\nx", f"{OPEN.upper()}\nx", None),
    ("<proposed_plan\n>", "<proposed_plan\n>", None),
)


def shown(pieces: list[str], turn: int = 1) -> list[tuple[str, str]]:
    """All that a filter shows of these pieces, neighbours of one part together."""
    one, parts = Proposals(turn), list[tuple[str, str]]()
    for piece in pieces:
        parts.extend(one.feed(piece))
    parts.extend(one.end())
    together: list[tuple[str, str]] = []
    for part, text in parts:
        if together and together[-1][0] == part:
            together[-1] = (part, together[-1][1] + text)
        else:
            together.append((part, text))
    return together


def of(part: str, parts: list[tuple[str, str]]) -> str:
    """All of one part."""
    return "".join(text for which, text in parts if which == part)


@pytest.mark.parametrize(("text", "said", "plan"), TEXTS)
def test_blocks(text, said, plan):
    """A tag is the whole line, blanks aside; the last block is the plan, and only blanks outside are nothing said."""
    assert (said, plan) == read_blocks(text)


@pytest.mark.parametrize(("text", "said", "plan"), TEXTS)
def test_a_plan_is_an_event_when_it_says_something(text, said, plan):
    """The event has the turn's id; a cut text says the same and brings none."""
    events = (PlanProposed("7-plan", plan),) if plan and plan.strip() else ()
    assert (said, events) == Proposals(7).read(text)
    assert said == Proposals(7).cut(text)


LINES = st.sampled_from(
    [
        OPEN,
        CLOSE,
        f" {OPEN}\t",
        f"{CLOSE}\r",
        f"{OPEN} x",
        f"x{CLOSE}",
        "- a step",
        "",
        "  ",
        "<prop",
        "</",
        "\u2028",
        "é",
    ]
)
TEXT = st.lists(st.one_of(LINES, st.text(max_size=8))).map("\n".join)


@given(TEXT, st.data())
def test_no_split_changes_anything(text, data):
    """Whatever pieces a text comes in, what is shown is the same, and it is what the whole text says."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert shown([text]) == shown(pieces) == shown(list(text))
    assert read_blocks(text)[0] == of("text", shown(pieces))


@given(TEXT)
def test_blocks_follow_the_lines(text):
    """A reference that looks at whole lines finds the same text and the same plan."""
    said, plans, within = "", [], False
    for line in re.findall(r"[^\n]*\n|[^\n]+\Z", text):
        if line.strip() == (CLOSE if within else OPEN):
            within = not within
            plans += [""] if within else []
        elif within:
            plans[-1] += line
        else:
            said += line
    assert (said if said.strip() else "", plans[-1] if plans else None) == read_blocks(text)


def test_only_what_may_become_a_tag_waits():
    """Text streams at once, a line that begins like a tag waits for its end, and blanks wait for the first word."""
    one = Proposals(1)
    fed = [
        one.feed(piece)
        for piece in ("\n  ", "\nHi", " you\n", "<prop", "osal", "\n", f"{OPEN}", " ", "\nx", f"\n{CLOSE}")
    ]
    expected = [
        (),
        (("text", "\n  \nHi"),),
        (("text", " you"), ("text", "\n")),
        (),
        (("text", "<proposal"),),
        (("text", "\n"),),
        (),
        (),
        (("plan", "x"),),
        (("plan", "\n"),),
    ]
    assert expected == fed
    assert () == one.end()


def test_a_tag_that_nothing_follows_is_held_to_the_end():
    """A beginning of a tag that never becomes one is shown at the end, and nothing twice."""
    one = Proposals(1)
    assert () == one.feed("<proposed_pl")
    assert (("text", "<proposed_pl"),) == one.end()
    assert () == one.end()


def test_long_blanks_in_small_pieces_cost_little():
    """Each piece is looked at once: a line of 200,000 blanks, one at a time, is no work to speak of."""
    one = Proposals(1)
    assert all(one.feed(" ") == () for _ in range(200_000))
    assert (("text", " " * 200_000 + "x"),) == one.feed("x")
    assert [("plan", " " * 200_000)] == shown([OPEN, "\n", *(" " for _ in range(200_000))])
