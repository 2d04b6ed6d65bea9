"""Recorded sessions replayed as sessions of ours: every call paired, and no tool of ours run by mistake."""

import asyncio
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from callboard.actors import (
    ChildEnded,
    ModelSaid,
    Plugin,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    Usage,
    UsageError,
    tool,
)
from callboard.plugins import DEFAULT, MACHINE
from callboard.runtime import open_runtime
from callboard.runtime.models.replay import ReplayModel
from callboard.runtime.recordings import (
    RecordedAgent,
    RecordedCall,
    RecordedReply,
    RecordedTurn,
    Recording,
    read_recording,
)
from callboard.runtime.recordings.recording import calls_of

from .hosted import events

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
FILES = sorted(path for path in TRACES.glob("*/*.jsonl"))
SECONDS_MAX = 10.0
PEAK_BYTES_MAX = 96 * 1024 * 1024
LONG_LINES = 1881

without_traces = pytest.mark.skipif(not FILES, reason="the recordings are not here")


async def replayed(model, **options):
    """Play all tasks of a recording; the ends of the turns, and the logs of all sessions."""
    async with open_runtime(model=model, **options) as rt:
        replay = rt.models.default
        assert isinstance(replay, ReplayModel)
        s = await rt.create("r")
        for name, task in replay.loose_agents:
            await rt.spawn("r", name, task, notify=False)
        ended = [await s.run(task) for task in replay.tasks]
        for one in rt.sessions():
            await one.wait_idle()
        return ended, {one.id: events(rt, one.id) for one in rt.sessions()}, s.state()


def of(log, kind):
    """The events of one kind."""
    return [event for event in log if isinstance(event, kind)]


def check_paired(logs):
    """Each call has its one result, and each turn its one end."""
    for log in logs.values():
        asked = [call.id for said in of(log, ModelSaid) for call in said.calls]
        assert sorted(asked) == sorted(one.call for one in of(log, ToolReturned))
        assert [one.turn for one in of(log, TurnStarted)] == [one.turn for one in of(log, TurnEnded)]


def recording(*replies, agents=(), prompt="do it"):
    """A recording of one turn."""
    return Recording("test", "x", None, None, (RecordedTurn(prompt, tuple(replies)),), tuple(agents))


def call(name, id, arguments=None, result="as recorded", *, failed=False):
    """A recorded call."""
    return RecordedCall(id, name, {} if arguments is None else arguments, result, failed)


def said(text="", *calls):
    """A recorded reply."""
    return RecordedReply(text, tuple(calls))


# -- real recordings ---------------------------------------------------------------------------------------------------


@without_traces
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_real_recording(path):
    """A real recording replays whole: its turns, its calls with their results, its agents beside their parent."""
    known = read_recording(path)
    began_s = time.monotonic()
    ended, logs, _ = await replayed(f"replay:{path}")
    assert time.monotonic() - began_s < SECONDS_MAX
    assert len(known.turns) == len(ended)
    assert {"completed"} == {one.reason for one in ended}
    assert {None} == {one.error for one in ended}
    check_paired(logs)
    expected = Counter(one.id for one in calls_of(known.turns))
    assert expected == Counter(one.call for one in of(logs["r"], ToolReturned))
    assert 1 + len(known.agents) == len(logs)
    for agent in known.agents:
        (log,) = (log for name, log in logs.items() if name.endswith(f"_{agent.id}"))
        assert len(calls_of(agent.turns)) == len(of(log, ToolReturned))
    failed = sum(one.failed for one in calls_of(known.turns) if one.name not in ("TodoWrite", "update_plan"))
    missing = sum(one.result is None for one in calls_of(known.turns))
    ours = sum(one.receipt == "failed" and one.name == "todo_write" for one in of(logs["r"], ToolReturned))
    assert failed + missing + ours == sum(one.receipt == "failed" for one in of(logs["r"], ToolReturned))
    assert not [one for log in logs.values() for one in of(log, ToolReturned) if "unsupported call" in one.text]


@without_traces
async def test_reopened_recording(tmp_path):
    """The log of a replayed recording, opened again, gives the same state."""
    path = next(path for path in FILES if path.stem == "todowrite_examples")
    url = f"sqlite:///{tmp_path / 'x.db'}"
    _, logs, before = await replayed(f"replay:{path}", store=url)
    async with open_runtime(store=url) as rt:
        assert before == (await rt.open("r")).state()
        assert logs["r"] == events(rt, "r")
    assert {"todo_write"} == {one.name for one in of(logs["r"], ToolReturned)}
    assert 3 == len([one for one in logs["r"] if type(one).__name__ == "TodosWritten"])


@without_traces
async def test_long_recording_is_quick_and_small():
    """The longest recording replays within seconds and a bounded memory, its store included."""
    path = next(path for path in FILES if path.stem == "fa812bfe")
    assert LONG_LINES == len(path.read_bytes().splitlines())
    tracemalloc.start()
    try:
        began_s = time.monotonic()
        await replayed(f"replay:{path}")
        assert time.monotonic() - began_s < SECONDS_MAX
        assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES_MAX
    finally:
        tracemalloc.stop()


@without_traces
async def test_many_at_once():
    """Ten sessions replay the same recording side by side, and each has all of it."""
    path = next(path for path in FILES if path.stem == "fa812bfe")
    async with open_runtime(model=f"replay:{path}") as rt:
        replay = rt.models.default
        assert isinstance(replay, ReplayModel)

        async def play(name):
            s = await rt.create(name)
            for task in replay.tasks:
                await s.run(task)
            return len(of(events(rt, name), ToolReturned))

        counts = await asyncio.gather(*(play(f"s{n}") for n in range(10)))
        assert {len(calls_of(replay.recording.turns))} == set(counts)


# -- odd recordings ----------------------------------------------------------------------------------------------------


async def test_names_of_our_tools():
    """A recorded call never runs a tool of ours, whatever its name is."""
    ran: list[str] = []

    @tool
    async def shell(command: str) -> str:
        """Would do something."""
        ran.append("shell")
        return "ours"

    @tool
    async def read_file(path: str) -> str:
        """Would do something."""
        ran.append("read_file")
        return "ours"

    names = ["shell", "read_file", "spawn_agent", "wait_agent", "list_agents"]
    model = ReplayModel(recording(said("", *(call(name, f"c{n}") for n, name in enumerate(names))), said("end")))
    plugins = (*DEFAULT, Plugin("machine", tools=(shell,)))
    _, logs, _ = await replayed(model, tools=[read_file], plugins=plugins)
    assert [(name, "completed", "as recorded") for name in names] == [
        (one.name, one.receipt, one.text) for one in of(logs["r"], ToolReturned)
    ]
    assert ([], 1) == (ran, len(logs))


async def test_shipped_tools_of_the_machine():
    """The same holds for the shipped plugins that touch the machine."""
    ours = [one.name for plugin in MACHINE for one in plugin.tools]
    model = ReplayModel(recording(said("", *(call(name, f"c{n}") for n, name in enumerate(ours)))))
    _, logs, _ = await replayed(model, plugins=(*DEFAULT, *MACHINE))
    assert {"as recorded"} == {one.text for one in of(logs["r"], ToolReturned)}
    assert len(ours) == len(of(logs["r"], ToolReturned))


async def test_odd_names_and_ids():
    """Names and ids that could not stand on a log are replaced, and each call still has its own result."""
    names = ["", "with space", "new\nline", "x" * 500, "\ud800", "a/b", "mcp__x__y", "\x1b[31m"]
    ids = ["", "new\nline", "x" * 500, "\ud800", "r1", "r0", "ok", "ok2"]
    calls = [call(name, id, result=f"result {n}") for n, (name, id) in enumerate(zip(names, ids, strict=True))]
    _, logs, _ = await replayed(ReplayModel(recording(said("", *calls), said("end"))))
    check_paired(logs)
    returned = of(logs["r"], ToolReturned)
    assert [f"result {n}" for n in range(len(names))] == [one.text for one in returned]
    assert {"completed"} == {one.receipt for one in returned}
    assert all(one.name.isprintable() and one.call.isprintable() for one in returned)


async def test_huge_and_missing_results():
    """A huge result is cut in the middle, a missing one is a failed call that says so, a failed one stays failed."""
    calls = [
        call("Read", "big", result="head" + "x" * 20_000_000 + "tail"),
        call("Read", "none", result=None),
        call("Read", "bad", result="no such file", failed=True),
        call("Read", "empty", result=""),
    ]
    _, logs, _ = await replayed(ReplayModel(recording(said("", *calls), said("end"))))
    big, none, bad, empty = of(logs["r"], ToolReturned)
    assert len(big.text) < 300_000
    assert (True, True, True) == (big.text.startswith("head"), big.text.endswith("tail"), "bytes cut" in big.text)
    assert ("failed", "the recording has no result for this call") == (none.receipt, none.text)
    assert ("failed", "no such file") == (bad.receipt, bad.text)
    assert ("completed", "") == (empty.receipt, empty.text)


async def test_text_in_the_middle_of_a_turn():
    """Replies without calls in the middle of a turn do not end it, and replies of nothing at the end do."""
    replies = [said("thinking"), said("more"), said("", call("Bash", "c")), said("still"), said("the end")]
    ended, logs, _ = await replayed(ReplayModel(recording(*replies)))
    assert ("the end", 5, 1) == (ended[0].last_message, ended[0].steps, ended[0].tool_calls)
    assert ["thinking", "more", "", "still", "the end"] == [one.text for one in of(logs["r"], ModelSaid)]


async def test_turns_without_replies():
    """A turn that was recorded without a reply is an empty turn, and the next one is as recorded."""
    turns = (RecordedTurn("one"), RecordedTurn("two", (said("answer"),)), RecordedTurn("three"))
    ended, _, _ = await replayed(ReplayModel(Recording("test", "x", None, None, turns)))
    assert [None, "answer", None] == [one.last_message for one in ended]


async def test_agents():
    """A recorded agent runs as a child session behind the call that started it, several of them at once."""
    agents = [
        RecordedAgent(
            f"id{n}",
            "explore",
            f"look at {n}",
            (RecordedTurn("x", (said("", call("Bash", f"a{n}")), said(f"saw {n}"))),),
            f"c{n}",
        )
        for n in range(12)
    ]
    calls = [call("Task", f"c{n}", result=f"agent says {n}") for n in range(12)]
    ended, logs, state = await replayed(ReplayModel(recording(said("", *calls), said("end"), agents=agents)))
    check_paired(logs)
    assert {"r"} | {f"r.explore_id{n}" for n in range(12)} == set(logs)
    assert [f"agent says {n}" for n in range(12)] == [one.text for one in of(logs["r"], ToolReturned)]
    assert {"completed"} == {one["status"] for one in state["children"]}
    assert 12 == len({one.child for one in of(logs["r"], ChildEnded)})
    assert "end" == ended[0].last_message


async def test_agent_without_its_call():
    """An agent that no recorded call started is listed by itself, and can be started beside the session."""
    agent = RecordedAgent("id", "name", "its task", (RecordedTurn("x", (said("alone"),)),), call=None)
    lost = RecordedAgent("id2", "", "", (), call="no such call")
    model = ReplayModel(recording(said("end"), agents=[agent, lost]))
    assert (("name_id", "its task"), ("id2", "")) == model.loose_agents
    model = ReplayModel(recording(said("end"), agents=[agent]))
    _, logs, state = await replayed(model)
    assert ["alone"] == [one.text for one in of(logs["r.name_id"], ModelSaid)]
    assert ["completed"] == [one["status"] for one in state["children"]]


async def test_agents_with_the_same_name():
    """Agents whose names would be the same get names of their own."""
    agents = [RecordedAgent("x", "a", "t", (RecordedTurn("x", (said(f"{n}"),)),), f"c{n}") for n in range(3)]
    model = ReplayModel(recording(said("", *(call("Task", f"c{n}") for n in range(3))), agents=agents))
    _, logs, _ = await replayed(model)
    assert {"r", "r.a_x", "r.a_x_2", "r.a_x_3"} == set(logs)


async def test_three_hundred_calls_in_one_reply():
    """A reply with many calls is replayed whole, in order."""
    calls = [call("Bash", f"c{n}", result=f"{n}") for n in range(300)]
    _, logs, _ = await replayed(ReplayModel(recording(said("", *calls), said("end"))))
    assert [str(n) for n in range(300)] == [one.text for one in of(logs["r"], ToolReturned)]


async def test_todo_lists_go_through_our_plugin():
    """A recorded todo list is mapped to what ours knows; one that ours refuses is a failed call that says why."""
    good = {"todos": [{"content": "a", "status": "completed", "activeForm": "doing a", "id": "1"}]}
    calls = [
        call("TodoWrite", "c1", good),
        call("todowrite", "c2", {"todos": []}),
        call("TodoWrite", "c3", {"todos": [{"content": "a", "status": "cancelled"}]}),
        call("TodoWrite", "c4", {"todos": "none"}),
        call("TodoWrite", "c5", "not json"),
        call("TodoWrite", "c6", {"todos": [{"content": 5, "status": "pending"}]}),
    ]
    _, logs, _ = await replayed(ReplayModel(recording(*(said("", one) for one in calls), said("end"))))
    returned = of(logs["r"], ToolReturned)
    assert {"todo_write"} == {one.name for one in returned}
    assert ["completed", "completed", "failed", "failed", "failed", "failed"] == [one.receipt for one in returned]
    assert "cancelled" in returned[2].text
    assert "todos" in returned[3].text


async def test_plans_of_codex():
    """A recorded plan may be JSON text, as Codex writes it; an unknown status is refused and shown."""
    calls = [
        call("update_plan", "c1", '{"explanation":"why","plan":[{"step":"one","status":"in_progress"}]}'),
        call("update_plan", "c2", {"plan": [{"step": "one", "status": "completed", "extra": 1}]}),
        call("update_plan", "c3", {"plan": [{"step": "one", "status": "skipped"}]}),
        call("update-plan", "c4", "{broken"),
        call("update_plan", "c5", {"plan": [{"step": "x", "status": "pending"}], "explanation": 5}),
        call("update_plan", "c6", "[" * 100_000),
    ]
    _, logs, state = await replayed(ReplayModel(recording(*(said("", one) for one in calls), said("end"))))
    returned = of(logs["r"], ToolReturned)
    assert ["completed", "completed", "failed", "failed", "completed", "failed"] == [one.receipt for one in returned]
    assert "skipped" in returned[2].text
    assert [{"step": "x", "status": "pending"}] == list(state["plan"]["plan"])
    assert {"update_plan"} == {one.name for one in returned}


async def test_odd_arguments():
    """Arguments of any shape are kept as they can be, and the recorded result is given."""
    arguments = [{}, "", "plain text", {"deep": [[[]] * 3] * 3}, "[" * 50_000, {"n": 1e308}, {"\ud800": "\ud800"}]
    calls = [call("Any", f"c{n}", one) for n, one in enumerate(arguments)]
    _, logs, _ = await replayed(ReplayModel(recording(said("", *calls), said("end"))))
    check_paired(logs)
    receipts = [one.receipt for one in of(logs["r"], ToolReturned)]
    assert "completed" == receipts[0] == receipts[1] == receipts[2] == receipts[3]
    assert len(arguments) == len(receipts) >= len(of(logs["r"], ToolCalled))


async def test_usage_is_counted():
    """Token counts of any provider's keys are taken, and what is no count is left out."""
    counts: list[Any] = [
        {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 3},
        {"input": 1, "output": 2, "cacheRead": 4, "reasoning": 8},
        {"input_tokens": -5, "output_tokens": True, "output": "x", "reasoning_output_tokens": 2**60},
        None,
    ]
    replies = [RecordedReply("x", (), one) for one in counts]
    ended, _, _ = await replayed(ReplayModel(recording(*replies)))
    assert Usage(6, 7, 9, 8) == ended[0].usage


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is empty"), (b"\x00\x01" * 50, "is binary"), (b"hello\n", "no known format"), (None, "no file")],
    ids=["empty", "binary", "text", "missing"],
)
async def test_file_that_is_no_recording(content, words, tmp_path):
    """A file that cannot be replayed is a UsageError that names it, before anything runs."""
    path = tmp_path / "x.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        open_runtime(model=f"replay:{path}")


async def test_recording_is_the_model_of_a_runtime(tmp_path):
    """A recording as the model of one session is refused, because it brings tools along."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"type":"user","sessionId":"s","message":{"role":"user","content":"hi"}}\n')
    async with open_runtime() as rt:
        with pytest.raises(UsageError, match="whole runtime"):
            await rt.create(model=f"replay:{path}")
    async with open_runtime(model=f"replay:{path}") as rt:
        await rt.create(model=f"replay:{path}")
