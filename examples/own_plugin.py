"""A plugin of your own: what the model learns with its tool is an event, a fold, and a note before each turn."""

import asyncio

from callboard.actors import Call, Enter, Event, Message, Plugin, Projection, Reply, View, tool
from callboard.actors.testing import ScriptedModel
from callboard.runtime import DEFAULT, open_runtime


class LessonLearned(Event, frozen=True):
    """Something to keep in mind, from here on."""

    text: str


def lessons(known: tuple[str, ...], event: Event) -> tuple[str, ...]:
    """All that was learned so far, folded from the log."""
    return (*known, event.text) if isinstance(event, LessonLearned) else known


LESSONS = Projection[tuple[str, ...]]("lessons", (), lessons, on=(LessonLearned,), state=tuple[str, ...])


@tool(effect="idempotent", mutates=False)
def learn(lesson: str, view: View) -> str:
    """Keep a lesson for later turns, in one sentence."""
    if lesson not in view[LESSONS]:
        view.append(LessonLearned(lesson))
    return "Learned."


async def remind(view: View, messages: tuple[Message, ...]) -> Enter:
    """Put what was learned before into the prompt, beside each new input."""
    if messages and (known := view[LESSONS]):
        text = f"Keep in mind: {' '.join(known)}"
        messages = (*messages, Message(f"lessons-{messages[0].id}", text, "notice"))
    return Enter(messages)


LESSONS_PLUGIN = Plugin("lessons", (LessonLearned,), (LESSONS,), tools=(learn,), before_step=remind)
# A package that offers it to every runtime says so in its pyproject.toml:
#     [project.entry-points."callboard.plugins"]
#     lessons = "your_package:LESSONS_PLUGIN"


async def main() -> None:
    """Two turns: one learns, the next one is reminded."""
    model = ScriptedModel(
        [Reply("", [Call("learn", {"lesson": "Bees dislike smoke."})]), Reply("Noted."), Reply("No.")]
    )
    async with open_runtime(model=model, plugins=(*DEFAULT, LESSONS_PLUGIN)) as rt:
        session = await rt.create()
        await session.run("Remember: bees dislike smoke.")
        await session.run("Shall I smoke near the hive?")
        print(session.state()["lessons"])
        print(model.prompts[-1].messages[-1].text)


if __name__ == "__main__":
    asyncio.run(main())
