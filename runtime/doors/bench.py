"""callboard bench: runs the benchmarks of a source tree, as a program of its own."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import callboard
from callboard.actors.errors import UsageError

NOT_HERE = "the benchmarks are in the source tree, not in an installed package: run make bench in a checkout."


def bench(arguments: Sequence[str]) -> int:
    """Run `python -m tests.bench` with these arguments in the tree that this package is installed from."""
    root = Path(callboard.__file__).resolve().parents[2]  # .dev/callboard/__init__.py
    if not (root / "tests" / "bench" / "__main__.py").is_file():
        raise UsageError(NOT_HERE)
    return subprocess.call([sys.executable, "-m", "tests.bench", *arguments], cwd=root)  # noqa: S603 - ourselves
