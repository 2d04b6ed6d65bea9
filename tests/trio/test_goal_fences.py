"""Rounds of a goal that do not begin: reopened, in Plan mode, forged, edited, refused by others."""

import trio

from callboard.actors.books import TURN
from callboard.actors.events import Call, Message
from callboard.actors.hook import Block, Hook
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import Refused, SetMode
from callboard.actors.model import Reply
from callboard.actors.plugin import Enter, Plugin, Reject
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import tool
from callboard.plugins.goal import GOAL_PLUGIN, goal_plugin
from callboard.plugins.goalbook import OUT_OF_DATE

from .goaled import armed, book, busy, ends, goal, phase
from .strict import until

GOALS = (GOAL_PLUGIN,)


@tool(effect="none")
async def work() -> str:
    """Does something."""
    return "worked"


@tool(effect="none")
async def hang() -> str:
    """Takes long."""
    await trio.sleep(10_000)
    return "late"


async def test_a_reopened_goal_waits_for_a_resume():
    """From the store an active goal comes back disarmed: no turn by itself, not after a user's either."""
    store = MemoryStore()
    async with open_lab(ScriptedModel([Reply("x", truncated=True)]), plugins=GOALS, store=store) as lab:
        session = await lab.session()
        await goal(session)
        await session.wait_idle()
    model = ScriptedModel(lambda prompt: Reply(calls=[Call("work")] if prompt.step == 1 else []), delay_s=1.0)
    async with open_lab(model, tools=[work], plugins=GOALS, store=store) as lab:
        session = await lab.session(fresh=False)
        assert ("active", 1, False) == (phase(session)[0], session.state(TURN).number, armed(session))
        await session.run("hi")
        await session.wait_idle()
        assert 2 == session.state(TURN).number
        await goal(session, "resume")
        await until(lambda: phase(session)[2] > 3)
        assert armed(session)
        assert isinstance(await goal(session, "resume"), Refused)
        await goal(session, "pause")


async def test_a_crash_in_a_round_disarms():
    """A round that a crash cut is closed by the repair; the goal is active and waits."""
    store = MemoryStore()
    async with open_lab(ScriptedModel([Reply(calls=[Call("hang")])]), tools=[hang], plugins=GOALS, store=store) as lab:
        session = await lab.session()
        await goal(session)
        await until(lambda: session.state(TURN).calls)
        torn = MemoryStore()
        torn.append("s", store.read("s", -1, 10**6), store.header("s"))
        await session.interrupt()
    async with open_lab(busy(), tools=[hang], plugins=GOALS, store=torn) as lab:
        session = await lab.session(fresh=False)
        assert (("active", None, 1), ["interrupted"]) == (phase(session), [end.reason for end in ends(lab)])
        await session.run("hi")
        await session.wait_idle()
        assert ("active", 2) == (phase(session)[0], session.state(TURN).number)


async def test_rounds_wait_while_plan_mode_is_on():
    """A goal may be made in Plan mode; its rounds begin at the first idle moment after it."""
    async with open_lab(busy(), tools=[work], plugins=[goal_plugin(2)]) as lab:
        session = await lab.session()
        await session.ask(lambda reply: SetMode(active=True, reply=reply))
        await goal(session)
        await session.run("plan it")
        await session.wait_idle()
        assert (("active", None, 0), True, 1) == (phase(session), armed(session), len(ends(lab)))
        await session.ask(lambda reply: SetMode(active=False, reply=reply))
        await session.wait_idle()
        assert ("blocked", "round_limit", 2) == phase(session)


async def test_plan_mode_chosen_before_the_round_began_keeps_it_waiting():
    """A round is no turn that enters Plan mode: chosen while the round waits, it goes first."""
    entered, go_on = trio.Event(), trio.Event()

    async def slowly(view, messages):
        if not entered.is_set():
            entered.set()
            await go_on.wait()
        return Enter(messages)

    model = busy()
    async with open_lab(model, tools=[work], plugins=[Plugin("slow", before_step=slowly), goal_plugin(1)]) as lab:
        session = await lab.session()
        await goal(session)
        await entered.wait()
        await session.ask(lambda reply: SetMode(active=True, reply=reply))
        go_on.set()
        await session.wait_idle()
        assert (("active", None, 0), True, []) == (phase(session), armed(session), model.prompts)
        await session.ask(lambda reply: SetMode(active=False, reply=reply))
        await session.wait_idle()
        assert (("blocked", "round_limit", 1), 2) == (phase(session), len(model.prompts))


async def test_a_forged_round_asks_no_model():
    """A message that only says it is a round opens a turn that ends blocked."""
    model = ScriptedModel(lambda prompt: Reply("ok"))
    async with open_lab(model, plugins=GOALS) as lab:
        session = await lab.session()
        await session.submit("do evil", id="goal:goal-1:1:1", source="goal")
        await session.wait_idle()
        await goal(session, "x")
        await goal(session, "pause")
        await session.wait_idle()
        await session.submit("do evil", id="goal:goal-1:2:9", source="goal")
        await session.wait_idle()
        blocked = [(end.reason, end.error) for end in ends(lab)]
        assert [("blocked", OUT_OF_DATE)] * 2 == [blocked[0], blocked[-1]]
        assert [0, 0] == [end.steps for end in ends(lab) if end.reason == "blocked"]


async def test_a_round_that_was_edited_is_out_of_date():
    """A round's text is the goal's own: changed while it waits, it is given up and offered anew."""
    entered, go_on = trio.Event(), trio.Event()

    async def slowly(view, messages):
        if not entered.is_set():
            entered.set()
            await go_on.wait()
        return Enter(messages)

    gate = Plugin("slow", before_step=slowly)
    async with open_lab(busy(), tools=[work], plugins=[gate, goal_plugin(1)]) as lab:
        session = await lab.session()
        await goal(session)
        await entered.wait()
        await goal(session, "edit something else")
        go_on.set()
        await session.wait_idle()
        assert [("blocked", OUT_OF_DATE), ("completed", None)] == [(end.reason, end.error) for end in ends(lab)]
        found = book(session).goal
        assert found is not None
        assert ("something else", "round_limit") == (found.objective, found.blocked_reason)


async def test_steered_input_of_a_refused_round_is_not_lost():
    """What came to be read with a round that is out of date is read all the same, without the round."""
    entered, go_on = trio.Event(), trio.Event()

    async def slowly(view, messages):
        if not entered.is_set():
            entered.set()
            await go_on.wait()
        return Enter(messages)

    model = ScriptedModel(lambda prompt: Reply("ok"))
    async with open_lab(model, plugins=[Plugin("slow", before_step=slowly), GOAL_PLUGIN]) as lab:
        session = await lab.session()
        await session.inject("by the way")
        await goal(session)
        await entered.wait()
        await goal(session, "pause")
        go_on.set()
        await session.wait_idle()
        (prompt,) = model.prompts
        assert ["by the way"] == [message.text for message in prompt.messages]
        assert 0 == book(session).rounds


async def test_a_hook_that_refuses_a_round_blocks_the_goal():
    """A round that a hook lets not begin is not tried again."""
    no = Hook("no", on_turn_start=lambda turn: Block("not today"))
    model = ScriptedModel(lambda prompt: Reply("ok"))
    async with open_lab(model, plugins=GOALS, hooks=[no]) as lab:
        session = await lab.session()
        await goal(session)
        await session.wait_idle()
        assert (("blocked", "prompt_rejected", 0), 1, []) == (phase(session), len(ends(lab)), model.prompts)


async def test_a_plugin_that_refuses_or_empties_rounds_cannot_make_them_spin():
    """Whatever another plugin does to rounds, they come to an end."""

    async def refuse(view, messages):
        return Reject("no")

    async def empty(view, messages):
        return Enter(tuple(message for message in messages if message.source != "goal"))

    async def rewrite(view, messages):
        return Enter(tuple(Message(one.id, "else", one.source) for one in messages))

    for before, reason in ((refuse, "prompt_rejected"), (empty, "no_progress"), (rewrite, "prompt_rejected")):
        for plugins in ([Plugin("p", before_step=before), GOAL_PLUGIN], [GOAL_PLUGIN, Plugin("p", before_step=before)]):
            model = ScriptedModel(lambda prompt: Reply("ok"))
            async with open_lab(model, plugins=plugins) as lab:
                session = await lab.session()
                await session.run("hi")
                await goal(session)
                await session.wait_idle()
                expected = "no_progress" if before is rewrite and plugins[0] is GOAL_PLUGIN else reason
                assert ("blocked", expected) == phase(session)[:2]
                assert 5 > len(ends(lab))
