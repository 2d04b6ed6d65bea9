"""What tests of the shell share: a view of one session, commands that are hard to end, and who still lives."""

import itertools
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import outcome
import trio

from callboard.actors.abort import Signal
from callboard.plugins.shell import SHELL

NUMBERS = itertools.count()
ALLOWANCE_S = 0.5  # beside an abort window, for a machine with other things to do


class FakeView:
    """The part of a View that the shell uses; its session ends with the nursery."""

    def __init__(self, nursery: trio.Nursery, folder: Path, window_s: float = 0.1) -> None:
        self._nursery, self.folder, self.window_s = nursery, str(folder), window_s
        self.interrupted = Signal()
        self.belongings: dict[str, Any] = {}
        self.pieces: list[str] = []
        self.spoke = trio.Event()

    def output(self, text: str) -> None:
        self.pieces.append(text)
        self.spoke.set()

    def start_soon(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        self._nursery.start_soon(fn, *args)


def played(play: Callable[[FakeView], Awaitable[Any]], folder: Path, window_s: float = 0.1) -> Any:
    """Run `play(view)` in a session that ends with it, on the real clock."""

    async def session() -> outcome.Outcome[Any]:
        async with trio.open_nursery() as nursery:
            view = FakeView(nursery, folder, window_s)
            result: outcome.Outcome[Any] = await outcome.acapture(play, view)
            for thing in list(view.belongings.values()):
                thing.close()
            nursery.cancel_scope.cancel()
        return result

    return trio.run(session).unwrap()


async def call(view: FakeView, name: str = "shell", plugin=SHELL, **arguments: Any) -> Any:
    """What a dispatcher does with one call: parse, run."""
    tool = next(one for one in plugin.tools if one.name == name)
    args, kwargs = tool.bind(tool.parse(arguments), view)
    answer = tool.fn(*args, **kwargs)
    return await answer if isinstance(answer, Awaitable) else answer


async def until_it_speaks(view: FakeView, text: str = "") -> None:
    """Wait until the command printed something that holds `text`."""
    with trio.fail_after(10):
        while text not in "".join(view.pieces) or not view.pieces:
            view.spoke = trio.Event()
            await view.spoke.wait()


def mark() -> str:
    """Seconds to sleep that no other test sleeps: what is alive can be found by it."""
    return f"{3600 + next(NUMBERS)}.{os.getpid()}"


def stubborn(seconds: str) -> str:
    """A command line whose descendants ignore TERM, have sessions of their own, lost their parents, hold stdout."""
    lasting = f"sleep {seconds}"
    return (
        f"trap '' TERM INT HUP; "
        f"setsid sh -c 'trap \"\" TERM; (setsid {lasting} &); {lasting}; {lasting}' & "
        f"({lasting} & ); ( ({lasting} & ) & ); {lasting} & "
        f"until [ $(pgrep -f -x '{lasting}' | wc -l) -ge 5 ]; do sleep 0.01; done; echo ready; "
    )


def alive(text: str) -> list[int]:
    """The processes with `text` in their command line, zombies left out."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if text.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def gone(text: str) -> bool:
    """Whether all of these are gone, or go within seconds that only a loaded machine needs."""
    ends_at = time.monotonic() + 5
    while alive(text) and time.monotonic() < ends_at:
        time.sleep(0.005)
    return not alive(text)


def children() -> list[int]:
    """The children of this program, zombies included."""
    tasks = Path("/proc/self/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
