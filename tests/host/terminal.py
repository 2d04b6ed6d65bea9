"""The command line as its users start it: in a pipe, or in a terminal that is read while it runs; and recordings."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

LIMIT_S = 45.0
PLAIN = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "LC_ALL": "C.UTF-8"}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COMMAND = (sys.executable, "-m", "callboard")


def environment(home, **more):
    """Nothing of the surrounding one, and every folder of the user's inside `home`."""
    return {**PLAIN, "HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "TMPDIR": str(home), **more}


def cli(home, *args, text=None, cwd=None, command=COMMAND, **more):
    """Run it in pipes; the finished command."""
    return subprocess.run(
        [*command, *args],
        env=environment(home, **more),
        cwd=cwd or home,
        input=text,
        stdin=None if text is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=LIMIT_S,
        check=False,
    )


def start(home, *args):
    """Start it in pipes, to be finished by `finished`."""
    return subprocess.Popen(
        [*COMMAND, *args],
        env=environment(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def finished(command):
    """The same as `cli` gives."""
    out, err = command.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(command.args, command.returncode, out, err)


def record(folder, *turns):
    """A recording of a pi session, `rec.jsonl`: for each turn what the user said, and the blocks of one answer."""
    head = {"type": "session", "version": 3, "id": "p", "timestamp": "t", "cwd": "/w"}
    lines = [head]
    for said, *blocks in turns:
        answer = {"role": "assistant", "model": "m", "content": blocks, "stopReason": "stop", "usage": {}}
        messages = ({"role": "user", "content": said}, answer)
        lines += [{"type": "message", "timestamp": "t", "message": message} for message in messages]
    (folder / "rec.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "replay:rec.jsonl"


def words(text):
    """A block of an answer."""
    return {"type": "text", "text": text}


class Terminal:
    """The command in a terminal of a certain size; `text` is all it has written."""

    def __init__(self, home, *args, width=100, height=40, cwd=None, command=COMMAND, **more):
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self._pieces = []
        self.command = subprocess.Popen(
            [*command, *args],
            env=environment(home, **{"TERM": "xterm-256color", **more}),
            cwd=cwd or home,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with contextlib.suppress(OSError):  # the other side is closed
            while piece := os.read(self._ours, 65536):
                self._pieces.append(piece)

    @property
    def text(self):
        return b"".join(self._pieces).decode(errors="replace")

    @property
    def shown(self):
        """The same without colours and movements of the cursor."""
        return ESCAPES.sub("", self.text)

    def wait_for(self, text):
        """Return once the terminal has shown this."""
        until = time.monotonic() + LIMIT_S
        while text not in self.shown:
            assert time.monotonic() < until, f"{text!r} was never shown: {self.shown[-2000:]}"
            assert self.command.poll() is None or text in self.shown, f"no {text!r}: {self.shown[-2000:]}"
            time.sleep(0.02)

    def type(self, text):
        """Type, as a person does: the terminal shows it."""
        os.write(self._ours, text.encode())

    def press_ctrl_c(self):
        self.command.send_signal(signal.SIGINT)

    def end(self):
        """Wait for its end; the exit code."""
        code = self.command.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.command.pid, signal.SIGKILL)
        self.command.wait()
        self._reader.join(LIMIT_S)
        os.close(self._ours)


def working_in(folder):
    """The processes that work inside a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (place / "cwd").readlink().is_relative_to(folder):
                found.append(int(place.name))
    return found
