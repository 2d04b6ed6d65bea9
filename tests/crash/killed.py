"""The program that is killed: sessions with tools of all effects and a subagent; says what was acknowledged to it."""

import asyncio
import os
import random
import sys

import trio

from callboard.actors import Accepted, Call, Prompt, Reply, tool
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime

SESSIONS_MAX = 4


def say(line: str) -> None:
    """One line that is out before anything else happens."""
    os.write(1, f"{line}\n".encode())


async def work() -> str:
    """Take a moment, and be seen."""
    await trio.sleep(random.random() * 0.004)
    return "ok"


@tool(effect="none", parallel=True)
async def looks() -> str:
    """Only looks."""
    return await work()


@tool(effect="idempotent", parallel=True)
async def repeats() -> str:
    """May be repeated."""
    return await work()


@tool(effect="once", parallel=True)
async def sends() -> str:
    """Sends something."""
    return await work()


@tool(effect="once")
def blocks() -> str:
    """Sends something from a thread."""
    return "ok"


TOOLS = [looks, repeats, sends, blocks]
PLAN = {"plan": [{"step": "one", "status": "in_progress"}]}


def play(prompt: Prompt) -> Reply:
    """All tools in the first steps; in some turns a subagent that does the same."""
    names = [one.name for one in TOOLS]
    random.shuffle(names)
    calls = [Call(name) for name in names]
    if prompt.step == 1:
        return Reply("first", [*calls, Call("update_plan", PLAN)])
    if prompt.step == 2 and "." not in prompt.session:
        return Reply("second", [Call("spawn_agent", {"task_name": f"t{prompt.turn}", "message": "do it"}), *calls])
    return Reply(f"end of {prompt.turn}")


async def main(url: str, seed: int) -> None:
    """Sessions that get text after text for ever."""
    random.seed(seed)
    async with open_runtime(model=ScriptedModel(play), tools=TOOLS, store=url) as rt:

        async def feed(name: str) -> None:
            s = await rt.create(name)
            say(f"created {name}")
            for n in range(10**6):
                answer = await s.submit(f"text {n}", id=f"{name}-{n}")
                assert isinstance(answer, Accepted)
                say(f"accepted {name} {name}-{n}")
                if random.random() < 0.3:
                    await s.interrupt()
                if random.random() < 0.6 and answer.turn is not None:
                    ended = await s.wait(answer.turn)
                    say(f"ended {name} {ended.turn} {ended.reason}")
                await s.resume_queue()

        await asyncio.gather(*(feed(f"s{n}") for n in range(SESSIONS_MAX)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
