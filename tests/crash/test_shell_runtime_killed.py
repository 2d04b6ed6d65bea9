"""A runtime that dies by kill -9 takes its commands along, foreground and background."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the test looks into /proc")

RUNTIME = """
import sys, trio
from callboard.actors.abort import Signal
from callboard.plugins.shell import SHELL

class View:
    folder, window_s, interrupted, belongings = "/", 0.1, Signal(), {}
    def output(self, text): print(text, end="", flush=True)
    def start_soon(self, fn, *args): self.nursery.start_soon(fn, *args)

async def main():
    (tool, view) = SHELL.tools[0], View()
    async with trio.open_nursery() as view.nursery:
        for background in (True, False):
            args, kwargs = tool.bind(tool.parse({"command": sys.argv[1], "background": background}), view)
            await tool.fn(*args, **kwargs)

trio.run(main)
"""
LASTING_S = 20.0


def alive(text: str) -> list[int]:
    """The processes with `text` in their command line."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in file.read_bytes():
                found.append(int(file.parent.name))
        except OSError:
            continue
    return found


def test_commands_die_with_a_killed_runtime():
    """After kill -9 of the runtime nothing of its commands is left, deaf, detached or orphaned as they may be."""
    lasting = f"sleep 4000.{os.getpid()}"
    command = (
        f"trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM; (setsid {lasting} &); {lasting}; {lasting}' & "
        f"({lasting} & ); ( ({lasting} & ) & ); "
        f"until [ $(pgrep -f -x '{lasting}' | wc -l) -ge 8 ]; do sleep 0.01; done; echo ready; {lasting}; {lasting}"
    )
    runtime = subprocess.Popen([sys.executable, "-c", RUNTIME, command], stdout=subprocess.PIPE, text=True)
    try:
        assert runtime.stdout is not None
        assert "ready\n" == runtime.stdout.readline()
        assert len(alive(lasting.replace(" ", "\0"))) >= 8
        keepers = [pid for pid in alive("keeper.py") if pid in alive(lasting)]
        assert 2 == len(keepers)
        runtime.send_signal(signal.SIGKILL)
        runtime.wait()
        ends_at = time.monotonic() + LASTING_S
        while alive(lasting) or alive(lasting.replace(" ", "\0")):
            assert time.monotonic() < ends_at, alive(lasting)
            time.sleep(0.005)
    finally:
        runtime.kill()
        runtime.wait()
        if runtime.stdout is not None:
            runtime.stdout.close()
