"""A plugin that asks, guards, commands and reads along, and what a client says to it."""

from collections.abc import Sequence
from typing import Any

from callboard.actors.books import TURN
from callboard.actors.events import Call, Event, MessageQueued
from callboard.actors.facts import (
    Option,
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
    ToolsFound,
)
from callboard.actors.messages import AnswerQuestion, Approve, Refused, UseCommand
from callboard.actors.model import Reply
from callboard.actors.plugin import Command, Concluded, Did, Plugin, ToolCall, View
from callboard.actors.testing import LabSession, ScriptedModel
from callboard.actors.tool import Tool, tool

YES_NO = (Option("Yes"), Option("No", "rather not"))


@tool(effect="none", control=True)
async def poll(view: View) -> str:
    """Ask the user."""
    answer = await view.ask_user("Go on?", YES_NO, by="poll", header="Go", detail="the whole story")
    return f"{answer.ending}: {answer.selected} {answer.text}"


@tool(effect="none")
async def finish(view: View) -> Concluded:
    """End the turn."""
    return Concluded({"done": True})


@tool
async def write(text: str) -> str:
    """Write something."""
    return text.upper()


def _answered(view: View, asked: QuestionAsked, answer: QuestionAnswered) -> Sequence[Event]:
    if answer.text == "break":
        raise RuntimeError("a bug of the plugin's")
    waits = view[TURN].open and view[TURN].calls.is_open(asked.call)
    return () if waits else (MessageQueued(f"answer:{asked.id}", f"{asked.question} {answer.selected}", "user"),)


def _command(view: View, rest: Any) -> Did | Refused:
    match rest:
        case "say":
            return Did((MessageQueued("own:1", "said by a command", "user"),))
        case "break":
            raise RuntimeError("a bug of the plugin's")
        case "wrong":
            return Did((MessageQueued("own:2", object(), "user"),))  # type: ignore[arg-type]  # a plugin's mistake
        case "":
            return Refused("invalid_command", "/poll needs a word")
    return Did((ToolsFound((rest,)),), f"found {rest} in turn {view.turn}")


async def _guard(view: View, call: ToolCall, one: Tool) -> str | None:
    if call.arguments == {"text": "bug"}:
        raise RuntimeError("a bug of the plugin's")
    if not one.mutates or not call.arguments["text"].startswith("ask"):
        return None if one.name != "write" or call.arguments["text"] != "no" else "writing no is not allowed"
    decided = await view.ask_approval(call)
    return None if decided.decision.startswith("allow") else f"{decided.decision}: {decided.feedback}"


class Upper:
    """Takes lines that begin with ! out of the text, as proposals."""

    def feed(self, piece: str) -> list[tuple[str, str]]:
        """Everything at once."""
        return [("plan" if piece.startswith("!") else "text", piece)]

    def end(self) -> list[tuple[str, str]]:
        """Nothing is held back."""
        return []

    def read(self, text: str) -> tuple[str, list[Event]]:
        """The lines apart."""
        lines = text.split("\n")
        plans = [line for line in lines if line.startswith("!")]
        said = "\n".join(line for line in lines if not line.startswith("!"))
        return said, [PlanProposed("p", plan) for plan in plans]

    def cut(self, text: str) -> str:
        """What is no proposal."""
        return self.read(text)[0]


POLL = Plugin(
    "poll",
    tools=(poll, finish, write),
    commands=(Command("poll", _command, "WORD"),),
    guard=_guard,
    answered=_answered,
    reads=lambda view: Upper(),
)


def one_call(name: str, **arguments: Any) -> ScriptedModel:
    """A model that makes one call, and then is content."""
    return ScriptedModel([Reply(calls=[Call(name, arguments)]), Reply("done")])


async def answer(session: LabSession, id: str, *choices: str, text: str | None = None, verb: str | None = None) -> Any:
    """Answer a question."""
    return await session.ask(lambda reply: AnswerQuestion(id, choices, text, verb, reply=reply))


async def approve(session: LabSession, call: str, decision: Any, feedback: str | None = None) -> Any:
    """Decide about a call."""
    return await session.ask(lambda reply: Approve(call, decision, feedback, reply=reply))


async def use(session: LabSession, argument: Any, name: str = "poll", id: str | None = None) -> Any:
    """Use a command."""
    return await session.ask(lambda reply: UseCommand(name, argument, id, reply=reply))


class Eyes:
    """A reader of a log who answers nothing."""

    def take(self, envelopes: Sequence[Any]) -> None:
        """See it."""
