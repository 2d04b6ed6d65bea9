"""board: the exact lines of plans and todo lists, at ordinary and at impossible widths, with and without colours."""

import io
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from callboard.actors.facts import PlanStep, Todo
from callboard.plugins.plan import Plan
from callboard.runtime.doors.board import plan_lines, todo_lines, visible

PLAN = Plan(
    "The parser comes first, everything else needs it.",
    (
        PlanStep("Read the grammar", "completed"),
        PlanStep("Write the parser and its tests", "in_progress"),
        PlanStep("Measure", "pending"),
    ),
)
TODOS = (Todo("read", "completed"), Todo("write", "in_progress"), Todo("check", "pending"))


def plain(lines) -> list[str]:
    return [str(line) for line in lines]


def steps(*texts: str, status="pending") -> Plan:
    return Plan(None, tuple(PlanStep(text, status) for text in texts))


def drawn(lines) -> str:
    """What a terminal with colours gets."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=200, legacy_windows=False)
    for line in lines:
        console.print(line)
    return out.getvalue()


def test_a_plan_in_80_cells():
    """An ordinary terminal shows heading, explanation and one line a step, with the running one named."""
    assert plain(plan_lines(PLAN, 80, colour=False)) == [
        "Plan (1/3 done)",
        "The parser comes first, everything else needs it.",
        "✔ Read the grammar",
        "□ Write the parser and its tests (in progress)",
        "□ Measure",
    ]


def test_a_plan_in_20_cells():
    """A narrow one wraps at four cells less, with steps hanging behind their marks."""
    assert plain(plan_lines(PLAN, 20, colour=False)) == [
        "Plan (1/3 done)",
        "The parser comes",
        "first,",
        "everything else",
        "needs it.",
        "✔ Read the",
        "  grammar",
        "□ Write the",
        "  parser and its",
        "  tests (in",
        "  progress)",
        "□ Measure",
    ]


def test_a_plan_in_1_cell():
    """In no space at all every line still holds one character."""
    assert plain(plan_lines(Plan("hi", (PlanStep("a bc", "completed"),)), 1, colour=False)) == [
        *("P", "l", "a", "n", "(", "1", "/", "1", "d", "o", "n", "e", ")"),
        *("h", "i"),
        *("✔ a", "  b", "  c"),
    ]


@pytest.mark.parametrize("width", [-5, 0, 1])
def test_impossible_widths_are_width_one(width):
    """Zero and negative widths draw what one cell draws."""
    assert plain(plan_lines(PLAN, width, colour=False)) == plain(plan_lines(PLAN, 1, colour=False))


def test_colours_say_what_marks_cannot():
    """With colours done is struck and dim, running bold cyan, pending dim, and nothing is said in words."""
    lines = plan_lines(PLAN, 80, colour=True)
    assert plain(lines)[3] == "□ Write the parser and its tests"
    assert [[(line.plain[s.start : s.end], str(s.style)) for s in line.spans] for line in lines[2:]] == [
        [("✔ ", "dim"), ("Read the grammar", "dim strike")],
        [("□ ", "bold cyan"), ("Write the parser and its tests", "bold cyan")],
        [("□ ", "dim"), ("Measure", "dim")],
    ]
    assert [str(line.style) for line in lines[:2]] == ["bold", "dim italic"]


def test_a_terminal_gets_these_bytes():
    """The escapes a terminal sees are the styles' own and nothing else."""
    assert drawn(plan_lines(PLAN, 80, colour=True)[2:]) == (
        "\x1b[2m✔ \x1b[0m\x1b[2;9mRead the grammar\x1b[0m\n"
        "\x1b[1;36m□ \x1b[0m\x1b[1;36mWrite the parser and its tests\x1b[0m\n"
        "\x1b[2m□ \x1b[0m\x1b[2mMeasure\x1b[0m\n"
    )


def test_the_indent_of_a_wrapped_step_is_not_struck():
    """A line through the text does not run through the space before it."""
    lines = plan_lines(steps("Read the grammar", status="completed"), 16, colour=True)
    assert [[(line.plain[s.start : s.end], str(s.style)) for s in line.spans] for line in lines[1:]] == [
        [("✔ ", "dim"), ("Read the", "dim strike")],
        [("  ", "dim"), ("grammar", "dim strike")],
    ]


def test_without_colours_there_are_no_styles():
    """Plain lines print the same on a console that could colour them."""
    assert drawn(plan_lines(PLAN, 80, colour=False)) == "\n".join(plain(plan_lines(PLAN, 80, colour=False))) + "\n"


def test_no_plan_and_an_empty_plan_differ():
    """Without a plan nothing is drawn, and an empty one says so."""
    assert plan_lines(None, 80, colour=False) == []
    assert plain(plan_lines(Plan(None, ()), 80, colour=False)) == ["Plan (0/0 done)", "(no steps provided)"]
    assert plain(plan_lines(Plan(None, ()), 14, colour=False)) == ["Plan (0/0", "done)", "(no steps", "provided)"]


def test_an_empty_step_keeps_its_mark():
    """A step without text is a line all the same."""
    assert plain(plan_lines(steps("", " "), 80, colour=False)) == ["Plan (0/2 done)", "□ ", "□ "]


def test_an_explanation_keeps_its_lines():
    """Line breaks of an explanation stay, empty lines go; those of a step are spaces."""
    plan = Plan("one\r\n\n  two\n", (PlanStep("three\n\tfour", "pending"),))
    assert plain(plan_lines(plan, 80, colour=False)) == ["Plan (0/1 done)", "one", "two", "□ three four"]


def test_wide_characters_take_two_cells():
    """CJK text and emoji are wrapped by the cells they fill."""
    assert plain(plan_lines(steps("設計を読む。テスト"), 14, colour=False)) == [
        "Plan (0/1",
        "done)",
        "□ 設計を読",
        "  む。テス",
        "  ト",
    ]
    assert plain(plan_lines(steps("ship 🚀🚀🚀"), 12, colour=False))[-2:] == ["□ ship", "  🚀🚀🚀"]


def test_a_wide_character_in_one_cell_is_drawn():
    """A character that cannot fit stands alone on its line, and none is lost."""
    assert plain(plan_lines(steps("漢字a"), 1, colour=False))[-3:] == ["□ 漢", "  字", "  a"]


def test_joined_characters_stay_together():
    """A break never separates an accent or a joined emoji from what it belongs to."""
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert plain(plan_lines(steps(f"e\u0301e\u0301{family}"), 1, colour=False))[-3:] == [
        "□ e\u0301",
        "  e\u0301",
        f"  {family}",
    ]


def test_long_words_are_broken_where_they_stand():
    """A word wider than a line goes on behind the words before it, and fills every line."""
    assert plain(plan_lines(steps("see abcdefghijklmnopqrs now"), 16, colour=False)) == [
        "Plan (0/1 done)",
        "□ see abcdef",
        "  ghijklmnop",
        "  qrs now",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("back\x08space\x7f\x00", r"back\x08space\x7f\x00"),
        ("\u202eevil", r"\u202eevil"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
        ("half \ud800", r"half \ud800"),
        ("[bold]not markup[/bold] :smile:", "[bold]not markup[/bold] :smile:"),
        ("café 漢字 🚀 👩\u200d🚀", "café 漢字 🚀 👩\u200d🚀"),
    ],
    ids=ascii,
)
def test_what_a_terminal_would_obey_is_shown(text, expected):
    """Escapes, control characters and direction overrides are written out; other text and markup stay as they are."""
    assert visible(text) == expected
    (line,) = plan_lines(steps(text), 80, colour=True)[1:]
    assert line.plain == "□ " + expected


def test_a_hostile_explanation_is_harmless_too():
    """What holds for steps holds for the explanation and for todos."""
    assert plain(plan_lines(Plan("a\x1b[2Jb", ()), 80, colour=False))[1] == r"a\x1b[2Jb"
    assert plain(todo_lines((Todo("a\x1b[2Jb", "pending"),), 80, colour=False))[1] == r"□ a\x1b[2Jb"


def test_a_todo_list():
    """A todo list looks like a plan under its own heading."""
    assert plain(todo_lines(TODOS, 80, colour=False)) == [
        "Todo (1/3 done)",
        "✔ read",
        "□ write (in progress)",
        "□ check",
    ]
    assert plain(todo_lines(TODOS, 80, colour=True))[2] == "□ write"


def test_no_list_and_an_empty_list_differ():
    """Without a list nothing is drawn, and an empty one says so."""
    assert todo_lines(None, 80, colour=False) == []
    assert plain(todo_lines((), 80, colour=False)) == ["Todo (0/0 done)", "(no todos)"]


def test_ten_thousand_steps_are_ten_thousand_lines():
    """A huge plan is drawn whole."""
    lines = plan_lines(steps(*(f"step {n}" for n in range(10_000))), 80, colour=True)
    assert (len(lines), str(lines[0]), str(lines[-1])) == (10_001, "Plan (0/10000 done)", "□ step 9999")


def test_one_enormous_text_is_cut():
    """A text of megabytes is cut at its limit and says so, so that drawing stays short."""
    lines = plain(plan_lines(Plan("x " * 1_000_000, (PlanStep("漢" * 5_000_000, "pending"),)), 104, colour=False))
    said = "".join(lines[1:]).replace(" ", "").replace("□", "")
    assert said == "x" * 2_000 + "…" + "漢" * 4_000 + "…"


@given(
    st.lists(st.text(max_size=30), max_size=5),
    st.sampled_from(["pending", "in_progress", "completed"]),
    st.integers(7, 90),
)
def test_no_line_is_too_wide_and_nothing_is_lost(texts, status, width):
    """Every line fits in its cells, holds nothing a terminal obeys, and all visible text is there in order."""
    lines = plain(plan_lines(steps(*texts, status=status), width, colour=False))
    for line in lines:
        assert cell_len(line) <= width
        assert not [char for char in line if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")]
    assert all(cell_len(line) <= max(width - 4, 4) for line in lines if line[:2] in ("✔ ", "□ ", "  "))
    said = "".join("".join(line[2:].split()) for line in lines if line[:2] in ("✔ ", "□ ", "  "))
    tail = "(inprogress)" if status == "in_progress" else ""
    assert said == "".join("".join(visible(word) for word in text.split()) + tail for text in texts)


MIXED = (
    "Read the grammar",
    "設計を読む。テスト",
    "a\x1b[2Jb \u202eevil",
    "see abcdefghijklmnopqrstuvwxyz now",
    "ship 🚀🚀🚀 e\u0301",
)


@pytest.mark.parametrize("width", range(1, 121))
@pytest.mark.parametrize(("status", "mark"), [("completed", "✔ "), ("pending", "□ ")])
def test_steps_are_wrapped_at_every_width(width, status, mark):
    """At each width a step fills `width - 4` cells with its mark, hangs by two, breaks only where it must."""
    room = max(1, width - 4 - 2)  # of the text behind the mark, which has at least one cell
    for text in MIXED:
        lines = plain(plan_lines(steps(text, status=status), width, colour=False))
        head = "".join("".join(line.split()) for line in lines if line[:2] not in (mark, "  "))
        assert head == f"Plan({int(status == 'completed')}/1done)"
        body = [line for line in lines if line[:2] in (mark, "  ")]
        assert [mark, *["  "] * (len(body) - 1)] == [line[:2] for line in body]
        said = [line[2:] for line in body]
        assert all(cell_len(line) <= max(room, 2 if len(line) == 1 else room) for line in said)
        assert "".join("".join(line.split()) for line in said) == "".join(map(visible, text.split()))
        for line, after in pairwise(said):
            word = after.split()[0]
            assert word not in map(visible, text.split()) or cell_len(line) + 1 + cell_len(word) > room


@pytest.mark.parametrize("width", range(1, 121))
def test_the_explanation_is_wrapped_at_every_width(width):
    """The explanation keeps to `width - 4` cells, at least one, and an empty plan says so within the same room."""
    lines = plain(plan_lines(Plan("The parser comes first.", ()), width, colour=False))
    room = max(1, width - 4)
    said = "".join("".join(line.split()) for line in lines)
    assert said == "Plan(0/0done)Theparsercomesfirst.(nostepsprovided)"
    heading = next(n for n in range(1, len(lines) + 1) if "".join(lines[:n]).replace(" ", "") == "Plan(0/0done)")
    assert all(cell_len(line) <= width for line in lines[:heading])
    assert all(cell_len(line) <= room for line in lines[heading:])


@pytest.mark.parametrize("width", [1, 2, 5, 8, 13, 40, 80, 120])
def test_colours_change_no_line(width):
    """With and without colours the breaks are the same, but for the words that stand in for the colour."""
    for status in ("completed", "pending"):
        plan = steps(*MIXED, status=status)
        assert plain(plan_lines(plan, width, colour=False)) == plain(plan_lines(plan, width, colour=True))
