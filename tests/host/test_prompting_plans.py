"""A plan that a turn of `callboard run` proposed: who is asked about it, and what each answer makes of it."""

import json
import sys
import time
from pathlib import Path

import pytest

from callboard.plugins.handovers import session_of

from .terminal import Terminal, cli

COMMAND = (sys.executable, str(Path(__file__).with_name("prompted.py")))
ASKED = "? Implement this plan?"
NEW = session_of("s", "1-plan")
STORE = "sqlite:///sessions.db"
WAITS = "a plan waits: --session s goes on with it, where /implement carries it out, /implement clear in a new session"


def piped(home, text, *args, task="plan red", store=STORE):
    """Run a task in pipes, with a text on standard input."""
    return cli(home, task, store, "s", *args, text=text, command=COMMAND)


def told(done):
    """Its lines, each without what the terminal or a subagent's name adds."""
    return [line.strip() for line in done.stdout.splitlines()]


def test_a_plan_is_carried_out_here(tmp_path):
    """One line of a pipe says so: Plan mode ends, the plan is carried out in a turn that is shown, nothing waits."""
    done = piped(tmp_path, "1\n3\n", "--plan")
    lines = told(done)
    assert (0, "") == (done.returncode, done.stderr)
    order = ["- plan red the wall", ASKED, "plan mode is off", "› Implement the plan.", "heard Implement the plan."]
    assert order == [line for line in lines if line in order]
    assert (1, False) == (lines.count(ASKED), any("a plan waits" in line for line in lines))
    assert lines[-1].startswith("2 turns · ")


def test_a_plan_is_carried_out_in_a_new_session(tmp_path):
    """It is named, shown to its end under the plan's id, and the first session does nothing more."""
    done = piped(tmp_path, "2\n", "--plan")
    lines = told(done)
    assert (0, "") == (done.returncode, done.stderr)
    assert f"the plan was handed to session {NEW}" in lines
    theirs = [line.removeprefix("1-plan │ ") for line in lines if line.startswith("1-plan │ ")]
    assert (True, True) == (any("heard The user approved" in line for line in theirs), "- plan red the wall" in theirs)
    assert ("› Implement the plan." in lines, lines[-1].split(" · ")[0]) == (False, "2 turns")


@pytest.mark.parametrize("text", ["3\n", "\n", "", "something else\n1\n"], ids=repr)
def test_a_plan_stays(tmp_path, text):
    """Nothing is carried out by any other line, or without one; and how it can be is said at the end."""
    done = piped(tmp_path, text, "--plan")
    lines = told(done)
    assert (0, "", 1, WAITS) == (done.returncode, done.stderr, lines.count(ASKED), " ".join(lines[-1:]))
    assert not any("approved" in line or "plan mode is off" in line for line in lines)
    again = piped(tmp_path, "", task="hello")
    assert (ASKED in told(again), "heard hello" in told(again)) == (False, True)


def test_what_waits_is_taken_up_by_a_line(tmp_path):
    """`/implement` carries out the plan that was left, later and in another program; once more it is not run again."""
    piped(tmp_path, "", "--plan")
    done, again = (piped(tmp_path, "", task="/implement") for _ in range(2))
    assert (0, 0, "", "") == (done.returncode, again.returncode, done.stderr, again.stderr)
    assert ("heard Implement the plan." in told(done), ASKED in told(done)) == (True, False)
    assert "heard Implement the plan." not in told(again)


def test_what_waits_is_taken_up_in_a_new_session(tmp_path):
    """`/implement clear` says which session carries the plan out, and shows that to its end."""
    piped(tmp_path, "", "--plan")
    done = piped(tmp_path, "", task="/implement clear")
    assert (0, "") == (done.returncode, done.stderr)
    assert f"Session {NEW} carries the plan out." in told(done)
    assert any(line.startswith("1-plan │ heard The user approved") for line in told(done))


def test_an_old_plan_is_not_asked_about(tmp_path):
    """A line that starts no turn brings no question about a plan of an earlier run, but that it waits is said."""
    piped(tmp_path, "", "--plan")
    done = piped(tmp_path, "1\n", task="/approvals never")
    assert (0, False, WAITS) == (done.returncode, ASKED in told(done), told(done)[-1])


def test_a_plan_that_no_turn_proposed_is_refused(tmp_path):
    """`/implement` says so."""
    done = piped(tmp_path, "", task="/implement")
    assert (1, True) == (done.returncode, "no plan was proposed in this session" in done.stderr)


def test_json_asks_nobody(tmp_path):
    """Every line of the output is an event, no line is read, and how to take the plan up is said on standard error."""
    done = piped(tmp_path, "1\n", "--plan", "--json")
    kinds = [json.loads(line)["event"]["type"] for line in done.stdout.splitlines()]
    assert (0, True, False) == (done.returncode, "plan_proposed" in kinds, "plan_approved" in kinds)
    assert (f"callboard: {WAITS}", False) == (done.stderr.splitlines()[-1], ASKED in done.stderr)


def test_no_word_of_what_is_lost(tmp_path):
    """A plan of a session that only memory kept cannot be taken up later, so nothing says that it can."""
    done = piped(tmp_path, "", "--plan", store="memory")
    assert (0, False) == (done.returncode, "a plan waits" in done.stdout)


def terminal(home, *args, task="plan red", store=STORE):
    """Run a task in a terminal."""
    return Terminal(home, task, store, "s", *args, command=COMMAND)


def test_a_plan_in_a_terminal(tmp_path):
    """What is no choice is asked once more; then the plan is carried out, and seen to its end."""
    with terminal(tmp_path, "--plan") as run:
        run.wait_for(ASKED)
        run.wait_for("> ")
        run.type("perhaps\n")
        run.wait_for("that is none of the choices: type 1, 2 or 3.")
        time.sleep(0.3)
        run.type("1\n")
        assert 0 == run.end()
        assert (2, True) == (run.shown.count(ASKED), "heard Implement the plan." in run.shown)


def test_the_end_that_is_typed_stays(tmp_path):
    """Ctrl-D is no choice: Plan mode stays, and the run ends well."""
    with terminal(tmp_path, "--plan") as run:
        run.wait_for("> ")
        run.type("\x04")
        assert 0 == run.end()
        assert (True, False) == ("a plan waits" in run.shown, "approved" in run.shown)


def test_ctrl_c_at_a_plan_stays(tmp_path):
    """The first Ctrl-C leaves the plan a proposal, and ends the run as an interrupt does."""
    with terminal(tmp_path, "--plan") as run:
        run.wait_for(ASKED)
        run.wait_for("> ")
        run.press_ctrl_c()
        assert 130 == run.end()
        assert (True, False) == ("a plan waits" in run.shown, "approved" in run.shown)
        assert "interrupted; the session is kept" in run.shown


def test_what_was_typed_is_not_told_again(tmp_path):
    """In a terminal the answer and the decision stand there as typed; in a pipe, where nothing shows them, both do."""
    with terminal(tmp_path, task="both", store="memory") as run:
        run.wait_for("? Paint - Which wall?")
        run.wait_for("> ")
        run.type("2: navy\n")
        run.wait_for("? save needs your approval:")
        time.sleep(0.3)
        run.type("1\n")
        assert 0 == run.end()
        assert (False, False) == ("› blue: navy" in run.shown, "allowed, this once" in run.shown)
    lines = told(piped(tmp_path, "2: navy\n1\n", task="both", store="memory"))
    assert (True, True) == ("› blue: navy" in lines, any(line.startswith("allowed, this once") for line in lines))


def test_what_an_empty_line_did_is_told(tmp_path):
    """It shows nothing of itself, so that a question was dismissed and a call denied is told."""
    with terminal(tmp_path, task="both", store="memory") as run:
        run.wait_for("? Paint - Which wall?")
        run.wait_for("> ")
        run.type("\n")
        run.wait_for("? save needs your approval:")
        time.sleep(0.3)
        run.type("\n")
        assert 0 == run.end()
        assert (True, True) == ("the question was dismissed" in run.shown, "denied  save" in run.shown)
