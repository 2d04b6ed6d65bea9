"""callboard as a command: its exit codes, its one-line complaints, its streams, its signals."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callboard.actors.codec import Codec
from callboard.actors.events import MessageQueued, SessionOpened, TurnEnded
from callboard.actors.facts import PlanUpdated

from .terminal import COMMAND, Terminal, cli, environment, finished, record, start, words, working_in

STORY = ("run", "Tell me about it", "--model", "scripted:demo")
HANG = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"
BLOCKED = """\
import os, threading
from callboard.actors import Call, Reply, tool
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime
from callboard.runtime.doors.output import standard_output
from callboard.runtime.doors.program import Program

begun = threading.Event()

@tool
def block() -> str:
    "Wait for ever."
    begun.set()
    threading.Event().wait()

async def main():
    rt = open_runtime(model=ScriptedModel([Reply("", [Call("block")])]), tools=[block])
    async with program.opened(rt):
        session = await rt.create()
        accepted = await session.submit("go")
        while not begun.is_set():
            await asyncio.sleep(0.01)
        await session.interrupt()
        await session.wait(accepted.turn)
        program.output.write("the turn is over\\n")
    return 7

import asyncio
program = Program(standard_output(os.environ))
raise SystemExit(program.run(main))
"""
ESCAPE = "\x1b["


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A home where the scripted story was told twice at the same time: as JSON, in the session `told`, and in lines."""
    home = tmp_path_factory.mktemp("told")
    done = [finished(one) for one in (start(home, *STORY, "--session", "told", "--json"), start(home, *STORY))]
    assert [0, 0] == [one.returncode for one in done], done
    return home, *done


def complaint(done):
    """The one line of a command that refused; nothing else was written."""
    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("callboard: ")
    assert done.stderr.count("\n") == 1
    return done.stderr[len("callboard: ") : -1]


# -- wrong use ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("serve",), "invalid choice: 'serve'"),
        (("run", "x"), "there is no default model: use --model scripted:demo"),
        (("run", "x", "--model", "gpt"), "model 'gpt' is not known"),
        (("run", "x", "--model", "replay:nowhere.jsonl"), "nowhere.jsonl"),
        (("run", "--model", "scripted:demo"), "run needs a TASK"),
        (("run", " ", "--model", "scripted:demo"), "empty text"),
        (("run", "-", "--model", "scripted:demo"), "standard input is empty"),
        (("run", "x", "--model", "scripted:demo", "--store", "here.db"), "store 'here.db' is not known"),
        (("run", "x", "--model", "scripted:demo", "--store", "sqlite:////"), "is a folder"),
        (("run", "x", "--model", "scripted:demo", "--session", "a\nb"), "a session id is"),
        (("run", "x", "--metrics-port", "70000"), "expected a port, 0 to 65535"),
        (("run", "x", "--verbose"), "unrecognized arguments: --verbose"),
        (("--log-level", "loud", "run", "x"), "invalid choice: 'loud'"),
        (("run", "x", "--config", "nowhere.toml"), "nowhere.toml: cannot be read: No such file"),
        (("log",), "list|show"),
        (("log", "show", "nobody"), "there is no session 'nobody'"),
        (("log", "list", "--store", "memory"), "keeps nothing between programs"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(tmp_path, args, says):
    """Whatever is wrong with the command line is said in one line on standard error, without a traceback."""
    assert says in complaint(cli(tmp_path, *args))


def test_all_mistakes_of_a_configuration_are_told_at_once(tmp_path):
    """A configuration with three mistakes names each with its place."""
    (tmp_path / "c.toml").write_text('[runtime]\nsteps_max = 0\ncolour = "red"\n[model]\nname = 7\n')
    says = complaint(cli(tmp_path, "run", "x", "--config", "c.toml"))
    assert all(part in says for part in ("steps_max must be at least 1", "'colour'", "expected str, got int", "@ $."))


def test_global_options_stand_on_either_side_of_the_command(tmp_path):
    """--config before and after the command is the same."""
    before = complaint(cli(tmp_path, "--config", "no.toml", "log", "list"))
    assert before == complaint(cli(tmp_path, "log", "list", "--config", "no.toml"))


def test_a_foreign_file_is_no_store(tmp_path):
    """A store that is some other file is refused by name, and left as it is."""
    (tmp_path / "notes.txt").write_text("my notes\n" * 100)
    url = f"sqlite:///{tmp_path}/notes.txt"
    assert "notes.txt" in complaint(cli(tmp_path, "run", "x", "--model", "scripted:demo", "--store", url))
    assert "notes.txt" in complaint(cli(tmp_path, "log", "list", "--store", url))
    assert "my notes\n" * 100 == (tmp_path / "notes.txt").read_text()


def test_a_taken_metrics_port_is_said_before_anything_runs(tmp_path):
    """A port that another program holds is one line, and the model is not asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        says = complaint(cli(tmp_path, *STORY, "--metrics-port", port))
    assert f"metrics cannot be served on 127.0.0.1:{port}" in says


def test_the_version_is_told(tmp_path):
    """--version is one line on standard output."""
    done = cli(tmp_path, "--version")
    assert (0, "") == (done.returncode, done.stderr)
    assert re.fullmatch(r"callboard \d+\.\d+\S*\n", done.stdout)


# -- run ---------------------------------------------------------------------------------------------------------------


def test_json_is_one_envelope_a_line_for_the_whole_tree(told):
    """With --json standard output holds envelopes alone: the session's own in order, and those of its subagents."""
    _, done, _ = told
    envelopes = [Codec().from_line(line.encode()) for line in done.stdout.splitlines()]
    own = [envelope.seq for envelope in envelopes if envelope.session == "told"]
    assert list(range(len(own))) == own
    assert {"told", "told.words", "told.todos", "told.check"} == {envelope.session for envelope in envelopes}
    assert isinstance(envelopes[0].event, SessionOpened)
    ends = [e.event for e in envelopes if e.session == "told" and isinstance(e.event, TurnEnded)]
    assert ["completed"] == [end.reason for end in ends]


def test_a_session_goes_on_where_it_was_left(told):
    """--session opens what is there, and shows only what is new."""
    home, *_ = told
    done = cli(home, "run", "-", "--model", "scripted:demo", "--session", "told", "--json", text="and now?")
    envelopes = [Codec().from_line(line.encode()) for line in done.stdout.splitlines()]
    assert ["and now?"] == [e.event.text for e in envelopes if isinstance(e.event, MessageQueued)]
    assert [2] == [e.event.turn for e in envelopes if isinstance(e.event, TurnEnded)]


def test_a_pipe_gets_plain_lines(told):
    """Without a terminal there is no escape and no carriage return, and the story is all there."""
    *_, done = told
    assert "" == done.stderr
    assert ESCAPE not in done.stdout
    assert "\r" not in done.stdout
    wanted = ("› Tell me about it", "• Plan (5/5 done)", "+ agent words", "= agent todos completed", "1 turn · 9 steps")
    assert [] == [part for part in wanted if part not in done.stdout]


def test_a_terminal_gets_colours_and_a_dumb_one_none(tmp_path):
    """A terminal is written to in colours; NO_COLOR takes the colours away, and TERM=dumb the moving cursor too."""
    ways: tuple[dict[str, str], ...] = ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"})
    with contextlib.ExitStack() as stack:
        usual, pale, dumb = (stack.enter_context(Terminal(tmp_path, *STORY, **way)) for way in ways)
        assert [0, 0, 0] == [one.end() for one in (usual, pale, dumb)]
    colours = re.compile(r"\x1b\[[0-9;]*m")
    assert colours.search(usual.text)
    assert not colours.search(pale.text)
    assert ESCAPE in pale.text
    assert ESCAPE not in dumb.text


def test_what_a_terminal_would_obey_is_made_visible(tmp_path):
    """Control characters in tasks, answers and calls are shown as text."""
    call = {"type": "toolCall", "id": "c", "name": "read\x9b", "arguments": {"path": "a\x1b]0;title\x07"}}
    model = record(tmp_path, ("red \x1b[31m task", words("bell \x07 answer"), call))
    done = cli(tmp_path, "run", "--model", model)
    assert "› red \\x1b[31m task\nbell \\x07 answer\n" in done.stdout
    assert "a\\x1b]0;title\\x07" in done.stdout
    assert all(char.isprintable() or char == "\n" for char in done.stdout)


def test_a_replay_brings_its_own_tasks_and_is_summed_up(tmp_path):
    """A recording's user messages are submitted in turn, a TASK beside them is ignored aloud, one line sums up."""
    model = record(tmp_path, ("first", words("one")), ("second", words("two")))
    done = cli(tmp_path, "run", "ignored", "--model", model, "--session", "again")
    assert (0, "callboard: TASK is ignored: the recording brings its own 2 tasks.\n") == (done.returncode, done.stderr)
    assert ["› first", "one", "› second", "two"] == done.stdout.splitlines()[:4]
    assert "replayed: 2 turns, 2 replies, 0 calls, 0 refused control calls, 0 subagents; from pi p" in done.stdout
    over = cli(tmp_path, "run", "--model", model, "--session", "again")
    assert "has had all 2 tasks" in complaint(over)


def test_plan_mode_is_on_before_the_task(tmp_path):
    """--plan switches the mode before the first message."""
    done = cli(tmp_path, "run", "--model", record(tmp_path, ("first", words("one"))), "--plan")
    assert ["plan mode is on", "› first", "one"] == done.stdout.splitlines()[:3]


# -- streams -----------------------------------------------------------------------------------------------------------


def test_what_a_command_answers_is_told(tmp_path):
    """A line that is a plugin's command says what it did, and runs no model."""
    done = cli(tmp_path, "run", "/goal show", "--model", "scripted:demo")
    assert (0, "There is no goal. /goal TEXT sets one.") == (done.returncode, done.stdout.splitlines()[0])
    assert done.stdout.splitlines()[1].startswith("0 turns")


def test_a_reader_that_leaves_ends_it_quietly(tmp_path):
    """When the pipe breaks, as with head, it stops within seconds and says nothing."""
    with start(tmp_path, *STORY) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.readline()
        command.stdout.close()
        assert (1, "") == (command.wait(20), command.stderr.read())


@pytest.mark.parametrize("args", [("run", "--model", "replay:rec.jsonl"), ("log", "list")])
def test_a_closed_standard_output_harms_nothing(told, args):
    """With standard output closed the command does its work and writes nowhere."""
    home, *_ = told
    record(home, ("first", words("one")))
    line = 'exec "$@" >&-'
    done = subprocess.run(
        ["sh", "-c", line, "sh", *COMMAND, *args],
        env=environment(home), cwd=home, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=45, check=False,
    )  # fmt: skip
    assert (0, b"") == (done.returncode, done.stderr)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk_under_the_output_is_told(told):
    """Output that cannot be written is one line and exit code 1."""
    home, *_ = told
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "log", "list"], env=environment(home), cwd=home, stdin=subprocess.DEVNULL,
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=45, check=False,
        )  # fmt: skip
    assert (1, "callboard: the output could not be written: No space left on device\n") == (
        done.returncode,
        done.stderr,
    )


# -- signals -----------------------------------------------------------------------------------------------------------


def test_the_first_ctrl_c_interrupts_and_keeps_the_session(tmp_path):
    """One Ctrl-C ends the turn with its receipts, exit code 130, and the session can go on."""
    with Terminal(tmp_path, *STORY, "--session", "kept") as terminal:
        terminal.wait_for("+ agent check")
        terminal.press_ctrl_c()
        assert 130 == terminal.end()
        assert "turn 1 aborted (interrupted)" in terminal.shown
        assert "--session kept goes on with it" in terminal.shown
    again = cli(tmp_path, "run", "go on", "--model", "scripted:demo", "--session", "kept", "--json")
    assert 0 == again.returncode
    assert [] == working_in(tmp_path)


def test_a_second_ctrl_c_stops_the_program(tmp_path):
    """Two Ctrl-C within a moment end it cleanly: 130, no traceback, the store whole."""
    with Terminal(tmp_path, *STORY, "--session", "stopped") as terminal:
        terminal.wait_for("+ agent check")
        terminal.press_ctrl_c()
        terminal.press_ctrl_c()
        assert 130 == terminal.end()
        assert "Traceback" not in terminal.text
    assert "stopped" in cli(tmp_path, "log", "list").stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_asked_to_end_is_a_clean_stop(tmp_path, number):
    """SIGTERM and SIGHUP stop the program as a second Ctrl-C does."""
    with Terminal(tmp_path, *STORY) as terminal:
        terminal.wait_for("+ agent check")
        terminal.command.send_signal(number)
        assert 130 == terminal.end()
        assert "Traceback" not in terminal.text


def test_a_command_of_the_shell_tool_dies_with_an_interrupt(tmp_path):
    """A process that a tool started is gone when Ctrl-C has ended the program."""
    (tmp_path / "check.py").write_text(HANG)
    (tmp_path / "check.sh").write_text(f"exec {sys.executable} check.py\n")
    with Terminal(tmp_path, *STORY) as terminal:
        terminal.wait_for("begun")
        assert [] != working_in(tmp_path)
        terminal.press_ctrl_c()
        assert 130 == terminal.end()
    assert [] == working_in(tmp_path)


def test_a_reader_that_takes_nothing_holds_up_no_end(tmp_path):
    """With a full pipe that nobody reads, one Ctrl-C or two still end the program."""
    model = record(tmp_path, *((f"turn {n}", words("long " * 20_000)) for n in range(20)))
    with start(tmp_path, "run", "--model", model, "--json", "--session", "stuck") as command:
        assert command.stdout is not None
        command.stdout.readline()
        while "stuck" not in cli(tmp_path, "log", "list").stdout:
            time.sleep(0.1)
        command.send_signal(signal.SIGINT)
        time.sleep(0.2)
        command.send_signal(signal.SIGINT)
        assert 130 == command.wait(30)


def test_a_slow_reader_misses_nothing(tmp_path):
    """Lines wait for who reads them late, and all of them come."""
    model = record(tmp_path, *((f"turn {n}", words("long " * 20_000)) for n in range(20)))
    with start(tmp_path, "run", "--model", model, "--json", "--session", "slow") as command:
        time.sleep(3)
        assert command.poll() is None
        assert command.stdout is not None
        lines = command.stdout.readlines()
        assert 0 == command.wait(30)
    envelopes = [Codec().from_line(line.encode()) for line in lines]
    assert list(range(len(envelopes))) == [envelope.seq for envelope in envelopes]
    assert 20 == sum(isinstance(envelope.event, TurnEnded) for envelope in envelopes)


def test_what_is_left_behind_does_not_keep_the_program(tmp_path):
    """A tool that blocks its thread for ever is named in one line, and the program ends."""
    (tmp_path / "blocked.py").write_text(BLOCKED)
    done = subprocess.run(
        [sys.executable, "blocked.py"], env=environment(tmp_path), cwd=tmp_path, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=45, check=False,
    )  # fmt: skip
    assert (7, "the turn is over\n") == (done.returncode, done.stdout)
    assert "callboard: ended while these were still alive: block" in done.stderr


# -- log ---------------------------------------------------------------------------------------------------------------


def test_looking_makes_no_store(tmp_path):
    """log list without a store says so kindly, and leaves no file behind."""
    done = cli(tmp_path, "log", "list")
    assert (0, "") == (done.returncode, done.stderr)
    assert "no sessions yet" in done.stdout
    assert not (tmp_path / "data").exists()


def test_sessions_are_listed_with_their_subagents_below(told):
    """A table: heads, then each root with its subagents indented."""
    home, *_ = told
    head, *rows = cli(home, "log", "list").stdout.splitlines()
    assert ["id", "title", "status", "events", "updated", "path"] == head.split()
    at = next(at for at, row in enumerate(rows) if row.startswith("told "))
    below = {row[: row.index(" ", 2)] for row in rows[at + 1 : at + 4]}
    assert {"  told.words", "  told.todos", "  told.check"} == below


def test_a_session_is_shown_as_a_story_or_as_lines(told):
    """log show tells the plan's last state; with --json --after it gives the envelopes behind that number."""
    home, done, _ = told
    story = cli(home, "log", "show", "told").stdout
    assert "session told · /root" in story
    assert "• Plan (5/5 done)" in story
    lines = [line for line in done.stdout.splitlines() if '"session":"told"' in line]
    assert (
        lines[11:] == cli(home, "log", "show", "told", "--json", "--after", "10").stdout.splitlines()[: len(lines) - 11]
    )
    plans = [e for e in map(Codec().from_line, map(str.encode, lines)) if isinstance(e.event, PlanUpdated)]
    assert 7 == len(plans)


def test_a_store_that_another_program_writes_can_be_read(tmp_path):
    """log show works while the session's own program runs."""
    with Terminal(tmp_path, *STORY, "--session", "busy") as terminal:
        terminal.wait_for("+ agent check")
        assert "› Tell me about it" in cli(tmp_path, "log", "show", "busy").stdout
        assert terminal.command.poll() is None


def test_a_command_that_is_refused_says_why_in_one_sentence(tmp_path):
    """What a plugin's command refuses is one line on standard error, in words for people, with one full stop."""
    done = cli(tmp_path, "run", "/goal pause", "--model", "scripted:demo", "--store", "memory")
    says = "callboard: /goal was refused: invalid_command: There is no goal. /goal TEXT sets one.\n"
    assert (1, says) == (done.returncode, done.stderr)
