"""Signals at the edges of the command's life: before the program is imported, and behind its end."""

import signal
import subprocess
import sys

import pytest

from callboard.actors.codec import Codec
from callboard.actors.events import TurnEnded

from .terminal import cli, environment

LIMIT_S = 30.0
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
ENDED = """
import os, sys
sys.argv = ["callboard", "--version"]
from callboard.__main__ import main
code = main()
os.kill(os.getpid(), int(sys.stdin.read()))
sys.exit(code)
"""

DEAF = """
import os, sys
class Deaf:
    def find_spec(self, name, *more):
        if name == "msgspec":
            try:
                os.kill(os.getpid(), int(sys.argv.pop()))
            except BaseException:
                pass
sys.meta_path.insert(0, Deaf())
from callboard.__main__ import main
sys.exit(main())
"""

AGENTS = """
import os
import trio
from callboard.actors import Call, Reply
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.doors.output import standard_output
from callboard.runtime.doors.program import Program
from callboard.runtime.doors.run import Run, RunOptions

async def answer(prompt):
    if prompt.session != "p":
        await trio.sleep(60)
    if prompt.session == "p" and prompt.step == 1:
        return Reply("", [Call("spawn_agent", {"task_name": name, "message": "work"}) for name in ("a", "b")])
    return Reply("they work")

program = Program(standard_output(os.environ))
rt = open_runtime(model=ScriptedModel(answer), store="sqlite:///agents.db")
options = RunOptions(RuntimeConfig(), "sqlite:///agents.db", "go", session="p", json=True)
raise SystemExit(program.run(Run(options, program, rt, "go").all))
"""


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("module", ["trio", "prometheus_client", "callboard.plugins"])
def test_while_it_imports(tmp_path, module, number):
    """It ends with 130 and says nothing, wherever in its half second of imports a signal meets it."""
    command = (sys.executable, "-X", "importtime", "-m", "callboard", "log", "list")  # it tells of each import
    with subprocess.Popen(
        command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if line.rpartition("|")[2].strip().startswith(module):
                break
        running.send_signal(number)
        out, err = running.communicate(timeout=LIMIT_S)
    said = [line for line in err.splitlines() if not line.startswith("import time:")]
    assert (130, "", []) == (running.returncode, out, said)


@pytest.mark.parametrize("number", SIGNALS)
def test_nothing_is_thrown_into_an_import(tmp_path, number):
    """A module that swallows what is thrown into its import, as some in C do or crash by it, does not hide a signal."""
    done = subprocess.run(
        (sys.executable, "-c", DEAF, "--version", str(int(number))),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (130, "", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("number", SIGNALS)
def test_behind_its_end(tmp_path, number):
    """What was done is done: a signal that comes too late does not change the exit code."""
    done = subprocess.run(
        (sys.executable, "-c", ENDED),
        env=environment(tmp_path),
        input=str(int(number)),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)


def next_end(running):
    """The next end of a turn that the program tells of."""
    for line in running.stdout:
        envelope = Codec().from_line(line.encode())
        if isinstance(envelope.event, TurnEnded):
            return envelope
    return None


@pytest.mark.parametrize("again", [None, *SIGNALS])
def test_ctrl_c_while_only_agents_work(tmp_path, again):
    """The first Ctrl-C interrupts the agents of a session that rests itself; a signal behind that loses nothing."""
    command = (sys.executable, "-c", AGENTS)
    with subprocess.Popen(
        command, env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        root = next_end(running)
        running.send_signal(signal.SIGINT)
        assert next_end(running) is not None
        if again is not None:
            running.send_signal(again)  # it is closing
        _, err = running.communicate(timeout=LIMIT_S)
    assert (130, "p", "completed") == (running.returncode, root.session, root.event.reason)
    assert "Traceback" not in err
    for agent in ("p.a", "p.b"):
        shown = cli(tmp_path, "log", "show", agent, "--json", "--store", "sqlite:///agents.db").stdout.splitlines()
        last = Codec().from_line(shown[-1].encode()).event
        assert isinstance(last, TurnEnded)
        assert ("aborted", "parent") == (last.reason, last.cause)
