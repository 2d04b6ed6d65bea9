"""What a tool can throw: one result each, nothing reaches the runtime's nursery, the session goes on."""

import asyncio
import contextvars
import gc
import sys
from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY
from callboard.actors.errors import Dropped, FatalToolError, ToolError
from callboard.actors.events import Call, Receipt, ToolReturned
from callboard.actors.model import Prompt, Reply
from callboard.actors.plugin import Failed, Partial, View
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import RunsOn, tool

from .strict import check_history, check_log

MARK: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="clean")


class Unprintable(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise KeyError("no text")


class Unwritable:
    """A value that raises while it is looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyError(name)


async def sys_exit() -> None:
    sys.exit(3)


async def asyncio_cancel() -> None:
    raise asyncio.CancelledError


async def generator_exit() -> None:
    raise GeneratorExit


async def recursion() -> Any:
    async def deeper() -> Any:
        return await deeper()

    return await deeper()


async def memory() -> None:
    raise MemoryError("no more")


async def stop_iteration() -> None:
    raise StopAsyncIteration("odd")


async def tool_error() -> None:
    raise ToolError("not there")


async def unprintable() -> None:
    raise Unprintable


async def forged_cancel() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep(1)
        except trio.Cancelled as error:
            kept = error
    raise kept


async def forged_drop() -> None:
    raise Dropped


async def group_of_one() -> None:
    async def child() -> None:
        raise ToolError("from a child")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        await trio.sleep(5)


async def group_of_three() -> None:
    raise ExceptionGroup("several", [KeyError("a"), ExceptionGroup("inner", [OSError("b"), ValueError("c")])])


async def deep_group() -> str:
    error: Exception = ValueError("at the bottom")
    for _ in range(3_000):
        error = ExceptionGroup("again", [error])
    raise error


async def group_of_cancels() -> None:
    raise BaseExceptionGroup("ends", [Dropped(), Dropped()])


async def left_scope() -> str:
    trio.CancelScope().__enter__()
    return "left it open"


async def unclosed_generator() -> str:
    async def numbers() -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 0.05)
            yield 1

    async for _ in numbers():
        return "left it open"
    return "never"


async def surrogate() -> str:
    return "half \ud800 pair"


async def no_json() -> Any:
    return {1: object()}


async def unwritable() -> Any:
    return Unwritable()


async def failed_with_an_error() -> Any:
    return Failed(KeyError("k"))  # type: ignore[arg-type]  # what people write


async def partial_of_no_text() -> Any:
    return Partial(7)  # type: ignore[arg-type]  # what people write


async def number() -> Any:
    return {"a": [1, 2]}


async def nothing() -> None:
    return None


SHAPES: tuple[tuple[Any, Receipt, str], ...] = (
    (sys_exit, "failed", "SystemExit: 3"),
    (asyncio_cancel, "failed", "CancelledError"),
    (generator_exit, "failed", "GeneratorExit"),
    (recursion, "failed", "RecursionError: maximum recursion depth exceeded"),
    (memory, "failed", "MemoryError: no more"),
    (stop_iteration, "failed", "StopAsyncIteration: odd"),
    (tool_error, "failed", "not there"),
    (unprintable, "failed", "Unprintable: (its text cannot be read: KeyError)"),
    (forged_cancel, "failed", "forged_cancel was cancelled from inside after 0.0s"),
    (forged_drop, "failed", "forged_drop was cancelled from inside after 0.0s"),
    (group_of_one, "failed", "from a child"),
    (group_of_three, "failed", "KeyError: 'a' (and 2 more)"),
    (deep_group, "failed", "ValueError: at the bottom"),
    (group_of_cancels, "failed", "group_of_cancels was cancelled from inside after 0.0s"),
    (left_scope, "completed", "left it open"),
    (surrogate, "completed", "half \N{REPLACEMENT CHARACTER} pair"),
    (no_json, "failed", "the result cannot be written as JSON: TypeError"),
    (unwritable, "failed", "the result cannot be written as JSON: "),
    (failed_with_an_error, "failed", "'k'"),
    (partial_of_no_text, "completed", "7"),
    (number, "completed", '{"a":[1,2]}'),
    (nothing, "completed", ""),
)


async def result_of(fn: Any, runs_on: RunsOn | None = None, **options: Any) -> tuple[ToolReturned, Any]:
    """The one result of a call of this function, after which the session went on."""
    if fn.__doc__ is None:
        fn.__doc__ = "A tool."
    made = tool(runs_on=runs_on, **options)(fn)
    replies = [Reply(calls=[Call(made.name)]), Reply("on"), Reply("again")]
    async with open_lab(ScriptedModel(replies), tools=[made]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (await session.run("more")).last_message == "again"
        check_history(session.state(HISTORY).messages)
        check_log(lab.records())
        (returned,) = [e for e in lab.records() if isinstance(e, ToolReturned)]
        assert lab.stage.abandoned.count() == 0
    return returned, ended


@pytest.mark.parametrize(("fn", "receipt", "text"), SHAPES, ids=[fn.__name__ for fn, _, _ in SHAPES])
async def test_whatever_a_tool_does_is_one_result(fn, receipt, text, caplog):
    """Every way out of a tool is one result, and the turn goes on to its next step."""
    returned, ended = await result_of(fn)
    assert (returned.receipt, returned.text[: len(text)]) == (receipt, text)
    assert (ended.reason, ended.last_message, ended.steps) == ("completed", "on", 2)
    assert "Traceback" not in returned.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_generator_left_open_with_a_nursery_is_one_result():
    """What trio says about the nursery after the tool has returned changes nothing about its result."""
    returned, ended = await result_of(unclosed_generator)
    assert (returned.receipt, returned.text, ended.last_message) == ("completed", "left it open", "on")
    gc.collect()


def exits() -> None:
    sys.exit(3)


def raises() -> None:
    raise ToolError("no")


def recurses() -> Any:
    return recurses()


@pytest.mark.parametrize("runs_on", ["trio", "thread"])
@pytest.mark.parametrize(("fn", "text"), [(exits, "SystemExit: 3"), (raises, "no"), (recurses, "RecursionError: ")])
async def test_plain_function_is_held_to_the_same(fn, text, runs_on):
    """A `def` in a thread, or in one piece on the loop, has one result whatever it raises."""
    returned, _ = await result_of(fn, runs_on)
    assert (returned.receipt, returned.text[: len(text)]) == ("failed", text)


async def interrupting() -> None:
    raise KeyboardInterrupt


async def interrupting_in_a_child() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupting)


def interrupting_in_place() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("fn", [interrupting, interrupting_in_a_child, interrupting_in_place])
async def test_keyboard_interrupt_goes_to_the_runtime(fn):
    """A KeyboardInterrupt inside a tool is handed to the runtime, and the call has failed."""
    told: list[BaseException] = []
    made = tool(runs_on="trio")(fn)
    async with open_lab(ScriptedModel([Reply(calls=[Call(made.name)]), Reply("on")]), tools=[made]) as lab:
        lab.stage.on_interrupt = told.append
        session = await lab.session()
        ended = await session.run("go")
        assert [r.receipt for r in ended.receipts] == ["failed"]
        assert [type(error) for error in told] == [KeyboardInterrupt]


async def test_fatal_error_ends_the_turn_and_what_follows_is_not_started():
    """A FatalToolError fails its call, later calls of the batch never start, and the turn ends with the error."""

    @tool
    async def broken() -> None:
        """Cannot be mended."""
        raise FatalToolError("the licence has run out")

    @tool
    async def fine() -> str:
        """Would work."""
        return "ran"

    replies = [Reply(calls=[Call("fine"), Call("broken"), Call("fine")]), Reply("after")]
    async with open_lab(ScriptedModel(replies), tools=[broken, fine]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.reason, ended.cause, ended.error) == ("completed", None, "the licence has run out")
        assert [r.receipt for r in ended.receipts] == ["completed", "failed", "not_started"]
        assert (await session.run("go on")).last_message == "after"
        check_history(session.state(HISTORY).messages)


async def test_errors_and_results_are_cut_to_what_a_model_can_read():
    """A huge result keeps head and tail around a mark, and a huge error keeps its head."""

    async def huge() -> str:
        return "a" * 5_000 + "b" * 5_000

    async def huge_error() -> None:
        raise ToolError("x" * 10_000)

    returned, _ = await result_of(huge, output_max=1_000)
    assert returned.text == f"{'a' * 500}\n[... 9,000 bytes cut ...]\n{'b' * 500}"
    returned, _ = await result_of(huge_error)
    assert returned.text == "x" * 2_000


async def test_changes_of_context_variables_end_with_the_call():
    """A tool sees the values of its turn and cannot change them, in a task, in a thread or in place."""
    seen: list[str] = []

    async def in_a_task() -> None:
        seen.append(MARK.get())
        MARK.set("dirty")

    def in_place() -> None:
        seen.append(MARK.get())
        MARK.set("dirty")

    MARK.set("turn")
    tools = [tool(in_a_task), tool(runs_on="trio")(in_place), tool(name="in_a_thread")(in_place)]
    calls = [Call(name) for name in ("in_a_task", "in_place", "in_a_thread", "in_a_task")]
    async with open_lab(ScriptedModel([Reply(calls=calls)]), tools=tools) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert [r.receipt for r in ended.receipts] == ["completed"] * 4
    assert seen == ["turn"] * 4


async def test_tool_may_change_the_arguments_it_got():
    """What a tool does to its arguments changes neither the history nor a second look at the call."""

    @tool
    async def greedy(options: dict[str, Any], extra: Any) -> str:
        """Eats its arguments."""
        options.clear()
        extra["more"].append(1)
        return "done"

    async def model(prompt: Prompt) -> Reply:
        return Reply(calls=[Call("greedy", {"options": {"a": 1}, "extra": {"more": []}})] if prompt.step == 1 else [])

    async with open_lab(ScriptedModel(model), tools=[greedy]) as lab:
        session = await lab.session()
        await session.run("go")
        (said, *_) = [m for m in session.state(HISTORY).messages if getattr(m, "calls", ())]
        assert said.calls[0].arguments == {"options": {"a": 1}, "extra": {"more": []}}


async def test_bug_in_reading_a_call_is_a_failed_call():
    """A refusal that breaks, or a type of arguments that does, fails the call and not the session."""

    def refuse(view: View) -> str | None:
        raise LookupError("nothing here")

    async def guarded() -> None:
        pass

    returned, _ = await result_of(guarded, refuse=refuse)
    assert (returned.receipt, returned.text) == ("failed", "LookupError: nothing here")


async def test_many_leaves_of_a_group_are_counted():
    """Of several errors the model reads the first and how many more there were."""

    async def many() -> None:
        raise ExceptionGroup("many", [ToolError(f"e{n}") for n in range(40)])

    returned, _ = await result_of(many)
    assert returned.text == "e0 (and 39 more)"


async def test_model_that_throws_is_a_failed_request():
    """Whatever a model raises or answers ends the turn with an error, and the session stays usable."""
    raised: list[Any] = [KeyError("k"), SystemExit(1), ExceptionGroup("g", [OSError("x")]), "no reply"]

    async def model(prompt: Prompt) -> Any:
        if not raised:
            return Reply("fine")
        answer = raised.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async with open_lab(ScriptedModel(model)) as lab:
        session = await lab.session()
        errors = [(await session.run("go")).error for _ in range(4)]
        assert errors == [
            "KeyError: 'k'",
            "SystemExit: 1",
            "ExceptionGroup: g (1 sub-exception)",
            "the model answered str, not a Reply.",
        ]
        assert (await session.run("go")).last_message == "fine"
