"""`python -m tests.bench [NAME ...]` from the root of the tree: each row in a program of its own, then a table."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from . import table
from .row import PACKAGE, ROOT, Row, Taken, side, take
from .rows import named

ROUNDS = 3
ROW_S_MAX = 120.0
ERROR_MAX_CHARS = 2_500


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write; 1 when a row failed, 2 for a name that means no row."""
    options = _options(arguments)
    try:
        rows = named(options.names)
    except LookupError as unknown:
        print(f"callboard bench: {unknown.args[0]}", file=sys.stderr)
        return 2
    if options.list:
        for row in rows:
            print(f"{row.name:24}{row.what}")
        return 0
    if options.side:
        print(msgspec.json.encode(side(rows[0], options.side, quick=options.quick)).decode(), flush=True)
        os._exit(0)  # what is still alive needs no ending
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    if options.here:
        print(msgspec.json.encode(take(rows[0], rounds, quick=options.quick)).decode())
        return 0
    return _all(rows, rounds, quick=options.quick, file=options.json)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "callboard bench", description="Callboard beside a hand-written floor of each workload; compare the ratios."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a group (step) or a row (step.normal.200); all if none"
    )
    parser.add_argument("--rounds", type=int, help=f"how often each side runs (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, and no figure to believe")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append one JSON line for each row")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # one row, in this program
    parser.add_argument("--side", choices=("ours", "floor"), help=argparse.SUPPRESS)  # of a row that is measured apart
    return parser.parse_args(arguments)


def _all(rows: Sequence[Row], rounds: int, *, quick: bool, file: Path | None) -> int:
    begun_s, failed, over = time.monotonic(), list[str](), list[str]()
    print(table.head(), flush=True)
    for row in rows:
        taken = _apart(row, rounds, quick=quick)
        if isinstance(taken, str):
            failed.append(row.name)
            print(f"{row.what}\n{row.name}: FAILED\n{taken}", flush=True)
            continue
        told = list(table.lines(row, taken))
        over.extend([row.name] if any(line.endswith("OVER") for line in told) else [])
        print("\n".join(told), flush=True)
        if file is not None:
            with file.open("ab") as lines:
                lines.write(msgspec.json.encode(taken) + b"\n")
    seconds = time.monotonic() - begun_s
    print(f"\n{len(rows)} rows, {rounds} rounds, {seconds:.0f} s; over their goal: {', '.join(over) or 'none'}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _apart(row: Row, rounds: int, *, quick: bool) -> Taken | str:
    """Measure a row in a fresh interpreter; what went wrong, as text."""
    command = [sys.executable, "-m", PACKAGE, row.name, "--here", "--rounds", str(rounds)]
    if quick:
        command.append("--quick")
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=ROW_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        return f"took more than {ROW_S_MAX:.0f} s"
    if done.returncode:
        return done.stderr[:ERROR_MAX_CHARS]
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Taken)


if __name__ == "__main__":
    sys.exit(main())
