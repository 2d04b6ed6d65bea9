"""The small project that the demo works on: texts, a little Python, and a check that hangs."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

README = """\
THE PAPER MOON
An evening for two players and a lamp, in three scenes.

cast.txt     who is on stage
evening.txt  what happens, minute by minute
seats.py     who sits where, and for how much
check.sh     looks whether it all fits together; check.sh --quick leaves the curtain out
"""

CAST = """\
Ada      the lamplighter
Bertram  a guest who came a day too early
Clara    prompts from the left
TODO: find somebody for the bell
"""

EVENING = """\
19:30  The doors open.
20:00  Ada lights the lamp. Bertram is already there.
20:25  The letter is read aloud, twice.
TODO: shorten the second reading
21:10  The moon goes up on its string.
21:15  Curtain.
"""

SEATS = '''\
"""Who sits where, and for how much."""

ROWS = {1: 10, 2: 12, 3: 12, 4: 14, 5: 16, 6: 16, 7: 16}


def seats() -> int:
    """How many people fit in."""
    return sum(ROWS.values())


def price(row: int) -> int:
    """The price in this row."""
    # TODO: a lower one for children
    return 24 - 2 * row
'''

CHECK = '''\
"""Look whether the evening fits together; --quick leaves the curtain out."""

import os
import subprocess
import sys
import time

from seats import ROWS, price, seats

CHECKS = {
    "96 people fit in": seats() == 96,
    "the front costs more": price(1) > price(max(ROWS)),
    "nobody is paid to come": price(max(ROWS)) > 0,
}


def curtain() -> None:
    """Wait for the curtain, which nobody ever raises."""
    bell = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(f"waiting for the curtain: pid {os.getpid()}, and a bell: pid {bell.pid}", flush=True)
    for second in range(1, 600):
        time.sleep(1)
        print(f"the curtain is still down after {second} s", flush=True)


for name, holds in CHECKS.items():
    time.sleep(0.3)
    print(f"{'ok' if holds else 'FAILED'}: {name}", flush=True)
if "--quick" not in sys.argv:
    curtain()
print(f"{sum(CHECKS.values())} of {len(CHECKS)} quick checks pass.")
'''

FILES: Mapping[str, str] = MappingProxyType(
    {"README.txt": README, "cast.txt": CAST, "evening.txt": EVENING, "seats.py": SEATS, "check.py": CHECK}
)


def make_project(folder: Path) -> None:
    """Write the project into an empty folder; its check runs under this very Python."""
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "check.sh").write_text(f'exec {shlex.quote(sys.executable)} -B check.py "$@"\n', encoding="utf-8")
