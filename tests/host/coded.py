"""What tests of code share: a turn whose model runs a program, and what came of it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from callboard.actors import Accepted, Call, Delta, Envelope, Event, Hook, Reply, Result, TurnEnded, tool
from callboard.actors.events import ToolReturned
from callboard.actors.plugin import Plugin
from callboard.actors.testing import ScriptedModel
from callboard.actors.tool import Tool
from callboard.plugins import DEFAULT
from callboard.plugins.code import CODE
from callboard.runtime import open_runtime


@tool(effect="none", parallel=True)
async def grep(pattern: str, path: str | None = None) -> str:
    """Look for a pattern."""
    if pattern == "bad":
        raise ValueError("bad pattern")
    return f"found {pattern}"


@attrs.frozen
class Ran:
    """One program: what the model reads, how its call ended, and the results of the calls it made."""

    text: str
    receipt: str
    ended: TurnEnded
    inner: tuple[ToolReturned, ...]
    folder: str

    @property
    def printed(self) -> str:
        """What stands behind `Output:`."""
        return self.text.partition("utput:\n")[2]


async def ran(
    source: str,
    *,
    plugin: Plugin = CODE,
    plugins: Sequence[Plugin] = DEFAULT,
    tools: Sequence[Tool] = (grep,),
    hooks: Sequence[Hook] = (),
    meanwhile: Any = None,
) -> Ran:
    """Run a program as the one call of a turn; `meanwhile(session)` runs beside it."""
    source = f"import os; print(os.getcwd())\n{source}"
    model = ScriptedModel([Reply("", [Call("code", {"source": source}, "c")]), Reply("done")])
    async with open_runtime(model=model, plugins=(*plugins, plugin), tools=tools, hooks=hooks) as rt:
        session = await rt.create()
        accepted = await session.submit("go")
        assert isinstance(accepted, Accepted)
        if meanwhile is not None:
            await meanwhile(session)
        ended = await session.wait(accepted.turn)
        assert ended is not None
        events: list[Event] = []
        async with session.events() as reading:
            async for item in reading:
                if isinstance(item, Envelope):
                    events.append(item.event)
                if isinstance(item, Envelope) and isinstance(item.event, TurnEnded):
                    break
    returned = [event for event in events if isinstance(event, ToolReturned)]
    outer = returned[-1]
    assert (outer.call, outer.cell) == ("c", None)
    folder, _, _ = outer.text.partition("utput:\n")[2].partition("\n")
    text = outer.text.replace(f"{folder}\n", "", 1) if folder.startswith("/") else outer.text
    results = [m for prompt in model.prompts for m in prompt.messages if isinstance(m, Result)]
    assert {m.call for m in results} <= {"c"}
    return Ran(text, outer.receipt, ended, tuple(returned[:-1]), folder)


async def spoken(session: Any, text: str) -> None:
    """Return once the program printed this."""
    heard = ""
    async with session.events(deltas=True) as reading:
        async for item in reading:
            if isinstance(item, Delta) and item.part == "output":
                heard += item.text
            if text in heard:
                return


def left(folder: str) -> list[str]:
    """What is still there of a program's folder, once it had seconds that only a loaded machine needs."""
    ends_at = time.monotonic() + 5
    while Path(folder).exists() and time.monotonic() < ends_at:
        time.sleep(0.005)
    return [str(path) for path in (Path(folder), *Path(folder).rglob("*"))] if Path(folder).exists() else []
