"""Exposure in sessions: what a model is offered and may call, and what it finds, through turns and restarts."""

import pytest

from callboard.actors.books import FOUND
from callboard.actors.events import Call, Event, ToolReturned
from callboard.actors.facts import ToolsFound
from callboard.actors.memory import MemoryStore
from callboard.actors.model import Reply
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import Exposure, Tool, tool
from callboard.plugins.search import tool_search

from .strict import check_log, of_kind

SEARCH = Call("tool_search", {"query": "count"})


def made(name: str, exposure: Exposure = "direct") -> Tool:
    """A tool that says its name."""

    @tool(name=name, exposure=exposure, effect="none")
    async def one() -> str:
        """Does one thing."""
        return name

    return one


TOOLS = [
    *(made("plain"), made("count_words", "deferred"), made("count_lines", "deferred"), made("other", "deferred")),
    *(made("hidden", "hidden"), made("inner", "code_only"), made("outer", "direct_model_only"), tool_search),
]
OFFERED = ["plain", "outer", "tool_search"]


def offers(model: ScriptedModel) -> list[list[str]]:
    """The names each request offered."""
    return [[spec.name for spec in prompt.tools] for prompt in model.prompts]


@pytest.mark.parametrize("name", ["hidden", "inner", "count_words"])
async def test_what_is_not_offered_cannot_be_called(name):
    """A model that calls a tool it was not offered reads what it reads of a tool that does not exist."""
    model = ScriptedModel([Reply(calls=[Call(name)]), Reply("on")])
    async with open_lab(model, tools=TOOLS) as lab:
        await (await lab.session()).run("go")
        assert [f"unsupported call: {name}"] == [e.text for e in of_kind(lab.records(), ToolReturned)]
        assert [OFFERED, OFFERED] == offers(model)


async def test_what_was_found_is_offered_from_the_next_step_on():
    """A search adds its finds behind the others from the next request on; the same answer cannot call them yet."""
    model = ScriptedModel(
        [
            Reply(calls=[SEARCH, Call("count_words")]),
            Reply(calls=[Call("count_words"), SEARCH]),
            Reply("on"),
        ]
    )
    async with open_lab(model, tools=TOOLS) as lab:
        session = await lab.session()
        await session.run("go")
        later = [*OFFERED, "count_lines", "count_words"]
        assert [OFFERED, later, later] == offers(model)
        texts = [e.text for e in of_kind(lab.records(), ToolReturned)]
        listed = "count_lines: Does one thing.\ncount_words: Does one thing."
        assert [listed, "unsupported call: count_words", "count_words", listed] == texts
        assert [ToolsFound(("count_lines", "count_words"))] == of_kind(lab.records(), ToolsFound)
        check_log(lab.records())


async def test_search_without_a_find_says_what_there_is():
    """A query that finds nothing is answered with the names, and changes nothing."""
    model = ScriptedModel([Reply(calls=[Call("tool_search", {"query": "zebra"})]), Reply("on")])
    async with open_lab(model, tools=TOOLS) as lab:
        await (await lab.session()).run("go")
        (returned,) = of_kind(lab.records(), ToolReturned)
        assert "No tool matches 'zebra'. There are: count_lines, count_words, other." == returned.text
        assert [OFFERED, OFFERED] == offers(model)


async def test_what_was_found_survives_a_restart():
    """A session read again from its log offers what it had found; a tool that is gone since is not offered."""
    store = MemoryStore()
    async with open_lab(ScriptedModel([Reply(calls=[SEARCH]), Reply("on")]), tools=TOOLS, store=store) as lab:
        session = await lab.session("s")
        await session.run("go")
        records: list[Event] = lab.records("s")
    model = ScriptedModel([Reply("on")])
    left = [one for one in TOOLS if one.name != "count_lines"]
    async with open_lab(model, tools=left) as lab:
        session = await lab.session("s")
        session.log.append(*[event for event in records if isinstance(event, ToolsFound)])
        await session.run("again")
        assert ("count_lines", "count_words") == session.state(FOUND)
        assert [[*OFFERED, "count_words"]] == offers(model)
