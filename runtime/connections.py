"""Connections: the configured servers of tools under one supervisor, and their tools in the catalogue."""

import logging
import random
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from callboard import __version__
from callboard.actors.childspec import ChildSpec, Intensity
from callboard.actors.errors import UsageError
from callboard.actors.notices import ToolSkipped
from callboard.actors.tool import Tool
from callboard.plugins.mcp import SHUTDOWN_S, Connection, Sdk
from callboard.plugins.mcp_server import Server
from callboard.plugins.mcp_tools import Belief, ServerTool
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.ground import Ground
from callboard.runtime.settings import McpConfig
from callboard.runtime.supervisor import Supervisor
from callboard.runtime.waiting import Pending

LOGGER = logging.getLogger("callboard")
AGAIN: Final = Intensity(restarts_max=1000, period_s=1.0)  # a connection waits itself before it tries again
NAME: Final = "mcp"
NOT_YET: Final = "MCP server %s is not ready after %g s (wait_s): its tools are there once it is"


def servers_of(config: RuntimeConfig, folder: str) -> dict[str, Server]:
    """The servers by name; `UsageError` for a command that cannot be split, `MissingExtra` without the SDK."""
    chosen = {name: _server(name, one, folder) for name, one in config.mcp.items() if one.enabled}
    if chosen:
        Sdk.check()
    return chosen


def _server(name: str, config: McpConfig, folder: str) -> Server:
    try:
        words = shlex.split(config.command or "")
    except ValueError as error:
        raise UsageError(f"the command of mcp.{name} cannot be split into words ({error}): quote it.") from None
    if config.command is not None and not words:
        raise UsageError(f"the command of mcp.{name} names no program.")
    return Server(
        name=name,
        argv=(*words, *config.args),
        url=config.url or "",
        env=config.env,
        headers=config.headers,
        folder=str(Path(folder) / (config.cwd or "")),
        connect_s=config.connect_s,
        belief=Belief(
            trust=config.trust, parallel=config.parallel, exposure=config.exposure, timeout_s=config.timeout_s
        ),
    )


class Connections:
    """All of them; made only where there are any. `own` are the tools that the runtime has without them."""

    def __init__(self, ground: Ground, config: RuntimeConfig, servers: Mapping[str, Server]) -> None:
        self._ground, self._config = ground, config
        self._own = dict(ground.stage.offer.tools)
        self._shown: tuple[ServerTool, ...] = ()
        self._skipped: set[str] = set()
        sdk = Sdk()
        self.all = tuple(Connection(one, sdk, __version__, self._changed, random.random) for one in servers.values())
        self._settled = Pending()
        self.supervisor = Supervisor(
            ground.guest,
            id=NAME,
            children=[self._child(one) for one in self.all],
            intensity=AGAIN,
            each=AGAIN,
            ends_at_once_max=len(self.all),
            on_notice=ground.notice,
        )

    def _child(self, one: Connection) -> ChildSpec:
        return ChildSpec(f"{NAME}/{one.server.name}", one.run, shutdown_s=SHUTDOWN_S, stop=one.stop, about=one.record)

    async def settle(self) -> None:
        """(asyncio) Return when each was tried once, or the time is over that the slowest may be waited for."""
        waits_s = [self._config.mcp[one.server.name].wait_s for one in self.all]
        loop = self._ground.guest.loop
        timer = loop.call_later(max(waits_s), self._settled.reply, None)
        try:
            await self._settled.get()
        finally:
            timer.cancel()
        for name in (one.server.name for one in self.all if not one.tried):
            LOGGER.warning(NOT_YET, name, max(waits_s))

    def _changed(self) -> None:
        """(a connection) Its tools or its phase changed."""
        if all(one.tried for one in self.all):
            self._settled.reply(None)
        tools = tuple(tool for one in self.all for tool in one.tools)
        if tools != self._shown:
            self._shown = tools
            self._ground.stage.retool(self._merged(tools))

    def _merged(self, tools: tuple[ServerTool, ...]) -> dict[str, Tool]:
        """The runtime's own tools first, as they were, and behind them those of the servers, by their names."""
        merged: dict[str, Tool] = dict(self._own)
        skipped: set[str] = set()
        for tool in sorted(tools, key=lambda one: one.name):
            setting = self._config.tools.get(tool.name)
            if setting is not None and not setting.enabled:
                continue
            if tool.name in merged:
                skipped.add(tool.name)
                continue
            exposure = setting.exposure if setting is not None else None
            merged[tool.name] = tool if exposure is None else attrs.evolve(tool, exposure=exposure)
        for name in sorted(skipped - self._skipped):
            LOGGER.warning("the %s tool %r is left out: another tool has its name", NAME, name)
            self._ground.notice(ToolSkipped(name, NAME))
        self._skipped = skipped
        return merged
