"""Whatever a model or a plugin hands over, the log of the session can be opened again."""

from typing import Any

from callboard.actors.events import Call, ModelSaid, ToolCalled, ToolReturned, Usage
from callboard.actors.facts import TodosWritten
from callboard.actors.model import Prompt, Reply, Say
from callboard.actors.plugin import View
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import tool


class Nameless:
    """A model that does not say what its provider is."""

    provider: Any = None

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """One word."""
        return Reply("hi")


async def test_a_model_without_a_provider_leaves_a_log_that_opens():
    """A provider that is no text is counted as other, and the log is read again."""
    async with open_lab(Nameless()) as lab:
        await (await lab.session()).run("hello")
        said = [event.provider for event in lab.records() if isinstance(event, ModelSaid)]
    assert ["other"] == said


async def test_odd_numbers_and_objects_of_a_model_leave_a_log_that_opens():
    """NaN prices and arguments that are no JSON are taken as they can be kept, live as in a replay."""

    @tool(effect="none", runs_on="trio")
    def look(where: list[int]) -> str:
        """Look."""
        return str(where)

    calls = [Call("look", {"where": (1, 2)}), Call("look", {"where": [float("nan")]}), Call("look", {"where": {3}})]
    model = ScriptedModel([Reply("", calls, Usage(1, cost_usd=float("nan"))), Reply("done")])
    async with open_lab(model, tools=[look]) as lab:
        await (await lab.session()).run("hello")
        texts = [event.text for event in lab.records() if isinstance(event, ToolReturned)]
    flaw = "failed to parse function arguments: the arguments hold NaN or infinity, which JSON cannot say"
    assert ["[1, 2]", flaw, "[3]"] == texts


async def test_a_plugin_event_of_the_wrong_type_fails_the_call_alone():
    """A tool that appends what could not be read back fails, and the log goes on without it."""

    @tool(effect="none", runs_on="trio")
    def note(view: View) -> str:
        """Note."""
        view.append(TodosWritten("not a list"))  # type: ignore[arg-type]
        return "noted"

    async with open_lab(ScriptedModel([Reply("", [Call("note", {})]), Reply("done")]), tools=[note]) as lab:
        ended = await (await lab.session()).run("hello")
        kinds = [type(event) for event in lab.records()]
    assert ("completed", ["failed"]) == (ended.reason, [receipt.receipt for receipt in ended.receipts])
    assert (True, False) == (ToolCalled in kinds, TodosWritten in kinds)
