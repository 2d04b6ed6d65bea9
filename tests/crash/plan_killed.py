"""The program that is killed: session after session whose plan is approved and handed over to a session of its own."""

import asyncio
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from callboard.actors import Call, Prompt, Reply
from callboard.actors.asked import QUESTIONS
from callboard.actors.messages import AnswerQuestion
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime
from callboard.runtime.config import config_of

CONFIG = config_of({"plugins": {"plan_mode": {"execution": "clear"}}})


def say(line: str) -> None:
    """One line that is out before anything else happens."""
    os.write(1, f"{line}\n".encode())


def play(prompt: Prompt) -> Reply:
    """A plan, presented in Plan mode; anything else is done at once."""
    if prompt.effort is not None and prompt.step == 1:
        return Reply("here", [Call("exit_plan_mode", {"plan": f"# Plan of {prompt.session}"})])
    return Reply("done")


def answer(question: str, reply: Callable[[Any], None]) -> AnswerQuestion:
    """The approval of a plan."""
    return AnswerQuestion(question, ("Approve",), reply=reply)


async def main(url: str) -> None:
    """Plan after plan, for ever."""
    async with open_runtime(CONFIG, model=ScriptedModel(play), store=url) as rt:
        for n in range(10**6):
            s = await rt.create(f"s{n}")
            await s.set_mode("plan")
            await s.submit("plan it")
            while not (asked := rt.actor(s.id).log[QUESTIONS]):
                await asyncio.sleep(0)
            await s._ask(partial(answer, asked[0].id))
            say(f"approved {s.id}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
