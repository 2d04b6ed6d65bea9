"""Signals at the edges of the command's life: before the program is imported, and behind its end."""

import signal
import subprocess
import sys

import pytest

from .terminal import environment

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
