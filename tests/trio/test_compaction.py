"""Compaction in a session that runs: as a turn of its own, by itself before a step, and what is left of a history."""

import pytest

from callboard.actors.books import FILLED, HISTORY, TURN, USAGE
from callboard.actors.compaction import NO_SUMMARY, PLAN_MODE, PREFIX
from callboard.actors.events import Call, Compacted, Message, ModelSaid, StepEnded, StepStarted, Usage
from callboard.actors.facts import PlanModeSet
from callboard.actors.model import Developer, Prompt, Reply, User
from callboard.actors.plugin import Enter, Plugin, View
from callboard.actors.stage import Limits
from callboard.actors.testing import open_lab
from callboard.actors.tool import tool

from .compacts import SUMMARY, compact, model
from .strict import check_history, check_log, of_kind


@tool
async def dig(metres: int) -> str:
    """Digs."""
    return "earth " * metres


async def test_compact_turn_replaces_the_history():
    """The user's words and a summary stay; what the request used and took is on the log and in the usage."""
    answers = model(
        lambda prompt: Reply("dug" if prompt.step == 2 else "", [Call("dig", {"metres": 3})][prompt.step - 1 :])
    )
    async with open_lab(answers, tools=[dig]) as lab:
        session = await lab.session(system="Be brief.")
        await session.run("dig")
        ended = await compact(session)
        assert (ended.reason, ended.kind, ended.error, ended.steps) == ("completed", "compact", None, 0)
        assert ended.usage == Usage(50, output=5) == session.state(USAGE)
        assert list(session.state(HISTORY).messages) == [User("dig"), SUMMARY]
        (event,) = of_kind(lab.records(), Compacted)
        assert (event.summary, event.usage, event.provider, event.automatic) == (
            "so far",
            ended.usage,
            "scripted",
            False,
        )
        asked = answers.prompts[-1]
        assert (asked.system, asked.tools, asked.step, len(asked.messages)) == ("Be brief.", (), 0, 5)
        await session.run("more")
        assert list(answers.prompts[-1].messages)[:3] == [User("dig"), SUMMARY, User("more")]
        assert "so far" not in [delta.text for delta in session.deltas]
        check_log(lab.records())


async def test_compaction_again_keeps_no_summary_of_a_summary():
    """Of an earlier compaction only the user's words are kept, and one summary stands at the end."""
    async with open_lab(model()) as lab:
        session = await lab.session()
        for text in ("one", "two"):
            await session.run(text)
            await compact(session)
        assert list(session.state(HISTORY).messages) == [User("one"), User("two"), SUMMARY]


async def test_compacting_nothing_asks_nobody():
    """A new session has nothing to summarise."""
    answers = model()
    async with open_lab(answers) as lab:
        session = await lab.session()
        ended = await compact(session)
        assert (ended.reason, ended.error, answers.prompts) == ("completed", None, [])


async def test_no_summary_says_so():
    """A model that says nothing, or only calls, leaves a summary that says there is none, and no call."""
    async with open_lab(model(summary=lambda prompt: Reply(" \n", [Call("dig", {"metres": 1})]))) as lab:
        session = await lab.session()
        await session.run("one")
        await compact(session)
        assert list(session.state(HISTORY).messages) == [User("one"), User(PREFIX + NO_SUMMARY, "notice")]
        check_history(session.state(HISTORY).messages)


async def test_mode_is_stated_again_and_plugins_see_a_fresh_session():
    """In Plan mode a note follows the summary; the next step is fresh, and the one after it is not."""
    fresh: list[bool] = []

    async def look(view: View, messages: tuple[Message, ...]) -> Enter:
        fresh.append(view.fresh)
        return Enter(messages)

    async with open_lab(model(), plugins=[Plugin("p", before_step=look)]) as lab:
        session = await lab.session()
        await session.run("one")
        session.log.append(PlanModeSet(active=True))
        await compact(session)
        assert list(session.state(HISTORY).messages) == [User("one"), SUMMARY, Developer(PLAN_MODE)]
        await session.run("two")
        await session.run("three")
        assert [False, True, False] == fresh


async def test_step_that_would_overflow_is_compacted_first():
    """What the provider counted and what came since decide; the new message stands behind the summary."""
    answers = model(window=1000, usage=Usage(500, output=100))
    async with open_lab(answers) as lab:
        session = await lab.session()
        await session.run("one")
        assert 600 == session.state(FILLED)
        await session.run("two")  # 600 and a little
        ended = await session.run("x" * 1200)  # 300 more are too many
        assert (ended.reason, ended.steps, ended.usage) == ("completed", 1, Usage(550, output=105))
        assert [e.automatic for e in of_kind(lab.records(), Compacted)] == [True]
        assert list(answers.prompts[-1].messages) == [User("one"), User("two"), SUMMARY, User("x" * 1200)]
        assert answers.prompts[-2].step == 1


async def test_estimate_alone_until_the_provider_counts():
    """A provider that counts nothing is compacted by the length of what it would read."""
    answers = model(window=1000)
    async with open_lab(answers) as lab:
        session = await lab.session()
        await session.run("x" * 2000)
        assert not of_kind(lab.records(), Compacted)
        await session.run("y" * 2000)
        assert 1 == len(of_kind(lab.records(), Compacted))


async def test_compaction_inside_a_turn_stands_between_two_steps():
    """Large results are compacted away before the next request of the same turn, whose step is its own."""

    def answer(prompt: Prompt) -> Reply:
        return Reply("", [Call("dig", {"metres": 700})]) if prompt.step == 1 else Reply("dug")

    async with open_lab(model(answer, window=1000), tools=[dig]) as lab:
        session = await lab.session()
        ended = await session.run("dig")
        assert (ended.reason, ended.steps, ended.last_message) == ("completed", 2, "dug")
        shape = [type(e).__name__ for e in lab.records()]
        assert shape[shape.index("StepEnded") :][:3] == ["StepEnded", "Compacted", "StepStarted"]
        check_log(lab.records())


@pytest.mark.parametrize(
    ("limits", "window"),
    [(Limits(context_window=1000), None), (Limits(compact_tokens_max=900), None), (Limits(context_window=1000), 9000)],
)
async def test_window_is_configured(limits, window):
    """The configured window goes before the model's own, and a limit in tokens needs no window."""
    async with open_lab(model(window=window), limits=limits) as lab:
        session = await lab.session()
        await session.run("x" * 2000)
        await session.run("y" * 2000)
        assert 1 == len(of_kind(lab.records(), Compacted))


async def test_unknown_window_is_never_compacted_by_itself():
    """Without a window nothing is compacted, however much is said."""
    async with open_lab(model(usage=Usage(10**9))) as lab:
        session = await lab.session()
        for _ in range(3):
            await session.run("x" * 100_000)
        assert not of_kind(lab.records(), Compacted)


async def test_what_does_not_help_is_tried_once_a_turn():
    """When the user's words alone fill the window, one compaction is made and the step goes on."""

    def answer(prompt: Prompt) -> Reply:
        return Reply("", [Call("dig", {"metres": 1})]) if prompt.step < 4 else Reply("dug")

    async with open_lab(model(answer, window=100), tools=[dig]) as lab:
        session = await lab.session()
        await session.run("x" * 4000)
        await session.run("more")
        assert [2, 2] == [len(of_kind(lab.records(), Compacted)), session.state(TURN).number]


async def test_filled_is_known_after_an_open():
    """A session that is opened again knows how full its window is, and compacts at its first step."""
    async with open_lab(model(window=1000, usage=Usage(2000))) as lab:
        session = await lab.session()
        await session.run("one")
        await session.stop()
        again = await lab.session(fresh=False)
        await again.run("two")
        kinds = of_kind(lab.records(), Compacted, StepStarted, StepEnded, ModelSaid)
        assert [type(e).__name__ for e in kinds[3:]] == ["Compacted", "StepStarted", "ModelSaid", "StepEnded"]


async def test_compacted_subagent_keeps_its_task():
    """What its parent told a subagent stays, as the user's words do in a session of the user's."""
    async with open_lab(model()) as lab:
        session = await lab.session(path="/root/digger", depth=1, parent="p")
        await session.submit("dig", source="agent:/root")
        await session.wait(1)
        await session.submit("a note", source="agent:/root/other")
        await session.wait(2)
        await compact(session)
        assert list(session.state(HISTORY).messages) == [User("dig", "agent:/root"), SUMMARY]
