"""The runner: a program of its own that runs a model's Python once, within limits, and calls tools from there.

    python -I -S runner.py

Descriptor 3 brings frames, 4 takes them: four bytes of length, then JSON. The first to come says the source and its
limits; then each call goes out as `id`, `name` and `arguments`, and its answer comes in as `id`, `text` and `failed`.
Standard output and error are the code's. The exit code is 0, or 1 after an error, which is told on standard error.

It imports nothing of ours. What it forbids keeps an honest program from mistakes; a malicious one is held by the limits
of its process and by its keeper, and may read what its user may read.
"""

import json
import os
import resource
import sys
import threading
from types import TracebackType
from typing import Any, NoReturn

INWARD, OUTWARD = 3, 4
UNANSWERED_MAX = 32  # then a call waits for an answer first, so that neither side waits for the other to read
NAME = "<code>"
GONE = "the runtime that answers calls is gone"
NO_PROCESS = "code starts no processes: call a tool that does"
FORBIDDEN = frozenset(
    {
        *("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn", "subprocess.Popen"),
        "ctypes.dlopen",  # the way round all of these
    }
)


class ToolError(Exception):
    """A tool failed; the text says how."""


class Line:
    """The way to the tools: calls out, answers in, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._answers: dict[int, dict[str, Any]] = {}
        self._sent = self._heard = 0

    def send(self, name: str, arguments: dict[str, Any]) -> int:
        """Begin a call; its number."""
        with self._lock:
            while self._sent - self._heard >= UNANSWERED_MAX:
                self._hear()
            self._sent += 1
            asked = {"id": self._sent, "name": name, "arguments": arguments}
            body = json.dumps(asked, ensure_ascii=False, allow_nan=False).encode()
            rest = memoryview(len(body).to_bytes(4, "big") + body)
            while rest:
                rest = rest[os.write(OUTWARD, rest) :]
            return self._sent

    def wait(self, number: int) -> str:
        """The text of an answer, once."""
        with self._lock:
            while number not in self._answers:
                self._hear()
            answer = self._answers.pop(number)
        if answer["failed"]:
            raise ToolError(answer["text"])
        text: str = answer["text"]
        return text

    def _hear(self) -> None:
        answer = receive()
        self._answers[answer["id"]] = answer
        self._heard += 1


class Begun:
    """A call that was begun; `result()` waits for its text."""

    def __init__(self, line: Line, number: int) -> None:
        self._line, self._number = line, number
        self._text: str | None = None

    def result(self) -> str:
        """The text; `ToolError` when the tool failed."""
        if self._text is None:
            self._text = self._line.wait(self._number)
        return self._text


class Caller:
    """One tool: call it, or `start` it and ask for its `result()` later."""

    def __init__(self, line: Line, name: str) -> None:
        self._line, self._name = line, name

    def __call__(self, **arguments: Any) -> str:
        """Begin, and wait for the text."""
        return self.start(**arguments).result()

    def start(self, **arguments: Any) -> Begun:
        """Begin, and go on."""
        return Begun(self._line, self._line.send(self._name, arguments))


class Tools:
    """All tools: `tools.NAME(...)`, or `tools["NAME"](...)` for a name that is no identifier."""

    def __init__(self) -> None:
        self._line = Line()

    def __getattr__(self, name: str) -> Caller:
        return Caller(self._line, name)

    __getitem__ = __getattr__


def receive() -> dict[str, Any]:
    """The next frame."""
    frame: dict[str, Any] = json.loads(exactly(int.from_bytes(exactly(4), "big")))
    return frame


def exactly(size: int) -> bytes:
    """So many bytes."""
    found = bytearray()
    while len(found) < size:
        piece = os.read(INWARD, min(size - len(found), 1 << 16))
        if not piece:
            raise ToolError(GONE)
        found += piece
    return bytes(found)


def limit(limits: dict[str, int]) -> None:
    """Each limit of this process by its name, as far as this system knows it; a lower one stays."""
    for name, most in limits.items():
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        last = most + 1 if name == "RLIMIT_CPU" and most != hard else most  # XCPU, then KILL for who ignores that
        try:
            resource.setrlimit(kind, (most, last))
        except (ValueError, OSError):
            continue


def forbid(event: str, _: Any) -> None:
    """What code may not do."""
    if event in FORBIDDEN:
        raise PermissionError(NO_PROCESS)


def run(source: str) -> int:
    """Run the source as a program; its exit code."""
    try:
        space = {"__name__": "__main__", "tools": Tools(), "ToolError": ToolError}
        exec(compile(source, NAME, "exec"), space)  # noqa: S102 - what this program is for
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        sys.stderr.write(f"{error.code}\n")
        return 1
    except BaseException as error:
        tell(error, error.__traceback__ and error.__traceback__.tb_next, source)
        return 1
    return 0


def tell(error: BaseException, trace: TracebackType | None, source: str) -> None:
    """The error and where in the source it came from."""
    try:
        import linecache
        import traceback

        linecache.cache[NAME] = (len(source), None, source.splitlines(keepends=True), NAME)
        traceback.print_exception(type(error), error, trace)
    except BaseException:  # out of memory again, or an error that cannot be printed
        os.write(2, f"{type(error).__name__}\n".encode("utf-8", "replace"))


def main() -> NoReturn:
    """Read what to run, take on its limits, run it, and go at once, whatever threads there are."""
    for fd in (INWARD, OUTWARD):
        os.set_inheritable(fd, False)  # noqa: FBT003 - its only form
    order = receive()
    limit(order["limits"])
    sys.addaudithook(forbid)
    code = run(order["source"])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)


if __name__ == "__main__":
    main()
