"""Metrics of the control tools, on a registry of your own and over HTTP."""

import asyncio
import urllib.request

from prometheus_client import CollectorRegistry

from callboard.actors import Call, Hook, Reply, Rewrite, ToolCall
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime, serve_metrics


def shorten(call: ToolCall) -> Rewrite | None:
    """A hook sees every call in the tree; this one rewrites plans to their first step."""
    if call.name != "update_plan" or len(call.arguments["plan"]) < 2:
        return None
    return Rewrite({"plan": call.arguments["plan"][:1]})


async def main() -> None:
    """One call that is taken, one that is refused; then what a scraper sees."""
    steps = [{"step": str(n), "status": "pending"} for n in range(3)]
    refused = [{"content": "x", "status": "pending"}, {"content": " x ", "status": "pending"}]
    calls = [Call("update_plan", {"plan": steps}), Call("todo_write", {"todos": refused})]
    registry = CollectorRegistry()
    hooks = [Hook("shorten", before_tool=shorten)]
    async with open_runtime(model=ScriptedModel([Reply("", calls)]), hooks=hooks, registry=registry) as rt:
        session = await rt.create()
        await session.run("Plan it.")
        server = serve_metrics(rt, port=0)
        try:
            text = await asyncio.to_thread(fetch, f"http://127.0.0.1:{server.port}/metrics")
        finally:
            await asyncio.to_thread(server.close)
    lines = (line for line in text.splitlines() if line.startswith("callboard_control_tool_calls_total{"))
    print("\n".join(line for line in lines if not line.endswith(" 0.0")))


def fetch(url: str) -> str:
    """What is there."""
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own address
        return str(answer.read().decode())


if __name__ == "__main__":
    asyncio.run(main())
