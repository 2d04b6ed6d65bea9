"""What tests of calls inside calls share: a tool that uses others, and tools to be used."""

from typing import Any

import trio

from callboard.actors.books import HISTORY
from callboard.actors.errors import CallOver, FatalToolError, ToolError
from callboard.actors.events import (
    Call,
    TurnEnded,
)
from callboard.actors.model import Reply, Result
from callboard.actors.plugin import Hook, View
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import Tool, tool

from .acts import TOOLS
from .strict import check_history, check_log

STEPS = {"plan": [{"step": "a", "status": "pending"}]}


@tool(parallel=True, effect="none")
async def fatal() -> str:
    """Ends the turn."""
    raise FatalToolError("over")


@tool(graceful=True, parallel=True)
async def careful(view: View) -> str:
    """Ends when it is told."""
    await view.interrupted.wait()
    await trio.sleep(0.05)
    return "in time"


@tool(exposure="hidden", effect="none")
async def secret() -> str:
    """Is nothing for models."""
    return "hidden"


def user(*uses: tuple[str, Any], parallel: bool = False, allowed: frozenset[str] | None = None) -> tuple[Tool, list]:
    """A tool that uses others, one after the other or all at once, and what came of it."""
    results: list[Any] = []

    @tool(graceful=True)
    async def cell(view: View) -> str:
        """Uses other tools."""

        async def use(name: str, arguments: Any, after_s: float = 0) -> None:
            await trio.sleep(after_s)
            try:
                results.append(await view.use_tool(name, arguments, allowed=allowed))
            except (CallOver, ToolError) as error:
                results.append(error)

        async with trio.open_nursery() as nursery:
            for at, (name, arguments) in enumerate(uses):
                if parallel:
                    nursery.start_soon(use, name, arguments, at / 1000)
                else:
                    await use(name, arguments)
        return f"{len(results)} results"

    return cell, results


async def told(cell: Tool, *hooks: Hook, plugins: Any = ()) -> tuple[list[Any], TurnEnded]:
    """The events of a turn that calls the cell, and its end."""
    model = ScriptedModel([Reply(calls=[Call("cell", {}, "c")]), Reply("on")])
    async with open_lab(model, tools=[cell, *TOOLS, fatal, secret], hooks=hooks, plugins=plugins) as lab:
        session = await lab.session()
        ended = await session.run("go")
        check_history(session.state(HISTORY).messages)
        check_log(lab.records())
        results = [m for m in session.state(HISTORY).messages if isinstance(m, Result)]
        assert [m.call for m in results] == ["c"]
        return lab.records(), ended
