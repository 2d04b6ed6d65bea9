"""Plan mode in a whole runtime: commands, the gate over the tree, and plans that another session carries out, once."""

import sys
from typing import Any

import pytest

from callboard.actors import (
    Accepted,
    Call,
    MessageQueued,
    PlanModeSet,
    Prompt,
    Refused,
    Reply,
    SessionOpened,
    ToolReturned,
    TurnEnded,
    UsageError,
)
from callboard.actors.asked import QUESTIONS
from callboard.actors.books import QUEUE, TURN
from callboard.actors.errors import ConfigError, LogError
from callboard.actors.facts import ApprovalPolicySet, PlanApproved, PlanHandedOver
from callboard.actors.messages import AnswerQuestion, ModeAnswer, Submit, Told
from callboard.actors.testing import ScriptedModel
from callboard.plugins import CODE, DEFAULT, MACHINE
from callboard.plugins.handovers import HAND_OVER, HAND_OVER_FRESH, message_id, session_of
from callboard.plugins.plan_mode import GATED, SECTION, STATED
from callboard.runtime import open_runtime
from callboard.runtime.config import config_of
from callboard.runtime.handover import HandOvers
from callboard.runtime.lines import parse

from .hosted import events, until
from .parents import Parent, of, spawn, wait
from .terminal import cli

PLAN = "# Move it\n- copy"
ID = "1.t1s1c1.plan-review"
CLEAR = config_of({"plugins": {"plan_mode": {"execution": "clear"}}})
HARD = config_of({"plugins": {"plan_mode": {"gate": "hard"}}})
NEW = session_of("s", ID)
FRESH = HAND_OVER_FRESH.format(plan=PLAN)


def play(prompt: Prompt) -> Reply:
    """Presents a plan in the first turn of `s`, and says what else it was told last."""
    if (prompt.session, prompt.turn, prompt.step) == ("s", 1, 1):
        return Reply("here", [Call("exit_plan_mode", {"plan": PLAN})])
    return Reply(f"re: {prompt.messages[-1].text}")


async def presented(rt: Any, **opening: Any) -> Any:
    """A session whose plan waits for its review."""
    s = await rt.create("s", **opening)
    assert ModeAnswer("committed") == await s.set_mode("plan")
    await s.submit("plan it")
    await until(lambda: rt.actor("s").log[QUESTIONS])
    return s


async def approve(s: Any) -> Any:
    """Approve the plan."""
    return await s._ask(lambda reply: AnswerQuestion(ID, ("Approve",), reply=reply))


def told(rt: Any, session: str) -> list[str]:
    """What a session was told by plans."""
    return [event.text for event in events(rt, session) if isinstance(event, MessageQueued) and event.source == "plan"]


async def test_the_state_has_two_keys():
    """Whether it is on, and what waits: and nothing that only the plugin has to know."""
    async with open_runtime(model=ScriptedModel(play)) as rt:
        s = await rt.create("s")
        assert {"active": False, "pending": None} == s.state()["plan_mode"]
        await s.set_mode("plan")
        assert {"active": True, "pending": None} == s.state()["plan_mode"]
        await s.submit("plan it")
        await until(lambda: rt.actor("s").log[QUESTIONS])
        await s.set_mode("default")
        assert {"active": True, "pending": False} == s.state()["plan_mode"]
        assert not {"plan_known", "handovers"} & s.state().keys()


async def test_plan_lines():
    """`/plan` and `/plan off` switch; any other text switches first and is then said, under an id of its own."""
    model = ScriptedModel()
    async with open_runtime(model=model) as rt:
        s = await rt.create("s")
        assert ModeAnswer("committed") == await s.command("/plan")
        assert ModeAnswer("noop") == await s.command("/plan on")
        assert ModeAnswer("committed") == await s.command("/plan off")
        said = await s.command("/plan off the road", id="x")
        assert isinstance(said, Accepted)
        assert said == await s.command("/plan off the road", id="x")
        await s.wait_idle()
        assert 1 == len([event for event in events(rt, "s") if isinstance(event, TurnEnded)])
        assert [(SECTION, "off the road")] == [(prompt.system, prompt.messages[0].text) for prompt in model.prompts]
        long = await s.command("/plan go", id="y" * 200)
        assert isinstance(long, Accepted)


async def test_a_message_is_not_said_without_its_mode():
    """Where the switch is refused, `/plan MESSAGE` says nothing."""

    class Stalled:
        async def set_mode(self, mode: str, *, id: str | None = None) -> Refused:
            return Refused("store_stalled")

    verbs: Any = Stalled()
    assert Refused("store_stalled") == await parse("/plan go").do(verbs)


async def test_a_plan_begins_a_new_session():
    """It has the instructions of the old one and the plan as its first message; each knows its part, and no more."""
    async with open_runtime(CLEAR, model=ScriptedModel(play)) as rt:
        begin = rt._ground.stage.hand_over
        rt._ground.stage.hand_over = lambda *plan: (begin(*plan), begin(*plan))[0]  # asked for again meanwhile
        s = await presented(rt, system="You are X.", title="Work")
        await approve(s)
        await until(lambda: any(isinstance(event, PlanHandedOver) for event in events(rt, "s")))
        new = await rt.open(NEW)
        await new.wait_idle()
        opened = events(rt, NEW)[0]
        assert SessionOpened(root=NEW, system="You are X.", title="Plan: Work") == opened
        assert ([FRESH], []) == (told(rt, NEW), told(rt, "s"))
        (ended,) = (event for event in events(rt, NEW) if isinstance(event, TurnEnded))
        assert ("completed", f"re: {FRESH}") == (ended.reason, ended.last_message)
        assert [PlanHandedOver(ID, NEW)] == [e for e in events(rt, "s") if isinstance(e, PlanHandedOver)]
        assert {"active": False, "pending": None} == s.state()["plan_mode"]


async def test_a_new_session_asks_for_approvals_as_the_old_one_did():
    """What held before Plan mode holds there from before its first message; what was said in Plan mode does not."""
    async with open_runtime(CLEAR, model=ScriptedModel(play)) as rt:
        s = await rt.create("s")
        await s.command("/approvals ask")
        await s.set_mode("plan")
        await s.command("/approvals never")
        await s.submit("plan it")
        await until(lambda: rt.actor("s").log[QUESTIONS])
        await approve(s)
        await until(lambda: any(isinstance(event, PlanHandedOver) for event in events(rt, "s")))
        kinds = [type(event) for event in events(rt, NEW)]
        assert ["ask"] == [event.policy for event in events(rt, NEW) if isinstance(event, ApprovalPolicySet)]
        assert kinds.index(ApprovalPolicySet) < kinds.index(MessageQueued)


async def cut_after(url: str, what: str) -> None:
    """Approve the plan in a runtime that ends after it did `what` of the hand-over."""
    async with open_runtime(CLEAR, model=ScriptedModel(play), store=url) as rt:
        s = await presented(rt)
        rt._ground.stage.hand_over = lambda session, plan, text: None
        await approve(s)
        await s.wait_idle()
        if what != "nothing":
            new = await rt.create(NEW)
        if what == "message":
            await new._ask(lambda reply: Submit(FRESH, message_id(ID), "plan", reply=reply))
            await new.wait_idle()


@pytest.mark.parametrize("what", ["nothing", "session", "message"])
async def test_a_hand_over_that_was_cut_in_two(tmp_path, what):
    """Whatever was done of it, opening the old session does the rest, and the plan is carried out once."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    await cut_after(url, what)
    for _ in range(2):
        async with open_runtime(CLEAR, model=ScriptedModel(play), store=url) as rt:
            await rt.open("s")
            await until(lambda: any(isinstance(event, PlanHandedOver) for event in events(rt, "s")))
            new = await rt.open(NEW)
            await until(lambda: rt.actor(NEW).log[TURN].number == 1 and not rt.actor(NEW).log[TURN].open)
            await new.wait_idle()
            assert ([FRESH], []) == (told(rt, NEW), told(rt, "s"))
            assert 1 == len([event for event in events(rt, NEW) if isinstance(event, TurnEnded)])
            assert 1 == len([event for event in events(rt, "s") if isinstance(event, PlanHandedOver)])


async def test_a_message_that_waits_in_its_new_session_is_released(tmp_path):
    """The new session was closed before its turn began: what is queued there waits, and the hand-over wakes it."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    await cut_after(url, "nothing")
    async with open_runtime(CLEAR, model=ScriptedModel(play), store=url) as rt:
        new = await rt.create(NEW)
        rt.actor(NEW).log.append(MessageQueued(message_id(ID), FRESH, "plan", given=True))
        await new.stop()
    async with open_runtime(CLEAR, model=ScriptedModel(play), store=url) as rt:
        await rt.open("s")
        await until(lambda: any(isinstance(event, TurnEnded) for event in events(rt, NEW)))
        assert ((), [FRESH]) == (rt.actor(NEW).log[QUEUE], told(rt, NEW))


class Sessions:
    """The sessions of a runtime, none of which can be created for as long as there are `errors`."""

    def __init__(self, real: Any, *errors: Exception) -> None:
        self._real, self.errors = real, list(errors)
        self.registry, self.exists, self.open = real.registry, real.exists, real.open

    async def create(self, session_id: str, opening: SessionOpened, *, chosen: bool) -> Any:
        """A new session, or an error."""
        if self.errors:
            raise self.errors.pop(0)
        return await self._real.create(session_id, opening, chosen=chosen)


async def test_without_a_new_session_the_plan_is_carried_out_here():
    """When none can ever be, the old session has the plan as its own, once, and no other has it."""
    async with open_runtime(CLEAR, model=ScriptedModel(play)) as rt:
        sessions = Sessions(rt._sessions, UsageError("no."))
        rt._ground.stage.hand_over = HandOvers(sessions, rt._ground.guest.spawn).begin
        s = await presented(rt)
        await approve(s)
        await until(lambda: told(rt, "s"))
        await s.wait_idle()
        assert [HAND_OVER.format(plan=PLAN)] == told(rt, "s")
        assert not await rt._sessions.exists(NEW)
        ends = [event.last_message for event in events(rt, "s") if isinstance(event, TurnEnded)]
        assert ["here", f"re: {HAND_OVER.format(plan=PLAN)}"] == ends


async def test_a_store_that_refuses_only_puts_it_off():
    """Nobody knows what such a store has kept, so the plan waits for it: it is handed over at the next rest."""
    async with open_runtime(CLEAR, model=ScriptedModel(play)) as rt:
        sessions = Sessions(rt._sessions, LogError("full."))
        rt._ground.stage.hand_over = HandOvers(sessions, rt._ground.guest.spawn).begin
        s = await presented(rt)
        await approve(s)
        await s.wait_idle()
        await until(lambda: not sessions.errors)
        assert [] == told(rt, "s")
        await s.run("meanwhile")
        await until(lambda: any(isinstance(event, PlanHandedOver) for event in events(rt, "s")))
        assert ([FRESH], []) == (told(rt, NEW), told(rt, "s"))


async def test_a_review_outlives_the_runtime(tmp_path):
    """The question is open again under its id, and its answer carries the plan out."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    async with open_runtime(model=ScriptedModel(play), store=url) as rt:
        await presented(rt)
    async with open_runtime(model=ScriptedModel(play), store=url) as rt:
        s = await rt.open("s")
        assert [ID] == [one["id"] for one in s.state()["questions"]]
        assert isinstance(await approve(s), Accepted)
        await s.wait_idle()
        assert [HAND_OVER.format(plan=PLAN)] == told(rt, "s")
        assert "not_pending" == (await approve(s)).reason
        assert {"active": False, "pending": None} == s.state()["plan_mode"]


async def test_implement():
    """A proposed plan is carried out here or in a new session, once; a plan that is none is refused."""
    block = "<proposed_plan>\n- a\n</proposed_plan>\n"

    def propose(prompt: Prompt) -> Reply:
        return Reply(block) if prompt.session == "s" and prompt.turn < 3 else Reply("done")

    async with open_runtime(model=ScriptedModel(propose)) as rt:
        s = await rt.create("s")
        await s.set_mode("plan")
        await s.run("one")
        await s.run("two")
        assert [("1-plan", "- a\n"), ("2-plan", "- a\n")] == [(p["id"], p["text"]) for p in s.state()["proposed"]]
        refused = await s.implement("3-plan")
        assert isinstance(refused, Refused)
        assert "there are 1-plan, 2-plan" in refused.detail
        here = await s.implement("1-plan", id="v")
        assert isinstance(here, Accepted)
        assert here == await s.implement("1-plan", id="v") == await s.implement("1-plan")
        await s.wait_idle()
        there = await s.implement("2-plan", clear=True)
        new = session_of("s", "2-plan")
        assert Told(f"Session {new} carries the plan out.") == there == await s.implement("2-plan", clear=True)
        await until(lambda: any(isinstance(event, PlanHandedOver) for event in events(rt, "s")))
        await (await rt.open(new)).wait_idle()
        assert [HAND_OVER_FRESH.format(plan="- a\n")] == told(rt, new)
        assert 2 == len([event for event in events(rt, "s") if isinstance(event, PlanApproved)])
        for wrong in ((1,), ("1-plan", 1), (None,), ("1-plan", None)):
            with pytest.raises(UsageError, match=r"^implement takes"):
                await s.implement(*wrong)


def gated(name: str) -> str:
    """What a call of this tool reads."""
    return GATED.format(name=name)


async def test_the_hard_gate_holds_in_the_shell_and_in_code(tmp_path):
    """Whatever can change things is rejected by the rule's name; what only looks, and a user's own command, are not."""
    calls = [
        Call("shell", {"command": "touch a"}),
        Call("code", {"source": "tools.shell(command='touch b')"}),
        Call("write_file", {"path": "c", "text": "x"}),
        Call("read_file", {"path": "seen"}),
    ]
    (tmp_path / "seen").write_text("read me")
    model = ScriptedModel([Reply(calls=calls), Reply("done")])
    async with open_runtime(HARD, model=model, plugins=(*DEFAULT, *MACHINE, CODE), folder=tmp_path) as rt:
        s = await rt.create("s")
        await s.set_mode("plan")
        await s.run("go")
        found = [(e.receipt, e.text) for e in events(rt, "s") if isinstance(e, ToolReturned)]
        assert [("rejected", gated(name)) for name in ("shell", "code", "write_file")] == found[:3]
        assert ("completed", True) == (found[3][0], "read me" in found[3][1])
        if sys.platform == "linux":
            await s.shell("touch mine")
            await s.wait_idle()
            assert {"seen", "mine"} == {path.name for path in tmp_path.iterdir()}


async def test_the_hard_gate_holds_for_children(tmp_path):
    """An agent of a session that plans is held to its gate, also one that it starts itself, and no longer than that."""

    def child(prompt: Prompt) -> Reply:
        if prompt.step > 1:
            return Reply("child done")
        if prompt.session == "p.a":
            return Reply(calls=[*spawn("b").calls, Call("write_file", {"path": "a", "text": "x"})])
        return Reply(calls=[Call("write_file", {"path": prompt.session, "text": "x"})])

    play = Parent(spawn("a"), wait(), Reply("planned"), spawn("c"), wait(), Reply("done"), child=child)
    async with open_runtime(HARD, model=ScriptedModel(play), plugins=(*DEFAULT, *MACHINE), folder=tmp_path) as rt:
        s = await rt.create("p")
        await s.set_mode("plan")
        await s.run("go")
        await until(lambda: "p.a.b" in rt._sessions.registry and rt.actor("p.a.b").log[TURN].number)
        await until(lambda: not rt.actor("p.a.b").log[TURN].open)
        for id_ in ("p.a", "p.a.b"):  # the first tries again when the end of the other wakes it
            writes = [event for event in of(ToolReturned, rt, id_) if event.name == "write_file"]
            assert {("rejected", gated("write_file"))} == {(event.receipt, event.text) for event in writes}
        await s.set_mode("default")
        await s.run("go on")
        await until((tmp_path / "p.c").exists)
        assert [PlanModeSet(active=True), PlanModeSet(active=False)] == of(PlanModeSet, rt, "p")


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"section": " "}, "section"),
        ({"section": 1}, "section"),
        ({"gate": "firm"}, "gate"),
        ({"execution": "later"}, "execution"),
        ({"sections": "x"}, "sections"),
    ],
)
def test_wrong_settings(table, named):
    """Each is refused with its place in the configuration."""
    with pytest.raises(ConfigError) as raised:
        config_of({"plugins": {"plan_mode": table}})
    assert named in str(raised.value)
    assert "$.plugins.plan_mode" in str(raised.value)


async def test_settings_reach_the_plugin():
    """The instructions and the effort of the configuration are those of the prompt."""
    model = ScriptedModel()
    settings = config_of({"plugins": {"plan_mode": {"section": "Only look.", "effort": "low"}}})
    async with open_runtime(settings, model=model) as rt:
        s = await rt.create("s", system="X")
        await s.set_mode("plan")
        await s.run("go")
        assert [("X\n\nOnly look.", "low")] == [(prompt.system, prompt.effort) for prompt in model.prompts]


async def test_a_fork_has_the_mode_and_no_hand_over():
    """It is in Plan mode and told so once; the plan that the old session hands over is not handed over twice."""
    model = ScriptedModel(play)
    async with open_runtime(CLEAR, model=model) as rt:
        s = await presented(rt)
        calls: list[str] = []
        rt._ground.stage.hand_over = lambda session, plan, text: calls.append(session)
        await s.interrupt()
        await s.wait_idle()
        planning = await s.fork()
        await planning.run("go on")
        assert {"active": True, "pending": None} == planning.state()["plan_mode"]
        assert STATED[True] == model.prompts[-1].messages[-1].text
        await planning.run("and on")
        assert 1 == [message.text for message in model.prompts[-1].messages].count(STATED[True])
        await s.run("present it again")
        rt.actor("s").log.append(PlanApproved(ID, "clear", PLAN))
        await s.run("meanwhile")
        fork = await s.fork()
        await fork.run("go on")
        assert (True, {"s"}) == (bool(calls), set(calls))


def test_the_command_line_says_what_a_switch_did(tmp_path):
    """A switch is a sentence; a message behind `/plan` is worked on in Plan mode."""
    run = ("run", "--model", "scripted:demo", "--session", "x")
    assert "Plan mode is on." in cli(tmp_path, *run, "/plan").stdout.splitlines()
    assert "Plan mode is off." in cli(tmp_path, *run, "/plan off").stdout.splitlines()
    assert not [line for line in cli(tmp_path, *run, "--json", "/plan").stdout.splitlines() if line[0] != "{"]
