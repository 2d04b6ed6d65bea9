"""`python -m tests.together`: all tests in three processes, so that two cores always have something to do.

One runs those that kill programs and those whose clocks are virtual, one all others that start programs, one the rest,
which waits for real time; that one is shown as it comes, and what the others say follows. With arguments it is pytest
with these, and no more.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

TESTS = Path(__file__).resolve().parent
FIRST: Final = ("crash", "pure", "trio")
STARTING: Final = ("subprocess", "from .terminal", "from .commanded", "from .coded", "from .prompted")
"""Words of a file whose tests start programs."""
WAITING: Final = ("test_mcp", "test_wire", "test_tracing", "test_models", "test_postgres")
"""Beginnings of names of files whose programs are servers, for which their tests mostly wait."""

PYTEST: Final = (sys.executable, "-m", "pytest")
INTERRUPTED_CODE: Final = 130
SIGNALLED_CODE: Final = 128
UNCACHED: Final = "PYTHONDONTWRITEBYTECODE"
"""Where it is set, each of some hundred programs that tests start compiles every module anew: a part of its time."""


class Parts(NamedTuple):
    """Folders and files of tests; each is in one of them."""

    first: list[str]
    programs: list[str]
    real: list[str]


def parts() -> Parts:
    """Which tests run where."""
    found = Parts([], [], [])
    for path in sorted(TESTS.iterdir()):
        if path.match("test_*.py"):
            found.first.append(str(path))
        elif path.is_dir() and any(path.glob("test_*.py")):
            if path.name in FIRST:
                found.first.append(str(path))
            else:
                for file in sorted(path.glob("test_*.py")):
                    starts = any(word in file.read_text(encoding="utf-8") for word in STARTING)
                    starts = starts and not file.name.startswith(WAITING)
                    (found.programs if starts else found.real).append(str(file))
    return found


def worst(codes: Iterable[int]) -> int:
    """The largest exit code; a part that a signal ended has a negative one, and is a failure."""
    return max(code if code >= 0 else SIGNALLED_CODE - code for code in codes)


def main(arguments: Sequence[str]) -> int:
    """The exit code of pytest, the largest of three."""
    environment = {name: value for name, value in os.environ.items() if name != UNCACHED}
    if arguments:
        return worst([subprocess.run((*PYTEST, *arguments), env=environment, check=False).returncode])
    first, programs, real = parts()
    with ExitStack() as files:
        beside = []
        for tests in (first, programs):
            said = files.enter_context(tempfile.TemporaryFile())
            command = (*PYTEST, *tests)
            one = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
            )
            beside.append((one, said))
        try:
            code = subprocess.run((*PYTEST, *real), env=environment, check=False).returncode
            code = worst((code, *(one.wait() for one, _ in beside)))
        except KeyboardInterrupt:
            for one, _ in beside:
                one.terminate()
                one.wait()
            code = INTERRUPTED_CODE
        for _, said in beside:
            said.seek(0)
            sys.stdout.flush()
            sys.stdout.buffer.write(said.read())
            sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
