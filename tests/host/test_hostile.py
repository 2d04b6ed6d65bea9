"""Hostile input through the public surface: each gets a clear answer, and none ends the session or the runtime."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from callboard.actors import (
    Call,
    Message,
    ModelSaid,
    Prompt,
    Reply,
    TodosWritten,
    ToolReturned,
    Usage,
    UsageError,
    tool,
)
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime

from .hosted import echo, events


class Point(msgspec.Struct):
    """A place."""

    x: int
    y: int = 0


@tool(effect="none")
async def draw(point: Point) -> str:
    """Draw a point."""
    return f"{point.x},{point.y}"


@tool(effect="none")
async def note(text: str, count: int = 1) -> str:
    """Note a text."""
    return f"{len(text)} x {count}"


def nested(depth: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


class Text(str):
    """A subclass of str."""

    __slots__ = ()


CYCLE: list[Any] = []
CYCLE.append(CYCLE)

ARGUMENTS = {
    "10 MB of text": {"text": "x" * 10_000_000},
    "10 MB of JSON text": json.dumps({"text": "x" * 10_000_000}),
    "10,000 levels": {"text": nested(10_000)},
    "10,000 levels as JSON text": '{"text":' + "[" * 10_000 + "]" * 10_000 + "}",
    "1,000,000 open brackets": "[" * 1_000_000,
    "invalid UTF-8": b'{"text":"\xff\xfe"}',
    "overlong UTF-8": b'{"text":"\xc0\x80"}',
    "lone surrogate": {"text": "\ud800"},
    "lone surrogate as JSON text": '{"text":"\\ud800"}',
    "lone surrogate in the text itself": '{"text":"\ud800"}',
    "lone surrogate as key": {"\udfff": 1},
    "unknown field": {"text": "x", "more": 1},
    "missing field": {},
    "wrong type": {"text": 5},
    "wrong type of count": {"text": "x", "count": "many"},
    "huge number": {"text": "x", "count": 10**100},
    "huge number as JSON text": '{"text":"x","count":1e999999}',
    "not a number": {"text": float("nan")},
    "infinity": {"text": "x", "count": float("inf")},
    "NaN as JSON text": '{"text":"x","count":NaN}',
    "a list": ["text"],
    "a number": 5,
    "none": None,
    "null": "null",
    "broken JSON": '{"text": "x"',
    "two objects": '{"text":"x"}{"text":"y"}',
    "control characters": {"text": "\x00\x1b[31m\r\n\x7f"},
    "null byte in JSON text": '{"text":"\x00"}',
    "a set": {1, 2, 3},
    "an object": object(),
    "itself": CYCLE,
    "a subclass of str": {Text("text"): Text("x")},
    "integer keys": {1: 2},
    "bytes inside": {"text": b"\xff"},
}
FITS = {"huge number", "bytes inside", "a subclass of str", "control characters", "lone surrogate as JSON text"}


def calling(*calls: Call) -> ScriptedModel:
    """A model that makes these calls first, and only talks then."""
    return ScriptedModel(lambda prompt: Reply("", list(calls)) if prompt.turn == prompt.step == 1 else Reply("fine"))


async def outcome(model: ScriptedModel, **options: Any) -> tuple[Any, list[ToolReturned], str | None]:
    """The end of a turn and the results in it, and that another turn works and the log opens again with this state."""
    async with open_runtime(model=model, tools=[draw, note], **options) as rt:
        s = await rt.create("x")
        ended = await asyncio.wait_for(s.run("go"), 20)
        after = await asyncio.wait_for(s.run("next"), 20)
        returned = [one for one in events(rt, "x") if isinstance(one, ToolReturned)]
        state = s.state()
        json.dumps(msgspec.to_builtins(state))
        await s.stop()
        assert state == (await rt.open("x")).state()
        return ended, returned, after.last_message


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("target", ["note", "draw", "todo_write", "update_plan", "spawn_agent"])
async def test_arguments(name, target):
    """Whatever a model passes to a tool, the call has one result that says what is wrong, and the next turn works."""
    ended, (returned,), after = await outcome(calling(Call(target, ARGUMENTS[name])))
    assert ("completed", None, "fine", "fine") == (ended.reason, ended.error, ended.last_message, after)
    if target == "note" and name in FITS:
        return
    assert "failed" == returned.receipt
    assert 10 < len(returned.text) < 1500
    assert "Traceback" not in returned.text
    returned.text.encode()


NAMES = [
    "",
    "\x00",
    "\x1b[2J",
    "a\nb",
    "x" * 100_000,
    "\ud800",
    "../../etc/passwd",
    "no_such_tool",
    5,
    None,
    b"note",
    [],
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:20])
async def test_names_of_tools(name):
    """A call of a tool that cannot exist is a failed call whose name can be printed."""
    _, (returned,), after = await outcome(calling(Call(name, {})))
    assert ("failed", "fine") == (returned.receipt, after)
    assert "unsupported call" in returned.text
    assert returned.name.isprintable()
    assert len(returned.name) <= 64
    assert len(returned.text) < 200


@pytest.mark.parametrize(
    "id", ["\x00", "\ud800", "x" * 100_000, "a\nb", 5, None, b"id", []], ids=lambda id: repr(id)[:20]
)
async def test_ids_of_calls(id):
    """A call whose id cannot be kept gets another, and its result carries that."""
    _, returned, after = await outcome(calling(Call("note", {"text": "x"}, id=id), Call("note", {"text": "y"}, id=id)))
    assert (["completed", "completed"], "fine") == ([one.receipt for one in returned], after)
    assert 2 == len({one.call for one in returned})
    assert all(one.call.isprintable() and len(one.call) <= 200 for one in returned)


REPLIES = [
    None,
    5,
    "text",
    Reply(5),  # type: ignore[arg-type]
    Reply("\ud800" * 10),
    Reply("x", 5),  # type: ignore[arg-type]
    Reply("x", ["call"]),  # type: ignore[list-item]
    Reply("x", [Call("note")] * 1001),
    Reply("x", usage=5),  # type: ignore[arg-type]
    Reply("x", usage=Usage(-1, 2**70, 3)),
    Reply("x" * 20_000_000),
    Reply("\x00\x1b[31m"),
    Reply,
    Message("id", "text"),
]


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: repr(reply)[:24])
async def test_replies_of_a_model(reply):
    """Whatever a model answers, the turn ends, with an error or without, and the next one works."""

    def play(prompt: Prompt) -> Any:
        return reply if prompt.turn == 1 else Reply("fine")

    ended, _, after = await outcome(ScriptedModel(play))
    assert ("completed", "fine") == (ended.reason, after)
    assert ended.error is None or ended.error.isprintable()


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        RuntimeError("\ud800" * 5),
        RecursionError(),
        MemoryError(),
        SystemExit(3),
        GeneratorExit(),
        TimeoutError(),
    ],
    ids=repr,
)
async def test_errors_of_a_model(error):
    """Whatever a model raises ends the turn with that error, and nothing else."""

    def play(prompt: Prompt) -> Reply:
        if prompt.turn == 1:
            raise error
        return Reply("fine")

    ended, _, after = await outcome(ScriptedModel(play))
    assert "fine" == after
    assert ended.error is not None or "interrupted" == ended.reason


TEXTS = [
    "\x00",
    "\x1b[2J",
    "\ud800 half",
    "x" * 3_999_999,
    "\u202e reversed",
    "</turn_aborted>",
    "a\r\nb",
    "\ufffe",
    "👩‍👩‍👧" * 1000,
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text)[:20])
async def test_texts(text):
    """Any text of the allowed length is taken, kept, and can be read again."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create("x", system=text)
        ended = await s.run(text)
        assert "completed" == ended.reason
        await s.stop()
        assert "completed" == (await (await rt.open("x")).run("next")).reason


async def test_ids_of_messages():
    """Ids that look like those the session makes, or repeat, collide with nothing."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create("x")
        for id in ("auto:1", "auto:2", "child:x:1"):
            with pytest.raises(UsageError, match="given by the session"):
                await s.run("text", id=id)
        for id in ("m1", "auto", "m1'", "'", "x" * 200, "t1s1c1"):
            assert "completed" == (await s.run("text", id=id)).reason
        for _ in range(5):
            assert "completed" == (await s.run("text")).reason
        ids = [one.id for one in events(rt, "x") if type(one).__name__ == "MessageQueued"]  # type: ignore[attr-defined]
        assert 11 == len(set(ids)) == len(ids)


async def test_results_of_tools():
    """Whatever a tool returns or raises, its call has one result that can be written and read."""
    huge = "x" * 30_000_000
    values: list[Any] = [
        None,
        huge,
        b"\xff",
        "\ud800",
        object(),
        {1: {2: {3}}},
        nested(5_000),
        float("nan"),
        CYCLE,
        10**400,
        lambda: 5,
        Reply("x"),
        [huge[:10_000_000]] * 2,
    ]
    errors: list[BaseException] = [KeyError("x"), SystemExit(1), RuntimeError(huge), RecursionError(), GeneratorExit()]

    @tool(effect="none", parallel=True)
    async def give(at: int) -> Any:
        """Return or raise one of them."""
        if at < len(values):
            return values[at]
        raise errors[at - len(values)]

    count = len(values) + len(errors)
    model = calling(*(Call("give", {"at": at}) for at in range(count)))
    async with open_runtime(model=model, tools=[give]) as rt:
        s = await rt.create("x")
        ended = await asyncio.wait_for(s.run("go"), 30)
        assert ("completed", "fine", count) == (ended.reason, ended.last_message, len(ended.receipts))
        returned = [one for one in events(rt, "x") if isinstance(one, ToolReturned)]
        assert ["failed"] * len(errors) == [one.receipt for one in returned[len(values) :]]
        assert all(len(one.text) < 70_000 for one in returned)
        assert "fine" == (await s.run("next")).last_message


async def test_lists_that_are_too_long():
    """A todo list and a plan of a hundred thousand items are refused or kept, and do not hold up the loop for long."""
    todos = {"todos": [{"content": f"item {n}", "status": "pending"} for n in range(100_000)]}
    plan = {"plan": [{"step": f"step {n}", "status": "pending"} for n in range(100_000)]}
    _, returned, after = await outcome(calling(Call("todo_write", todos), Call("update_plan", plan)))
    assert "fine" == after
    assert all(len(one.text) < 70_000 for one in returned)


async def test_flood_of_messages():
    """More texts than a mailbox holds are refused by name at once, and those that were taken are all run."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create("x")
        answers = await asyncio.gather(*(s.submit(f"t{n}") for n in range(3000)), return_exceptions=True)
        refused = {type(one).__name__ for one in answers if isinstance(one, BaseException)}
        assert {"MailboxFull"} == refused
        taken = sum(not isinstance(one, BaseException) for one in answers)
        assert 1000 <= taken <= 1100
        await s.wait_idle()
        assert taken == sum(type(one).__name__ == "TurnEnded" for one in events(rt, "x"))
        assert "re: after" == (await s.run("after")).last_message


async def test_hostile_titles_of_todos_are_kept_as_they_are():
    """Control characters inside a list are data: they are kept, and state() gives them back."""
    content = "\x1b[31mred\x00\u202e"
    model = calling(Call("todo_write", {"todos": [{"content": content, "status": "pending"}]}))
    async with open_runtime(model=model) as rt:
        s = await rt.create("x")
        await s.run("go")
        (written,) = [one for one in events(rt, "x") if isinstance(one, TodosWritten)]
        assert content == written.todos[0].content
        assert 2 == sum(isinstance(one, ModelSaid) for one in events(rt, "x"))
