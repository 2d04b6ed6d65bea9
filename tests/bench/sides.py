"""Callboard's side of the rows: a model that answers at once, the tools of the workloads, a runtime on any store."""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import trio

from callboard.actors import Call, Reply, TurnEnded, Usage, tool
from callboard.actors.model import Prompt, Say
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Bounds

CALLS_MAX = 10
STEPS_MAX = CALLS_MAX + 1
PLAN = {"plan": [{"step": f"step {i}", "status": "in_progress" if i == 0 else "pending"} for i in range(4)]}


class Instant:
    """A model that answers at once, by the number of the step: like a list told anew in each turn."""

    provider = "scripted"

    def __init__(self, replies: Sequence[Reply]) -> None:
        usage = Usage(input=10, output=5)
        self._replies = [Reply(reply.text, reply.calls, usage) for reply in replies]

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """The reply of this step; one checkpoint, as any model has."""
        await trio.lowlevel.checkpoint()
        reply = self._replies[prompt.step - 1]
        if reply.text:
            say(reply.text)
        return reply


GcPolicy: TypeAlias = Literal["manage", "leave"]


def with_gc(gc_policy: GcPolicy) -> RuntimeConfig:
    """Settings of a runtime whose process manages its garbage, or leaves it."""
    return RuntimeConfig(runtime=Bounds(gc_policy=gc_policy))


def script(calls: int = CALLS_MAX) -> list[Reply]:
    """One call a step, the middle one a plan update, then the answer."""
    asked = [Call("update_plan", PLAN) if at == calls // 2 else Call("add", {"a": at, "b": 2}) for at in range(calls)]
    return [*(Reply(calls=[call]) for call in asked), Reply("done")]


@tool(effect="once")
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def is_whole(ended: TurnEnded, calls: int = CALLS_MAX) -> bool:
    """Whether a turn of `script` did all it had to."""
    receipts = [receipt.receipt for receipt in ended.receipts]
    return (ended.reason, ended.steps, ended.tool_calls, ended.last_message, receipts) == (
        "completed",
        calls + 1,
        calls,
        "done",
        ["completed"] * calls,
    )


@asynccontextmanager
async def runtime(store: str = "memory", **options: Any) -> AsyncIterator[Any]:
    """A runtime on `memory`, or on a new SQLite file with durability `normal` or `full`."""
    with tempfile.TemporaryDirectory() as folder:
        url = store if store == "memory" else f"sqlite:///{Path(folder) / 'bench.db'}?durability={store}"
        options.setdefault("model", Instant(script()))
        async with open_runtime(store=url, **{"tools": [add], **options}) as rt:
            yield rt
