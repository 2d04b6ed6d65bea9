"""What goes on after a crash and what is closed: questions, approvals, cells, rewritten calls, tasks of other kinds."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio

from callboard.actors.asked import APPROVALS, QUESTIONS
from callboard.actors.books import HISTORY
from callboard.actors.events import Call, CellCalled, ShellEnded, ToolCalled, ToolReturned, TurnEnded, TurnRecovered
from callboard.actors.facts import ApprovalAsked, QuestionAsked
from callboard.actors.hook import Rewrite
from callboard.actors.memory import MemoryStore
from callboard.actors.model import Prompt, Reply, Result
from callboard.actors.phase import Phase
from callboard.actors.plugin import Hook, View
from callboard.actors.stage import Limits
from callboard.actors.testing import Lab, LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool
from callboard.plugins.ask import ask_plugin

from .strict import check_history, check_log, of_kind, until

GOES_ON = Limits(recover="continue")
ASKS = Call(
    "request_user_input",
    {
        "questions": [
            {"id": "a", "question": "Which?", "options": [{"label": "x"}, {"label": "y"}]},
            {"id": "b", "question": "When?", "options": [{"label": "now"}, {"label": "never"}]},
        ]
    },
    id="q",
)


def calling(*calls: Call) -> ScriptedModel:
    """Asks for these calls, then says `done`."""

    def play(prompt: Prompt) -> Reply:
        return Reply("done") if any(isinstance(one, Result) for one in prompt.messages) else Reply("", calls)

    return ScriptedModel(play)


def at_crash(lab: Lab) -> MemoryStore:
    """A store with what the lab's session has on its log by now: what a crash at this moment leaves."""
    store = MemoryStore()
    store.append("s", list(lab.stage.store.read("s", -1, 1000)))
    return store


async def opened(lab: Lab) -> LabSession:
    """The session of that log, as soon as it is read: its turn runs."""
    lab.stage.nursery.start_soon(partial(lab.session, fresh=False))
    await until(lambda: "s" in lab.sessions and lab.sessions["s"].actor.phase is not Phase.STARTING)
    return lab.sessions["s"]


async def test_open_questions_are_not_asked_twice_and_an_answer_counts():
    """The call runs again and waits under the same ids; what was answered before the crash is not asked again."""
    plugins = [ask_plugin(default_mode=True)]
    async with open_lab(calling(ASKS), plugins=plugins, limits=GOES_ON) as lab:
        session = await lab.session()
        await session.submit("go")
        await until(lambda: len(session.state(QUESTIONS)) == 2)
        ids = [one.id for one in session.state(QUESTIONS)]
        await session.answer(ids[0], ["y"])
        left = at_crash(lab)
    async with open_lab(calling(ASKS), plugins=plugins, limits=GOES_ON, store=left) as lab:
        session = await opened(lab)
        await trio.sleep(1)
        assert ids[1:] == [one.id for one in session.state(QUESTIONS)]
        await session.answer(ids[1], ["now"])
        ended = await session.wait(1)
        assert ended is not None
        assert ("completed", "done", 2) == (
            ended.reason,
            ended.last_message,
            len(of_kind(lab.records(), QuestionAsked)),
        )
        (returned,) = of_kind(lab.records(), ToolReturned)
        assert '{"answers":{"a":{"answers":["y"]},"b":{"answers":["now"]}}}' == returned.text
        check_log(lab.records())


async def test_a_request_for_approval_survives_under_its_id():
    """The call is not dispatched, so its guard is asked again, and finds its request open."""
    ran: Counter[str] = Counter()

    @tool(effect="once")
    async def sends(view: View) -> str:
        """Send."""
        ran[view.key] += 1
        return "sent"

    how: dict[str, Any] = {"plugins": [ask_plugin(policy="ask")], "tools": [sends], "limits": GOES_ON}
    async with open_lab(calling(Call("sends", id="o")), **how) as lab:
        session = await lab.session()
        session.log.follow(Reader())
        await session.submit("go")
        await until(lambda: session.state(APPROVALS))
        (asked,) = session.state(APPROVALS)
        left = at_crash(lab)
    async with open_lab(calling(Call("sends", id="o")), store=left, **how) as lab:
        session = await opened(lab)
        await trio.sleep(1)
        assert ((asked,), Counter()) == (session.state(APPROVALS), ran)
        await session.approve(asked.id, "allow_once")
        ended = await session.wait(1)
        assert ended is not None
        assert ("completed", {"s/1/o": 1}) == (ended.reason, ran)
        assert [asked] == of_kind(lab.records(), ApprovalAsked)


class Reader:
    """Somebody who could answer."""

    def take(self, envelopes: Sequence[Any]) -> None:
        """Nothing."""


async def test_calls_inside_a_call_are_closed_with_it():
    """A body that made calls is not run again, though it could be: what it made would be made twice."""
    ran: Counter[str] = Counter()

    @tool(effect="none")
    async def outer(view: View) -> str:
        """Call the other two."""
        ran["outer"] += 1
        await view.use_tool("inner", {})
        await view.use_tool("stuck", {})
        return "both"

    @tool(effect="once")
    async def inner() -> str:
        """Work."""
        ran["inner"] += 1
        return "ok"

    @tool(effect="idempotent")
    async def stuck() -> None:
        """Never return."""
        ran["stuck"] += 1
        await trio.sleep_forever()

    how: dict[str, Any] = {"tools": [outer, inner, stuck], "limits": GOES_ON}
    async with open_lab(calling(Call("outer", id="c")), **how) as lab:
        session = await lab.session()
        await session.submit("go")
        await until(lambda: ran["stuck"])
        left = at_crash(lab)
        await session.interrupt()
    async with open_lab(calling(Call("outer", id="c")), store=left, **how) as lab:
        session = await lab.session(fresh=False)
        ended = await session.wait(1)
        assert ended is not None
        assert {"outer": 1, "inner": 1, "stuck": 1} == ran
        assert ["completed", "interrupted", "interrupted"] == [one.receipt for one in ended.receipts]
        assert ("completed", 2) == (ended.reason, len(of_kind(lab.records(), CellCalled)))
        check_log(lab.records())
        check_history(session.state(HISTORY).messages)


async def test_rewritten_call_runs_again_as_it_was_rewritten():
    """A call that a hook changed gets the changed arguments again, and the hook is not asked a second time."""
    got: list[int] = []
    asked: list[str] = []

    async def doubles(call: Any) -> Rewrite:
        asked.append(call.call)
        return Rewrite({"n": call.arguments["n"] * 2})

    @tool(effect="idempotent")
    async def counts(n: int) -> str:
        """Count."""
        got.append(n)
        if len(got) == 1:
            await trio.sleep_forever()
        return str(n)

    how: dict[str, Any] = {
        "tools": [counts],
        "limits": GOES_ON,
        "hooks": [Hook("doubles", before_tool=doubles)],
    }
    async with open_lab(calling(Call("counts", {"n": 3}, id="c")), **how) as lab:
        session = await lab.session()
        await session.submit("go")
        await until(lambda: got)
        left = at_crash(lab)
        await session.interrupt()
    async with open_lab(calling(Call("counts", {"n": 3}, id="c")), store=left, **how) as lab:
        session = await lab.session(fresh=False)
        await session.wait_idle()
        assert ([6, 6], ["c"]) == (got, asked)
        assert 1 == len(of_kind(lab.records(), ToolCalled))


@pytest.mark.parametrize("now", ["once", None], ids=["another effect", "gone"])
async def test_tool_that_changed_meanwhile_does_not_run_again(now):
    """A tool that says `once` by now, or is there no more, is not run on the word of the log."""
    ran: list[str] = []

    @tool(name="works", effect="idempotent")
    async def before() -> None:
        """Never return."""
        ran.append("before")
        await trio.sleep_forever()

    @tool(name="works", effect="once")
    async def after() -> str:
        """Work."""
        ran.append("after")
        return "ok"

    async with open_lab(calling(Call("works", id="c")), tools=[before], limits=GOES_ON) as lab:
        session = await lab.session()
        await session.submit("go")
        await until(lambda: ran)
        left = at_crash(lab)
        await session.interrupt()
    tools = [] if now is None else [after]
    async with open_lab(calling(Call("works", id="c")), tools=tools, limits=GOES_ON, store=left) as lab:
        session = await lab.session(fresh=False)
        ended = await session.wait(1)
        assert ended is not None
        assert (["before"], ["interrupted"]) == (ran, [one.receipt for one in ended.receipts])
        assert "completed" == ended.reason


async def test_interrupt_of_a_call_that_runs_again_closes_it_once():
    """An abort reaches what was taken up after a crash as it reaches everything else."""

    @tool(effect="idempotent")
    async def stuck() -> None:
        """Never return."""
        await trio.sleep_forever()

    how: dict[str, Any] = {"tools": [stuck], "limits": GOES_ON}
    async with open_lab(calling(Call("stuck", id="c")), **how) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        left = at_crash(lab)
        await session.interrupt()
    async with open_lab(calling(Call("stuck", id="c")), store=left, **how) as lab:
        session = await opened(lab)
        await trio.sleep(1)
        await session.interrupt()
        await session.wait_idle()
        (ended,) = of_kind(lab.records(), TurnEnded)
        assert ("aborted", "interrupted", ["interrupted"]) == (
            ended.reason,
            ended.cause,
            [one.receipt for one in ended.receipts],
        )
        check_log(lab.records())


async def never(*_: Any) -> Any:
    """A command, and a model, that has no end."""
    await trio.sleep_forever()


@pytest.mark.parametrize("kind", ["compact", "shell"])
async def test_tasks_of_other_kinds_are_closed(kind):
    """A compaction and a command of the user's own do not go on: the end says that a crash interrupted them."""
    how: dict[str, Any] = {"limits": GOES_ON, "shell": never}
    async with open_lab(ScriptedModel([Reply("hi"), Reply("sum")], delay_s=5), **how) as lab:
        session = await lab.session()
        await session.run("go")
        await (session.compact() if kind == "compact" else session.shell("ls"))
        await trio.sleep(1)
        left = at_crash(lab)
        await session.interrupt()
    async with open_lab(ScriptedModel([]), store=left, **how) as lab:
        session = await lab.session(fresh=False)
        await session.wait_idle()
        events = lab.records()
        assert (["completed", "interrupted"], []) == (
            [one.reason for one in of_kind(events, TurnEnded)],
            of_kind(events, TurnRecovered),
        )
        assert (kind == "shell") == bool(of_kind(events, ShellEnded))
        check_log(events)
