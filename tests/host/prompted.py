"""A program that runs one task as `callboard run` does, with a model that asks; what was said is in its last answer."""

import asyncio
import sys
from pathlib import Path

from callboard.actors import Call, Prompt, Reply, tool
from callboard.actors.model import Result
from callboard.actors.testing import ScriptedModel
from callboard.plugins import SCHEDULE_PLUGIN
from callboard.plugins.ask import ask_plugin
from callboard.plugins.plan_mode import PLAN_MODE_PLUGIN
from callboard.runtime import Runtime, RuntimeConfig, open_runtime
from callboard.runtime.doors.output import settle_streams, standard_output
from callboard.runtime.doors.program import Program
from callboard.runtime.doors.run import Run, RunOptions

NASTY = "\x1b[31mred\x1b]0;title\x07\u202e"


@tool
async def save(text: str) -> str:
    """Changes something."""
    return f"saved {text}"


def question(id: str, text: str = "") -> dict[str, object]:
    """One question."""
    options = [{"label": "red"}, {"label": "blue", "description": "as the sea"}]
    return {"id": id, "header": "Paint", "question": text or f"Which {id}?", "options": options}


CALLS = {
    "ask": [Call("request_user_input", {"questions": [question("wall"), question("door")]}, "q")],
    "nasty": [Call("request_user_input", {"questions": [question("wall", NASTY)]}, "q")],
    "save": [Call("save", {"text": "one"}, "c1"), Call("save", {"text": NASTY}, "c2")],
    "soon": [Call("schedule_create", {"prompt": "Look at the paint.", "after_seconds": 1})],
    "remind": [Call("schedule_create", {"prompt": "Look at the paint.", "after_seconds": 86_400})],
    "both": [Call("request_user_input", {"questions": [question("wall")]}, "q"), Call("save", {"text": "one"}, "c1")],
}


PLANS = ("plan red", "plan blue")


def play(prompt: Prompt) -> Reply:
    """Calls by the name of the task; then say what came of it."""
    said = next(message.text for message in reversed(prompt.messages) if getattr(message, "source", "") != "notice")
    if said in PLANS:
        return Reply(f"Here it is.\n<proposed_plan>\n- {said} the wall\n</proposed_plan>\n")
    if prompt.step == 1 and said in CALLS:
        return Reply("", CALLS[said])
    results = [message.text for message in prompt.messages if isinstance(message, Result)]
    return Reply("heard " + (" ".join(results) if isinstance(prompt.messages[-1], Result) else said))


def main() -> int:
    """`TASK STORE SESSION [--json] [--plan]`."""
    settle_streams()
    task, store, session, *flags = sys.argv[1:]
    config = RuntimeConfig()
    options = RunOptions(config, store, task, session=session, plan="--plan" in flags, json="--json" in flags)
    plugins = [ask_plugin(default_mode=True, policy="ask"), SCHEDULE_PLUGIN, PLAN_MODE_PLUGIN]
    rt = open_runtime(config, model=ScriptedModel(play), plugins=plugins, tools=[save], store=store)
    program = Program(standard_output({"TERM": "xterm"}))

    async def both() -> int:
        client = asyncio.ensure_future(elsewhere(rt))
        try:
            return await Run(options, program, rt, task).all()
        finally:
            client.cancel()

    return program.run(both)


async def elsewhere(rt: Runtime) -> None:
    """Another client: once there is a file `answer`, it answers all questions with blue."""
    there = Path("answer").exists
    while not there():
        await asyncio.sleep(0.02)
    for one in rt.sessions():
        for asked in one.state()["questions"]:
            await one.answer(asked["id"], ["blue"])


if __name__ == "__main__":
    sys.exit(main())
