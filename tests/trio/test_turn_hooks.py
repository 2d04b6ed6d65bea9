"""Hooks around a turn: at its start, before it stops, at an interrupt, and at its end; and what breaks in them."""

from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY
from callboard.actors.events import (
    Call,
    HookWarned,
    Message,
    MessagesClaimed,
    StepStarted,
)
from callboard.actors.hook import AddContext, Block, Continue, Hook, HookTurn, Warn
from callboard.actors.hooks import STOPPED, STOPS_MAX
from callboard.actors.model import Assistant, Developer, Reply, User
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.told import LAST_S
from callboard.actors.tool import tool

from .hooked import WINDOW_S, at_once, failures, later, statuses
from .strict import check_log, of_kind

BOTH = pytest.mark.parametrize("made", [at_once, later])


# -- the start


@BOTH
async def test_a_block_at_the_start_ends_the_turn_before_its_first_step(made):
    """The turn ends as blocked with the reason, no model is asked, and its message is recorded."""
    model = ScriptedModel([Reply("never")])
    async with open_lab(model, hooks=[Hook("h", on_turn_start=made(Block("closed")))]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.reason, ended.error, ended.steps, model.prompts) == ("blocked", "closed", 0, [])
        assert [User("go", "user")] == list(session.state(HISTORY).messages)
        check_log(lab.records())


@BOTH
async def test_what_hooks_add_at_the_start_is_read_behind_the_message(made):
    """Several hooks add up in their order, whoever answered first."""
    hooks = [Hook("a", on_turn_start=later(AddContext("one"), 5)), Hook("b", on_turn_start=made(AddContext("two")))]
    model = ScriptedModel([Reply("yes")])
    async with open_lab(model, hooks=hooks) as lab:
        assert (await (await lab.session()).run("go")).reason == "completed"
        assert [User("go", "user"), Developer("one"), Developer("two")] == list(model.prompts[0].messages)


async def test_hooks_see_whose_turn_it_is_and_what_starts_it():
    """Session, path, number, kind, model, folder, mode and messages; the messages at the start alone."""
    seen: list[HookTurn] = []
    hook = Hook("h", on_turn_start=seen.append, on_stop=lambda turn, last: seen.append(turn))
    async with open_lab(ScriptedModel([Reply("yes")]), hooks=[hook]) as lab:
        await (await lab.session("child", path="/root/a", model="m")).run("go")
    turn = HookTurn("child", "/root/a", 1, "regular", "user", ".", "m")
    message = Message("auto:1", "go")
    assert seen == [HookTurn("child", "/root/a", 1, "regular", "user", ".", "m", messages=(message,)), turn]


async def test_a_message_withdrawn_while_the_start_is_asked_is_not_claimed():
    """The hooks were told of it, but the turn has nothing to do and ends."""
    model = ScriptedModel([Reply("never")])
    async with open_lab(model, hooks=[Hook("h", on_turn_start=later(None, 5))]) as lab:
        session = await lab.session()
        await session.submit("go", id="m")
        await trio.sleep(1)
        await session.withdraw("m")
        await session.wait_idle()
        assert (model.prompts, of_kind(lab.records(), MessagesClaimed)) == ([], [])


# -- the stop


@BOTH
async def test_a_stop_hook_reopens_the_turn_with_its_text(made):
    """The model reads the text and goes on in the same turn; told how often that was, the hook lets it end."""
    seen: list[tuple[int, str | None]] = []

    def once(turn: HookTurn, last: str | None) -> Any:
        seen.append((turn.continued, last))
        return made(Continue("and the tests?") if turn.continued == 0 else None)()

    model = ScriptedModel([Reply("done"), Reply("tested")])
    async with open_lab(model, hooks=[Hook("h", on_stop=once)]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.reason, ended.steps, ended.last_message) == ("completed", 2, "tested")
        assert seen == [(0, "done"), (1, "tested")]
        messages = [User("go", "user"), Assistant("done"), Developer("and the tests?"), Assistant("tested")]
        assert messages == list(session.state(HISTORY).messages)
        assert statuses(lab) == [("h", "continued"), ("h", "ok")]
        check_log(lab.records())


async def test_stop_hooks_reopen_a_turn_so_often_and_no_more():
    """A hook that never lets go is overruled, with a note for the next turn."""
    model = ScriptedModel(lambda prompt: Reply(f"step {prompt.step}"))
    async with open_lab(model, hooks=[Hook("h", on_stop=at_once(Continue("more")))]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.reason, ended.steps) == ("completed", STOPS_MAX + 1)
        assert Developer(STOPPED.format(count=STOPS_MAX)) == list(session.state(HISTORY).messages)[-1]


async def test_a_turn_that_ends_with_an_error_asks_no_stop_hook():
    """Only what would end as completed and whole can be reopened."""

    def fails(prompt: Any) -> Reply:
        raise LookupError("no model")

    asked: list[Any] = []
    async with open_lab(ScriptedModel(fails), hooks=[Hook("h", on_stop=lambda *a: asked.append(a))]) as lab:
        ended = await (await lab.session()).run("go")
        assert (ended.error, asked) == ("LookupError: no model", [])


async def test_input_that_arrives_while_a_stop_hook_is_asked_joins_the_turn():
    """The turn is not over until its hooks have answered, so a steer still finds it."""
    model = ScriptedModel([Reply("one"), Reply("two")])
    async with open_lab(model, hooks=[Hook("h", on_stop=later(None, 5))]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        await session.steer("wait")
        ended = await session.wait(1)
        assert ended is not None
        assert (ended.steps, ended.last_message) == (2, "two")


# -- the interrupt and the end


@BOTH
async def test_interrupt_hooks_are_told_at_once_and_hold_nothing_up(made):
    """They hear turn and cause when the window opens, and the turn ends as if they were not there."""
    heard: list[Any] = []

    def note(turn: HookTurn, cause: str) -> Any:
        heard.append((turn.turn, cause, trio.current_time() - begun_s))
        return made(Warn("stopped"))()

    async with open_lab(ScriptedModel([Reply("x")], delay_s=100), hooks=[Hook("h", on_interrupt=note)]) as lab:
        session = await lab.session()
        await session.submit("go")
        begun_s = trio.current_time()
        await trio.sleep(1)
        await session.interrupt()
        ended = await session.wait(1)
        assert ended is not None
        assert (ended.abort_s, trio.current_time() - begun_s) == (0.0, 1.0)
        assert heard == [(1, "interrupted", 1.0)]
        await trio.sleep(1)
        slow = made is later  # one second is more than a window has
        assert statuses(lab) == [("h", "failed" if slow else "ok")]
        assert bool(failures(lab)) == slow
        assert bool(of_kind(lab.records(), HookWarned)) == (not slow)


async def test_an_interrupt_hook_that_does_not_stop_is_left_behind_at_the_end_of_the_window():
    """It is cut inside the window, and dropped when it swallows that."""

    async def stubborn(turn: HookTurn, cause: str) -> None:
        while True:
            try:
                await trio.sleep(1000)
            except trio.Cancelled:
                with trio.move_on_after(1000, shield=True):
                    await trio.sleep(1000)
                raise

    async with open_lab(ScriptedModel([Reply("x")], delay_s=100), hooks=[Hook("h", on_interrupt=stubborn)]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        await session.interrupt()
        await session.wait(1)
        await trio.sleep(WINDOW_S + 0.05)
        assert (statuses(lab), lab.stage.abandoned.count()) == ([("h", "failed")], 0)


@BOTH
async def test_end_hooks_are_told_when_the_books_are_closed_and_delay_nothing(made):
    """They get the end itself; whoever waits for the turn has it before a slow one is done."""
    seen: list[Any] = []

    def note(turn: HookTurn, ended: Any) -> Any:
        seen.append((turn.turn, ended.reason))
        return made(Warn("noted"))()

    async with open_lab(ScriptedModel([Reply("x")]), hooks=[Hook("h", on_turn_end=note)]) as lab:
        session = await lab.session()
        begun_s = trio.current_time()
        await session.run("go")
        assert (seen, trio.current_time()) == ([(1, "completed")], begun_s)
        await session.run("again")
        await trio.sleep(2)
        assert [("h", "ok")] * 2 == statuses(lab)
        assert [HookWarned("h", "noted")] * 2 == of_kind(lab.records(), HookWarned)
        assert not session.actor.scene.belongings


async def test_the_end_of_a_session_waits_for_end_hooks_but_not_for_ever():
    """One that is nearly done is heard; one that is not is cut after its bound, and reports nothing."""
    done: list[str] = []

    async def note(turn: HookTurn, ended: Any) -> None:
        await trio.sleep(0.5 if turn.session == "s" else 1000)
        done.append(turn.session)

    async with open_lab(ScriptedModel([]), hooks=[Hook("h", on_turn_end=note)]) as lab:
        quick, slow = await lab.session("s"), await lab.session("t")
        await quick.run("go")
        await slow.run("go")
        begun_s = trio.current_time()
        await quick.stop()
        assert (done, trio.current_time() - begun_s) == (["s"], 0.5)
        await slow.stop()
        assert (done, trio.current_time() - begun_s) == (["s"], 0.5 + LAST_S)


# -- what breaks


@tool
async def echo(text: str) -> str:
    """Says it back."""
    return f"<{text}>"


SLOTS = ("on_turn_start", "before_tool", "after_tool", "on_stop")


def raises(*_: Any) -> None:
    raise LookupError("bug")


async def raises_late(*_: Any) -> None:
    await trio.sleep(1)
    raise LookupError("bug")


async def exits(*_: Any) -> None:
    raise SystemExit(3)


async def waits(*_: Any) -> None:
    await trio.sleep(1000)


@pytest.mark.parametrize("slot", [*SLOTS, "on_turn_end"])
@pytest.mark.parametrize(
    ("fn", "error"),
    [
        (raises, "LookupError: bug"),
        (raises_late, "LookupError: bug"),
        (exits, "SystemExit: 3"),
        (waits, "took over 5 s"),
        (at_once("yes"), "answered str, not one of"),
    ],
)
async def test_a_broken_hook_of_any_slot_is_an_event_and_the_turn_goes_on(slot, fn, error):
    """It fails open: recorded, counted, and as if it were not there."""
    slots: dict[str, Any] = {slot: fn}
    model = ScriptedModel([Reply(calls=[Call("echo", {"text": "hi"})]), Reply("on")])
    async with open_lab(model, tools=[echo], hooks=[Hook("h", timeout_s=5, **slots)]) as lab:
        ended = await (await lab.session()).run("go")
        assert (ended.reason, ended.error, ended.last_message) == ("completed", None, "on")
        await trio.sleep(10)
        assert [("h", False)] == [(e.hook, e.blocked) for e in failures(lab)]
        assert failures(lab)[0].error.startswith(error)
        assert ("h", "failed") in statuses(lab)


@pytest.mark.parametrize("fn", [raises, raises_late, waits])
async def test_a_broken_start_hook_may_be_told_to_refuse(fn):
    """Closed, the turn ends as blocked; a stop hook has nothing to refuse and never reopens by failing."""
    async with open_lab(hooks=[Hook("h", on_turn_start=fn, on_stop=fn, on_failure="block", timeout_s=5)]) as lab:
        ended = await (await lab.session()).run("go")
        assert ended.reason == "blocked"
        assert str(ended.error).startswith("hook h failed: ")
        assert of_kind(lab.records(), StepStarted) == []


@pytest.mark.parametrize("slot", SLOTS)
async def test_interrupt_while_hooks_of_any_slot_are_asked_ends_in_the_window(slot):
    """One that stops ends at once, one that does not is left at the window's end; none reports anything later."""

    async def stubborn(*_: Any) -> None:
        try:
            await trio.sleep(1000)
        finally:
            with trio.move_on_after(1000, shield=True):
                await trio.sleep(1000)

    for fn, abort_s in ((waits, 0.0), (stubborn, WINDOW_S)):
        slots: dict[str, Any] = {slot: fn}
        model = ScriptedModel([Reply(calls=[Call("echo", {"text": "hi"})]), Reply("on")])
        async with open_lab(model, tools=[echo], hooks=[Hook("h", **slots)]) as lab:
            session = await lab.session()
            await session.submit("go")
            await trio.sleep(1)
            await session.interrupt()
            ended = await session.wait(1)
            assert ended is not None
            assert ended.reason == "aborted"
            assert ended.abort_s == pytest.approx(abort_s)
            await trio.sleep(1)
            assert (failures(lab), lab.stage.abandoned.count()) == ([], 0)
            check_log(lab.records())
