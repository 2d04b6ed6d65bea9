"""What the command line shows and decides, without a loop: lines, drawings, Ctrl-C, trees of sessions, the script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from callboard.actors.envelope import Envelope
from callboard.actors.events import CallReceipt, ModelSaid, NoteAdded, SessionForked, TurnEnded, TurnStarted
from callboard.actors.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ChildSpawned,
    Goal,
    GoalChanged,
    PlanModeRequested,
    PlanModeSet,
    PlanStep,
    PlanUpdated,
    QuestionAnswered,
    QuestionAsked,
    Todo,
    TodosWritten,
)
from callboard.actors.model import Prompt, Reply, ToolSpec, User
from callboard.actors.notices import Delta
from callboard.actors.stage import Ran
from callboard.actors.store import Header
from callboard.actors.usershell import fragment
from callboard.runtime.doors.drawing import dashboard, foot, root_lines
from callboard.runtime.doors.logs import as_trees
from callboard.runtime.doors.picture import Picture
from callboard.runtime.doors.program import Presses
from callboard.runtime.doors.story import Story, receipt_lines
from callboard.runtime.doors.wording import call_text, paragraphs, seconds_text
from callboard.runtime.models.scripted import SCRIPTS


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("shell", {"command": "ls  -l\n| wc"}, "$ ls -l | wc"),
        ("shell", {"command": 7}, "shell 7"),
        ("update_plan", {"plan": [{"step": "a", "status": "completed"}, 3]}, "update_plan 1/2 done"),
        ("todo_write", {"todos": "no list"}, "todo_write"),
        ("spawn_agent", {"task_name": "words", "message": "count"}, "spawn_agent words"),
        ("wait_agent", {"targets": ["a", "b"]}, "wait_agent a, b"),
        ("write_file", {"path": "a.txt", "text": "long"}, "write_file a.txt"),
        ("weather", {"city": "Oslo", "day": 1}, 'weather {"city":"Oslo","day":1}'),
        ("weather", {}, "weather"),
        ("odd\x1b", "raw \x07 text", "odd\\x1b raw \\x07 text"),
    ],
)
def test_a_call_is_one_line_about_what_it_does(name, arguments, expected):
    """Known tools say what they are about, others show their arguments, and nothing a terminal would obey."""
    assert expected == call_text(name, arguments)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-1.0, "0.00 s"), (0.04, "0.04 s"), (3.14, "3.1 s"), (99.9, "99.9 s"), (125, "2 min 05 s")],
)
def test_seconds_are_as_long_as_people_need(seconds, expected):
    """Short times have two places, long ones minutes."""
    assert expected == seconds_text(seconds)


@given(st.text(max_size=300), st.integers(4, 40))
def test_a_paragraph_fits_and_obeys_nothing(text, width):
    """Every line of any text fits its width and holds nothing that moves a cursor."""
    for line in paragraphs(text, width, "", "› "):
        assert cell_len(line.plain) <= width
        assert all(ord(char) >= 32 and not 127 <= ord(char) < 160 for char in line.plain)


def test_receipts_of_a_cut_turn_are_a_table():
    """What did not complete is listed with its seconds, the rest counted."""
    receipts = (CallReceipt("a", "shell", "interrupted", 2.5), CallReceipt("b", "shell", "completed", 1.0))
    ended = TurnEnded(3, "aborted", "interrupted", receipts=receipts, abort_s=0.02)
    assert [
        "turn 3 aborted (interrupted); its books were closed 0.02 s after the request",
        "  interrupted        2.5 s  shell",
        "  and 1 completed",
    ] == [line.plain for line in receipt_lines(ended, 100)]


def test_a_story_names_subagents_and_leaves_out_what_nobody_reads():
    """The root's lines stand bare, those of a subagent behind its name; steps and claims are no story."""
    story = Story("r", lambda: 60, colour=False, starts=False)
    told = [
        story.take(Envelope("r", 0, 0, 1, ChildSpawned("r.a", "/root/a", "look"))),
        story.take(Envelope("r.a", 0, 0, 1, ModelSaid("found\nit"))),
        story.take(Envelope("r", 1, 0, 1, TurnStarted(1))),
    ]
    assert [["+ agent a"], ["a │ found", "a │ it"], []] == [[line.plain for line in lines] for lines in told]


def test_a_story_says_where_a_fork_begins():
    """Behind what a fork took over, one line names the session that it was."""
    (line,) = Story("r", lambda: 80, colour=False, starts=False).take(
        Envelope("r", 9, 0, None, SessionForked("s\x1b", 8))
    )
    assert "so far this is session s\\x1b; it goes its own way from here" == line.plain


def test_a_story_shows_what_a_command_printed_and_what_a_review_found():
    """People read the output of their own command, a long one in head and tail, and a review's last word."""
    story = Story("r", lambda: 60, colour=False, starts=False)
    output = "\n".join(f"{n}\x1b[2J" for n in range(100))
    ran = fragment("seq", Ran(code=0), 0.1, output)
    lines = [line.plain for line in story.take(Envelope("r", 0, 0, 1, NoteAdded(ran, "user", "shell")))]
    assert (41, "0\\x1b[2J", "… 60 lines …", "99\\x1b[2J") == (len(lines), lines[0], lines[20], lines[-1])
    word = NoteAdded("Two findings.", "assistant", "review")
    assert ["Two findings."] == [line.plain for line in story.take(Envelope("r", 1, 0, 1, word))]
    assert [] == story.take(Envelope("r", 2, 0, 1, NoteAdded("for the model", "developer", "hook")))


def busy():
    """A picture of a root with a plan, a list, and twelve subagents of which one prints."""
    picture = Picture("r")
    plan = PlanUpdated("why \x1b[0m", tuple(PlanStep(f"step {n} " + "x" * 90, "in_progress") for n in range(30)))
    events = [TurnStarted(1), plan, TodosWritten((Todo("one", "pending"),)), PlanModeSet(active=True)]
    events += [GoalChanged("create", Goal("g", 1, "every \x1b[2J thing " * 40, "blocked", 9)), ASKED]
    events += [ChildSpawned(f"r.a{n}", f"/root/a{n}", "task") for n in range(12)]
    for seq, event in enumerate(events):
        picture.take(Envelope("r", seq, 1_000, 1, event))
    picture.take(Envelope("r.a11", 0, 1_000, 1, TurnStarted(1)))
    picture.take(Delta("r", 1, "text", "saying\t\x1b[31m this\n" * 40))
    picture.take(Delta("r.a11", 1, "output", "printed\r\n"))
    return picture


GOAL = Goal("goal-1", 1, "ship it\x1b[2J", "active", 256)
ASKED = QuestionAsked("q", "c", 1, "ask", "", "Go?", ())
APPROVAL = ApprovalAsked("a", "c", 1, "shell", {}, "k")


def drawn(*events, width=60):
    """The lines of the foot and of the root's panel, for a turn in which these events came."""
    picture = Picture("r")
    for seq, event in enumerate((TurnStarted(1), *events)):
        picture.take(Envelope("r", seq, 1_000, 1, event))
    console = Console(width=width, color_system=None, force_terminal=True, legacy_windows=False)
    with console.capture() as capture:
        console.print(foot(picture, 2_000, width, 24, "|/"))
    board = [line.plain for line in root_lines(picture.root, width, colour=False)]
    return [line.rstrip() for line in capture.get().splitlines()], board


@pytest.mark.parametrize(
    ("events", "footer", "board"),
    [
        ([], ["| thinking  Ctrl-C interrupts"], []),
        ([PlanModeSet(active=True)], ["| thinking  plan mode  Ctrl-C interrupts"], ["plan mode"]),
        ([PlanModeRequested(active=True)], ["| thinking  plan mode soon  Ctrl-C interrupts"], ["plan mode soon"]),
        (
            [PlanModeSet(active=True), PlanModeRequested(active=False)],
            ["| thinking  plan mode, off soon  Ctrl-C interrupts"],
            ["plan mode, off soon"],
        ),
        ([PlanModeSet(active=True), PlanModeSet(active=False)], ["| thinking  Ctrl-C interrupts"], []),
        (
            [GoalChanged("create", GOAL), PlanUpdated(None, (PlanStep("a", "completed"),))],
            ["goal (active): ship it\\x1b[2J", "| thinking  plan 1/1  Ctrl-C interrupts"],
            ["goal (active): ship it\\x1b[2J", "", "Plan (1/1 done)", "✔ a"],
        ),
        ([GoalChanged("create", GOAL), GoalChanged("clear", GOAL)], ["| thinking  Ctrl-C interrupts"], []),
        (
            [ASKED, APPROVAL, QuestionAnswered("q", "answered", (), "yes")],
            ["waits for your answer", "Ctrl-C interrupts"],
            ["waits for your answer"],
        ),
        (
            [ASKED, APPROVAL, QuestionAnswered("q", "dismissed"), ApprovalDecided("a", "deny")],
            ["| thinking  Ctrl-C interrupts"],
            [],
        ),
    ],
)
def test_mode_goal_and_questions_are_drawn(events, footer, board):
    """The foot and the dashboard show the mode, the goal with its phase and that an answer is waited for, while so."""
    assert (footer, board) == drawn(*events)


def test_a_plan_grows_at_the_foot():
    """A plan that is being written is seen as it grows, like any other text, and gone once it is told whole."""
    picture = Picture("r")
    picture.take(Envelope("r", 0, 1_000, 1, TurnStarted(1)))
    pieces = Delta("r", 1, "text", "Here it is.\n"), Delta("r", 1, "plan", "# Pos"), Delta("r", 1, "plan", "ters")
    for piece in (*pieces, Delta("r", 1, "reasoning", "hm")):
        picture.take(piece)
    assert "Here it is.\n# Posters" == picture.root.saying
    picture.take(Envelope("r", 1, 1_000, 1, ModelSaid("Here it is.")))
    assert "" == picture.root.saying


@pytest.mark.parametrize("width", [20, 60, 80, 120])
@pytest.mark.parametrize("height", [5, 24])
def test_a_drawing_fits_its_terminal(width, height):
    """Foot and dashboard keep to the terminal's size, however much there is, and pass no escapes on."""
    picture = busy()
    for drawing in (
        foot(picture, 2_000, width, height, "|/"),
        dashboard(picture, 2_000, width, height, "|/", colour=False),
    ):
        console = Console(width=width, height=height, color_system=None, force_terminal=True, legacy_windows=False)
        with console.capture() as capture:
            console.print(drawing)
        lines = capture.get().splitlines()
        assert max(map(cell_len, lines)) <= width
        assert "\x1b" not in capture.get()
        if width >= 76 or height == 24:  # two panels above each other need six lines
            assert len(lines) <= height


@pytest.mark.parametrize(
    ("at_s", "expected"),
    [
        ((10.0,), ["interrupt"]),
        ((10.0, 11.0, 11.1), ["interrupt", "stop", "kill"]),
        ((10.0, 12.5, 13.0, 60.0), ["interrupt", "interrupt", "stop", "kill"]),
    ],
)
def test_ctrl_c_interrupts_then_stops_then_kills(at_s, expected):
    """Two within two seconds stop the program; once it is stopping, the next one kills it."""
    presses = Presses()
    assert expected == [presses.press(now_s) for now_s in at_s]


def test_subagents_stand_below_their_roots():
    """Roots keep their order, subagents follow in the order they were made, orphans stand as roots."""
    headers = [
        Header("b", created_ms=5),
        Header("a.y", parent="a", created_ms=3),
        Header("a.x", parent="a", created_ms=2),
        Header("a.x.z", parent="a.x", created_ms=4),
        Header("a", created_ms=1),
        Header("lost.c", parent="lost", created_ms=1),
    ]
    expected = [("b", 0), ("a", 0), ("a.x", 1), ("a.x.z", 2), ("a.y", 1), ("lost.c", 0)]
    assert expected == [(header.id, depth) for header, depth in as_trees(headers)]


def test_the_script_is_a_function_of_the_prompt():
    """The same prompt gets the same reply, and without the tools of the story there is only a greeting."""
    script = SCRIPTS["demo"]
    offered = tuple(ToolSpec(name, "", {}) for name in ("update_plan", "todo_write", "spawn_agent", "wait_agent"))
    prompt = Prompt("s", 1, 2, "", (User("go"),), offered)
    assert script(prompt) == script(prompt)
    assert ["update_plan", "todo_write", *["spawn_agent"] * 3] == [call.name for call in script(prompt).calls]
    assert Reply("Hello from the script.") == script(Prompt("s", 1, 1, "", (User("go"),)))
