"""What tests of the ask plugin share: calls that ask, tools that need an approval, somebody who reads."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from callboard.actors.asked import APPROVALS, QUESTIONS
from callboard.actors.events import Call, ToolReturned
from callboard.actors.model import Reply
from callboard.actors.plugin import Plugin
from callboard.actors.testing import Lab, LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool
from callboard.plugins.ask import ask_plugin

from .strict import check_log, of_kind, until

COLOURS = [{"label": "red"}, {"label": "blue", "description": "as the sea"}]


def question(id: str = "colour", **fields: Any) -> dict[str, Any]:
    """One question as a model writes it."""
    return {"id": id, "header": "Paint", "question": f"Which {id}?", "options": COLOURS, **fields}


def asking(*questions: Any, id: str = "q") -> Call:
    """A call that asks."""
    return Call("request_user_input", {"questions": list(questions or (question(),))}, id)


def once(*calls: Call) -> ScriptedModel:
    """A model that makes these calls, and then is content."""
    return ScriptedModel([Reply("first", list(calls)), Reply("done")])


class Eyes:
    """A reader of a log, who could answer."""

    def take(self, envelopes: Sequence[Any]) -> None:
        """See it."""


@tool
async def save(text: str) -> str:
    """Changes something."""
    return f"saved {text}"


@tool(effect="none")
async def look() -> str:
    """Changes nothing."""
    return "seen"


def saving(*texts: str) -> list[Call]:
    """Calls that change something."""
    return [Call("save", {"text": text}, f"c{text}") for text in texts]


@asynccontextmanager
async def asked(
    model: ScriptedModel, *, plugins: Sequence[Plugin] = (), fresh: bool = True, read: bool = True, **rest: Any
) -> AsyncIterator[tuple[Lab, LabSession]]:
    """A lab with the ask plugin and a session that somebody reads; its log is checked at the end."""
    plugins = plugins or (ask_plugin(default_mode=True, policy="ask"),)
    async with open_lab(model, plugins=plugins, **{"tools": [save, look], **rest}) as lab:
        session = await lab.session(fresh=fresh)
        if read:
            session.log.follow(Eyes())
        yield lab, session
        await session.stop()
        check_log(lab.records())


async def questions(session: LabSession, count: int = 1) -> list[str]:
    """The ids of the open questions, once there are so many."""
    await until(lambda: len(session.state(QUESTIONS)) == count)
    return [one.id for one in session.state(QUESTIONS)]


async def approvals(session: LabSession, count: int = 1) -> list[str]:
    """The ids of the open approvals, once there are so many."""
    await until(lambda: len(session.state(APPROVALS)) == count)
    return [one.id for one in session.state(APPROVALS)]


def results(lab: Lab, id: str = "s") -> list[tuple[str, str]]:
    """Receipt and text of each call."""
    return [(e.receipt, e.text) for e in of_kind(lab.records(id), ToolReturned)]


def answers(text: str) -> dict[str, list[str]]:
    """What the model reads of `request_user_input`, by question."""
    said = msgspec.json.decode(text)
    assert ["answers"] == list(said)
    assert all(["answers"] == list(one) for one in said["answers"].values())
    return {id_: one["answers"] for id_, one in said["answers"].items()}
