"""A parent and three subagents at the same time; a reader follows the parent's log while they work."""

import asyncio

import trio

from callboard.actors import Call, ChildEnded, Envelope, Prompt, Reply, TurnEnded, tool
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime

NAMES = ("ants", "bees", "wasps")


@tool(effect="none", parallel=True)
async def study(subject: str) -> str:
    """Read about a subject, slowly."""
    await trio.sleep(0.3)
    return f"{subject}: six legs"


def play(prompt: Prompt) -> Reply:
    """Both parts: the parent spawns and waits, a child studies and reports."""
    if "." in prompt.session:  # a child's id is its parent's, a dot, and its name
        name = prompt.session.rpartition(".")[2]
        return Reply("", [Call("study", {"subject": name})]) if prompt.step == 1 else Reply(f"{name} done")
    if prompt.step == 1:
        return Reply("", [Call("spawn_agent", {"task_name": n, "message": f"Study {n}."}) for n in NAMES])
    return Reply("", [Call("wait_agent")]) if prompt.step == 2 else Reply("All three are back.")


async def main() -> None:
    """Run the parent and print what its log says about its children."""
    async with open_runtime(model=ScriptedModel(play), tools=[study]) as rt:
        session = await rt.create()
        await session.submit("Study insects.")
        async for item in session.events():
            match item:
                case Envelope(event=ChildEnded() as ended):
                    print(f"{ended.child.rpartition('.')[2]} {ended.status}: {ended.text}")
                case Envelope(event=TurnEnded() as ended):
                    print(f"{ended.last_message} ({ended.tool_calls} calls in {ended.steps} steps)")
                    break


if __name__ == "__main__":
    asyncio.run(main())
