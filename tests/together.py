"""`python -m tests.together`: all tests in two processes, so that two cores have something to do.

One has what measures real time, one after the other, and shows it as it comes; beside it run those whose clocks are
virtual, and what they say follows. With arguments it is pytest with these arguments, and nothing else.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).resolve().parent
REAL_TIME = ("bench", "crash", "host")  # folders whose tests wait for clocks, programs and disks
PYTEST = (sys.executable, "-m", "pytest")
INTERRUPTED_CODE = 130


def halves() -> tuple[list[str], list[str]]:
    """What runs beside, and what measures real time: every folder and file of tests is in one of them."""
    virtual: list[str] = []
    real: list[str] = []
    for path in sorted(TESTS.iterdir()):
        if path.is_dir() and any(path.glob("test_*.py")):
            (real if path.name in REAL_TIME else virtual).append(str(path))
        elif path.match("test_*.py"):
            virtual.append(str(path))
    return virtual, real


def main(arguments: Sequence[str]) -> int:
    """The exit code of pytest, the larger one of two."""
    if arguments:
        return subprocess.run((*PYTEST, *arguments), check=False).returncode
    virtual, real = halves()
    with tempfile.TemporaryFile() as said:
        beside = subprocess.Popen((*PYTEST, *virtual), stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        try:
            code = subprocess.run((*PYTEST, *real), check=False).returncode
            code = max(code, beside.wait())
        except KeyboardInterrupt:
            beside.terminate()
            beside.wait()
            code = INTERRUPTED_CODE
        said.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(said.read())
        sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
