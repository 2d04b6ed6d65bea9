"""Questions and approvals at the command line: in a terminal, in pipes, and where nobody is there."""

import json
import sys
import time
from pathlib import Path

import pytest

from .terminal import Terminal, cli

COMMAND = (sys.executable, str(Path(__file__).with_name("prompted.py")))
WALL, DOOR = "? Paint - Which wall?", "? Paint - Which door?"
NEEDS = "? save needs your approval:"


def piped(home, task, text, *args, store="memory", session="s"):
    """Run a task in pipes, with a text on standard input; None: it is empty."""
    return cli(home, task, store, session, *args, text=text, command=COMMAND)


def terminal(home, task, store="memory", session="s"):
    """Run a task in a terminal."""
    return Terminal(home, task, store, session, command=COMMAND)


@pytest.mark.parametrize(
    ("text", "wall", "door"),
    [
        ("1\n2: navy\n", ["red"], ["blue", "navy"]),
        ("something else\nblue", ["something else"], ["blue"]),
        ("\n\n", [], []),
        ("red\n", ["red"], []),
        ("", [], []),
        ("x" * 200_000 + "\n1\n2\n", ["red"], ["blue"]),
    ],
    ids=lambda value: str(value)[:20],
)
def test_answers_come_from_a_pipe(tmp_path, text, wall, door):
    """Each question takes a line, or the next one after what is no answer; at the end of input they are dismissed."""
    done = piped(tmp_path, "ask", text)
    said = json.dumps({"answers": {"wall": {"answers": wall}, "door": {"answers": door}}}, separators=(",", ":"))
    assert (0, "") == (done.returncode, done.stderr)
    assert f"heard {said}" in done.stdout.replace("\n", "")
    assert WALL in done.stdout
    assert ("answer got 200,000 characters of text: at most 100,000." in done.stdout) == (len(text) > 1000)


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("y\nn\n", ["saved one", "The user did not allow this call of save."]),
        ("not so\n1\n", ['The user did not allow this call of save and says: "not so"', "saved \\x1b[31mred"]),
        ("always\n", ["saved one", "saved \\x1b[31mred"]),
        ("", ["The user did not allow this call of save. The user did not allow this call of save."]),
    ],
)
def test_approvals_come_from_a_pipe(tmp_path, text, heard):
    """Each request takes a line; one that allows the tool settles the next, and at the end of input they are denied."""
    done = piped(tmp_path, "save", text)
    assert (0, "", True) == (done.returncode, done.stderr, NEEDS in done.stdout)
    last = done.stdout[done.stdout.index("heard ") :].replace("\n", " ")
    assert all(part in last for part in heard), last


def test_reminders_that_are_set_are_told_at_the_end(tmp_path):
    """Who leaves while a reminder is to come reads what it takes; without one nothing is said of it."""
    done, other = piped(tmp_path, "remind", ""), piped(tmp_path, "hello", "")
    assert (0, "1 reminder set: what is due comes while a program runs on this store") == (
        done.returncode,
        done.stdout.splitlines()[-1],
    )
    assert "reminder" not in other.stdout


def test_a_reminder_that_comes_when_its_session_is_opened_is_told(tmp_path):
    """Nothing ran when it was due: whoever goes on with the session reads of it first, and then of the task."""
    store = "sqlite:///sessions.db"
    assert 0 == piped(tmp_path, "soon", "", store=store).returncode
    time.sleep(1)
    lines = piped(tmp_path, "hello", "", store=store).stdout.splitlines()
    told = ["reminder schedule-1 is due", "heard hello"]
    assert told == [line for line in lines if line in told]
    assert "› soon" not in lines


def test_nobody_there_is_no_hang(tmp_path):
    """Without any standard input questions are dismissed, approvals denied, and the turn completes."""
    done = cli(tmp_path, "both", "memory", "s", command=COMMAND)
    assert (0, True, True) == (done.returncode, '"answers":[]' in done.stdout, "did not allow" in done.stdout)


def test_json_keeps_standard_output_for_events(tmp_path):
    """What is asked is told on standard error; every line of the output is an event, answers come from the pipe."""
    done = piped(tmp_path, "both", "2\ny\n", "--json")
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert ["blue"] == next(one["selected"] for one in events if one["type"] == "question_answered")
    assert "allow_once" == next(one["decision"] for one in events if one["type"] == "approval_decided")
    assert f"callboard: {WALL}" in done.stderr.splitlines()
    assert 0 == done.returncode


def test_nothing_of_a_question_moves_the_terminal(tmp_path):
    """Control characters and directions in what is asked are shown, not obeyed."""
    with terminal(tmp_path, "nasty") as run:
        run.wait_for("\\x1b[31mred\\x1b]0;title\\x07\\u202e")
        run.type("1\n")
        assert 0 == run.end()
        assert not any(sign in run.text for sign in ("\x1b]0;", "\u202e", "\x07"))


def test_questions_in_a_terminal(tmp_path):
    """One is shown at a time, with a place to type; what is typed is its answer, and the picture is back after it."""
    with terminal(tmp_path, "ask") as run:
        run.wait_for("> ")
        assert (True, False) == (WALL in run.shown, DOOR in run.shown)
        run.type("2\n")
        run.wait_for(DOOR)
        run.wait_for("> ")
        run.type("a green one\n")
        assert 0 == run.end()
        assert '"wall":{"answers":["blue"]},"door":{"answers":["a green one"]}' in run.shown.replace("\r\n", "")


def test_what_was_typed_too_early_answers_nothing(tmp_path):
    """A line that was typed before a question was shown is no answer to it."""
    with terminal(tmp_path, "ask") as run:
        run.wait_for("> ")
        run.type("1\n2\n")
        run.wait_for(DOOR)
        time.sleep(0.3)
        assert run.command.poll() is None
        run.type("1\n")
        assert 0 == run.end()
        assert '"wall":{"answers":["red"]},"door":{"answers":["red"]}' in run.shown.replace("\r\n", "")


def test_the_end_that_is_typed_dismisses_one_question(tmp_path):
    """Ctrl-D leaves this question unanswered, and the next one is asked all the same."""
    with terminal(tmp_path, "ask") as run:
        run.wait_for(WALL)
        run.wait_for("> ")
        run.type("\x04")
        run.wait_for(DOOR)
        time.sleep(0.1)
        run.type("1\n")
        assert 0 == run.end()
        assert '"wall":{"answers":[]},"door":{"answers":["red"]}' in run.shown.replace("\r\n", "")


def test_ctrl_c_at_a_question_interrupts_the_turn(tmp_path):
    """The first Ctrl-C cancels what is asked together with its turn, and no other question comes up."""
    with terminal(tmp_path, "ask") as run:
        run.wait_for("> ")
        run.press_ctrl_c()
        assert 130 == run.end()
        assert (True, False) == ("interrupted" in run.shown, DOOR in run.shown)


def test_an_answer_from_elsewhere_takes_the_prompt_away(tmp_path):
    """When another client answers, the prompt goes, and the turn goes on with that answer."""
    with terminal(tmp_path, "ask") as run:
        run.wait_for("> ")
        (tmp_path / "answer").touch()
        assert 0 == run.end()
        assert "that was answered elsewhere, or is over" in run.shown
        assert '"wall":{"answers":["blue"]},"door":{"answers":["blue"]}' in run.shown.replace("\r\n", "")


def test_a_question_that_was_left_open_comes_first(tmp_path):
    """A program that was stopped at a question asks it again, before the new task, and the answer reaches the model."""
    store = f"sqlite:///{tmp_path / 'log.db'}"
    with terminal(tmp_path, "ask", store) as run:
        run.wait_for("> ")
        run.command.terminate()
        assert 130 == run.end()
    with terminal(tmp_path, "hello", store) as run:
        run.wait_for(WALL)
        time.sleep(0.1)
        run.type("1\n")
        run.wait_for(DOOR)
        time.sleep(0.1)
        run.type("\n")
        assert 0 == run.end()
        told = run.shown
        assert 0 < told.index("The user has now answered: red") < told.index("heard hello")


def test_nobody_there_leaves_old_questions_open(tmp_path):
    """Without input a question that no call waits for stays open for somebody who comes later."""
    store = f"sqlite:///{tmp_path / 'log.db'}"
    with terminal(tmp_path, "ask", store) as run:
        run.wait_for("> ")
        run.command.terminate()
        run.end()
    for _ in range(2):
        done = piped(tmp_path, "hello", "", store=store)
        assert (0, True, True) == (done.returncode, WALL in done.stdout, "heard hello" in done.stdout)
    assert "The user has now answered: blue" in piped(tmp_path, "hello", "blue\n", store=store).stdout
