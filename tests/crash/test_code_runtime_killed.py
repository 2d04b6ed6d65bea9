"""A runtime that dies by kill -9 takes the code it runs along, with its folder."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the test looks into /proc")

RUNTIME = """
import asyncio, sys
from callboard.actors import Call, Delta, Reply
from callboard.actors.testing import ScriptedModel
from callboard.plugins import CODE
from callboard.runtime import open_runtime

async def main():
    model = ScriptedModel([Reply("", [Call("code", {"source": sys.argv[1]})])])
    async with open_runtime(model=model, plugins=[CODE]) as rt:
        session = await rt.create()
        async with session.events(deltas=True) as reading:
            await session.submit("go")
            async for item in reading:
                if isinstance(item, Delta):
                    print(item.text, end="", flush=True)

asyncio.run(main())
"""
SOURCE = """
import os, signal
for number in (1, 2, 15):
    signal.signal(number, signal.SIG_IGN)
open("kept", "w").write("x")
print(os.getcwd())
while True:
    pass
"""
LASTING_S = 20.0


def test_code_dies_with_a_killed_runtime():
    """After kill -9 of the runtime neither the program nor its folder is left, deaf to signals as it may be."""
    runtime = subprocess.Popen([sys.executable, "-c", RUNTIME, SOURCE], stdout=subprocess.PIPE, text=True)
    try:
        assert runtime.stdout is not None
        folder = Path(runtime.stdout.readline().strip())
        assert ["kept"] == [path.name for path in folder.iterdir()]
        processes = [path for path in Path("/proc").glob("[0-9]*/cwd") if _leads(path, folder)]
        assert processes
        runtime.send_signal(signal.SIGKILL)
        runtime.wait()
        ends_at = time.monotonic() + LASTING_S
        while folder.exists() or any(path.parent.exists() for path in processes):
            assert time.monotonic() < ends_at, (folder, processes)
            time.sleep(0.005)
    finally:
        runtime.kill()
        runtime.wait()
        if runtime.stdout is not None:
            runtime.stdout.close()


def _leads(link: Path, folder: Path) -> bool:
    try:
        return link.readlink() == folder
    except OSError:
        return False
