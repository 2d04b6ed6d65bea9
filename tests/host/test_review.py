"""A review: an agent of its own looks, its findings are the session's, and it never outlives the task that asked."""

import asyncio

import msgspec
import pytest

from callboard.actors import (
    AbortRequested,
    Accepted,
    Assistant,
    Call,
    ChildEnded,
    ChildSpawned,
    Finding,
    MessageQueued,
    Prompt,
    Reply,
    ReviewEnded,
    SessionOpened,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    User,
)
from callboard.actors.books import HISTORY
from callboard.actors.errors import ModelError
from callboard.actors.findings import INTERRUPTED, REVIEWER, UNUSABLE
from callboard.actors.messages import Refused
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Agents

from .hosted import until
from .parents import lasting, of

ONE = {"title": "Close it", "body": "It leaks.", "confidence": 0.9, "priority": 1, "file": "a.py"}
GOOD = msgspec.json.encode({"findings": [{**ONE, "first_line": 3, "last_line": 5}], "explanation": "Nearly."}).decode()
FOUND = Finding("Close it", "It leaks.", 0.9, 1, "a.py", 3, 5)


async def asked(session, what="all of it") -> int | None:
    """The turn of a review."""
    accepted = await session.review(what)
    assert isinstance(accepted, Accepted)
    return accepted.turn


async def reviewed(session, what="the last commit") -> TurnEnded:
    """The end of a review that nobody disturbs."""
    ended: TurnEnded = await session.wait(await asked(session, what))
    return ended


def reviewer(answer):
    """A model whose reviewer says this, and whose sessions say nothing of note."""
    return ScriptedModel(lambda prompt: answer(prompt) if prompt.system.startswith(REVIEWER) else Reply("ok"))


async def test_a_review_is_recorded_in_the_parent():
    """One fact with the findings, two messages for the model, no mail, and the reviewer is gone."""
    model = reviewer(lambda prompt: Reply(f"Here you are: {GOOD}"))
    async with open_runtime(model=model) as rt:
        s = await rt.create("p")
        await s.run("work")
        ended = await reviewed(s)
        assert ("completed", "review", None) == (ended.reason, ended.kind, ended.error)
        assert [ReviewEnded(2, "p.review_2", "completed", (FOUND,), "Nearly.")] == of(ReviewEnded, rt, "p")
        assert "The review has 1 finding:\n- [P1] Close it (a.py:3-5, confidence 0.9)\nNearly." == ended.last_message
        history = rt._sessions.registry.actor("p").log[HISTORY].messages
        said, answered = list(history)[-2:]
        assert isinstance(said, User)
        assert said.text.startswith("<user_action>\nThe user had a review made of: the last commit\n")
        assert "It leaks." in said.text
        assert Assistant(ended.last_message) == answered
        assert [] == [e for e in of(MessageQueued, rt, "p") if e.source.startswith("agent:")]
        await until(lambda: ["p"] == [one.id for one in rt.sessions()])
        assert "ok" == (await s.run("go on")).last_message


async def test_the_reviewer_works_alone():
    """Its instructions are ours, what to look at is its task, and it neither sees nor may call what is withheld."""
    seen: list[Prompt] = []

    def answer(prompt):
        seen.append(prompt)
        return (
            Reply(calls=[Call("spawn_agent", {"task_name": "x", "message": "y"})]) if prompt.step == 1 else Reply(GOOD)
        )

    async with open_runtime(model=reviewer(answer)) as rt:
        s = await rt.create("p", system="Be brief.")
        await reviewed(s, "a.py")
        opened = of(SessionOpened, rt, "p.review_1")[0]
        assert (REVIEWER, "p") == (opened.system, opened.parent)
        names = {tool.name for tool in seen[0].tools}
        assert "update_plan" in names
        assert names.isdisjoint({"spawn_agent", "wait_agent", "list_agents"})
        assert "a.py" in str(seen[0].messages)
        returned = of(ToolReturned, rt, "p.review_1")[0]
        assert ("failed", "unsupported call: spawn_agent") == (returned.receipt, returned.text)
        assert [False] == [e.mail for e in of(ChildSpawned, rt, "p")]


async def test_another_model_may_review():
    """`review_model` names it; the others are asked by nobody."""
    config = RuntimeConfig(agents=Agents(review_model="scripted:demo"))
    async with open_runtime(config, model=ScriptedModel([])) as rt:
        s = await rt.create("p")
        await reviewed(s)
        assert "scripted:demo" == of(SessionOpened, rt, "p.review_1")[0].model


@pytest.mark.parametrize(
    ("text", "ending", "explanation"),
    [("All is well.", "completed", "All is well."), ("", "failed", UNUSABLE), ("  \n", "failed", UNUSABLE)],
)
async def test_an_answer_without_findings(text, ending, explanation):
    """Words are the explanation, and nothing at all is said in one sentence."""
    async with open_runtime(model=reviewer(lambda prompt: Reply(text))) as rt:
        s = await rt.create("p")
        ended = await reviewed(s)
        assert [(ending, (), explanation)] == [(e.ending, e.findings, e.explanation) for e in of(ReviewEnded, rt, "p")]
        assert "completed" == ended.reason


async def test_a_reviewer_that_fails():
    """Its error is the turn's, and the session goes on."""

    def answer(prompt):
        raise ModelError("no credit")

    async with open_runtime(model=reviewer(answer)) as rt:
        s = await rt.create("p")
        ended = await reviewed(s)
        assert ("completed", "the reviewer failed: no credit") == (ended.reason, ended.error)
        assert ["failed"] == [e.ending for e in of(ReviewEnded, rt, "p")]
        assert "ok" == (await s.run("go on")).last_message


async def test_an_agent_that_is_called_as_a_reviewer():
    """What a model calls its own agents is in no review's way: the reviewer gets another name."""
    names = ("review_2", "review_2_2")
    starts = [Call("spawn_agent", {"task_name": name, "message": "work"}) for name in names]

    def model(prompt):
        if prompt.system.startswith(REVIEWER):
            return Reply(GOOD)
        return Reply("", starts) if (prompt.session, prompt.turn, prompt.step) == ("p", 1, 1) else Reply("ok")

    config = RuntimeConfig(agents=Agents(notify="queue"))
    async with open_runtime(config, model=ScriptedModel(model)) as rt:
        s = await rt.create("p")
        await s.run("go")
        assert "completed" == (await reviewed(s)).reason
        assert [ReviewEnded(2, "p.review_2_3", "completed", (FOUND,), "Nearly.")] == of(ReviewEnded, rt, "p")


async def test_a_review_that_may_not_start():
    """A limit of the tree is the turn's error, by name."""
    config = RuntimeConfig(agents=Agents(depth_max=0))
    async with open_runtime(config, model=reviewer(lambda prompt: Reply(GOOD))) as rt:
        s = await rt.create("p")
        ended = await reviewed(s)
        assert "depth_max is 0" in str(ended.error)
        assert ["failed"] == [e.ending for e in of(ReviewEnded, rt, "p")]


@pytest.mark.parametrize("cascade", [True, False])
async def test_an_interrupt_ends_the_reviewer_too(cascade):
    """Whatever is configured for agents: it is cut off with cause `parent`, and the session says that it was."""
    config = RuntimeConfig(agents=Agents(cascade=cascade))
    async with open_runtime(config, model=reviewer(lasting)) as rt:
        s = await rt.create("p")
        number = await asked(s)
        await until(lambda: any(e for e in of(TurnStarted, rt, "p.review_1")) if s.children() else False)
        refused = await s.steer("look left")
        assert isinstance(refused, Refused)
        assert "not_steerable" == refused.reason
        await s.interrupt()
        ended = await s.wait(number)
        assert ("aborted", "interrupted", "review", INTERRUPTED) == (
            ended.reason,
            ended.cause,
            ended.kind,
            ended.last_message,
        )
        assert [ReviewEnded(1, "p.review_1", "interrupted", (), INTERRUPTED)] == of(ReviewEnded, rt, "p")
        await until(lambda: of(ChildEnded, rt, "p"))
        assert ["parent"] == [e.cause for e in of(AbortRequested, rt, "p.review_1")]
        assert ["interrupted"] == [e.status for e in of(ChildEnded, rt, "p")]
        await until(lambda: ["p"] == [one.id for one in rt.sessions()])
        assert [] == [e for e in of(MessageQueued, rt, "p") if e.source.startswith("agent:")]


async def test_a_reviewer_that_is_interrupted_itself():
    """Its task ends, and says so."""
    async with open_runtime(model=reviewer(lasting)) as rt:
        s = await rt.create("p")
        number = await asked(s)
        await until(s.children)
        child = await rt.open("p.review_1")
        await until(lambda: any(of(TurnStarted, rt, "p.review_1")))
        await child.interrupt()
        ended = await s.wait(number)
        assert ("completed", INTERRUPTED) == (ended.reason, ended.last_message)


async def test_closing_in_the_middle_of_a_review(tmp_path):
    """Nothing hangs; opened again, the session has the review as interrupted and works."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    async with open_runtime(model=reviewer(lasting), store=url) as rt:
        s = await rt.create("p")
        await s.review("all of it")
        await until(s.children)
        await asyncio.sleep(0.05)
    async with open_runtime(model=reviewer(lambda prompt: Reply(GOOD)), store=url) as rt:
        s = await rt.open("p")
        await s.wait_idle()
        assert ["interrupted"] == [e.ending for e in of(ReviewEnded, rt, "p")]
        assert "ok" == (await s.run("go on")).last_message
        assert "completed" == (await reviewed(s)).reason


async def test_a_review_replaces_and_is_replaced():
    """It ends the turn that runs, and a new task ends it, with the reviewer; each says so."""
    async with open_runtime(model=ScriptedModel(lasting)) as rt:
        s = await rt.create("p")
        await s.submit("work")
        number = await asked(s)
        assert ("aborted", "replaced") == ((first := await s.wait(1)).reason, first.cause)
        await until(s.children)
        await s.replace("something else")
        ended = await s.wait(number)
        assert ("review", "replaced", INTERRUPTED) == (ended.kind, ended.cause, ended.last_message)
        assert ["interrupted"] == [e.ending for e in of(ReviewEnded, rt, "p")]
        await until(lambda: of(ChildEnded, rt, "p"))
        assert ["parent"] == [e.cause for e in of(AbortRequested, rt, "p.review_2")]
