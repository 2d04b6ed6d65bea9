"""Spans reach a collector over loopback; nothing is imported without [otel], and nobody waits for a collector."""

import asyncio
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.sse_server import Answer, Heard, Piece, SseServer, sse_server

from callboard.actors import Call, MissingExtra, Prompt, Reply, tool
from callboard.actors.testing import ScriptedModel
from callboard.metrics.spans import trace_of
from callboard.runtime import RuntimeConfig, open_runtime, tracing
from callboard.runtime.settings import Otel

SECRET = "the words of somebody"
ROOT = Path(__file__).parents[2]
TAKEN = Answer(headers={"content-type": "application/x-protobuf"}, framing="length")


@tool(effect="none", parallel=True)
async def look(where: str) -> str:
    """Look."""
    return f"{where}: {SECRET}"


def play(prompt: Prompt) -> Reply:
    """A tool, an agent, and a last word."""
    if "." in prompt.session:
        return Reply(SECRET)
    first = [Call("look", {"where": "north"}, "c1"), Call("spawn_agent", {"task_name": "a", "message": SECRET}, "c2")]
    return {1: Reply("", first), 2: Reply("", [Call("wait_agent")])}.get(prompt.step, Reply(SECRET))


def spans_in(server: SseServer) -> list[Any]:
    """All spans that a collector has got, with the resource of the last request."""
    found = []
    for heard in server.heard:
        request = ExportTraceServiceRequest.FromString(heard.body)
        found += [span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]
    return found


def attributes_of(span: Any) -> dict[str, Any]:
    """The attributes of a span, as values."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


async def run(url: str, **more: Any) -> Any:
    """One turn of a traced runtime."""
    config = RuntimeConfig(otel=Otel(endpoint=url + "/v1/traces", **more))
    async with open_runtime(config, model=ScriptedModel(play), tools=[look]) as rt:
        session = await rt.create("p", system=SECRET)
        return await session.run(SECRET)


async def test_a_tree_arrives_as_one_trace():
    """Session, turn, step, model and tool spans, each inside the one that caused it, with no word of anybody."""
    with sse_server([TAKEN]) as server:
        await run(server.url, service_name="fair")
    spans = spans_in(server)
    by_id = {span.span_id: span for span in spans}
    found = sorted((span.name, by_id[span.parent_span_id].name if span.parent_span_id else "") for span in spans)
    assert found == sorted(
        [
            ("create_agent /root", ""),
            ("invoke_agent /root", "create_agent /root"),
            *((f"step {number}", "invoke_agent /root") for number in (1, 2, 3)),
            *(("chat scripted", f"step {number}") for number in (1, 2, 3)),
            ("execute_tool look", "step 1"),
            ("execute_tool spawn_agent", "step 1"),
            ("execute_tool wait_agent", "step 2"),
            ("create_agent /root/a", "execute_tool spawn_agent"),
            ("invoke_agent /root/a", "create_agent /root/a"),
            ("step 1", "invoke_agent /root/a"),
            ("chat scripted", "step 1"),
        ]
    )
    assert {int.from_bytes(span.trace_id) for span in spans} == {trace_of("p")}
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    look_span = next(span for span in spans if span.name == "execute_tool look")
    assert attributes_of(look_span)["gen_ai.tool.call.id"] == "c1"
    bodies = b"".join(heard.body for heard in server.heard)
    assert SECRET.encode() not in bodies
    assert b"fair" in bodies


async def test_contents_where_they_are_asked_for():
    """What models said, arguments and results; what people said never."""
    with sse_server([TAKEN]) as server:
        await run(server.url, content=True)
    told = [attributes_of(span) for span in spans_in(server)]
    assert any(SECRET in one.get("gen_ai.output.messages", "") for one in told)
    assert any(SECRET in one.get("gen_ai.tool.call.result", "") for one in told)


async def test_a_collector_that_is_down_is_one_warning(caplog):
    """Whatever it answers, or does not, the runtime goes on, ends in time, and says so once."""
    with caplog.at_level(logging.WARNING), sse_server([Answer(status=400, framing="length")]) as server:
        ended = await run(server.url)
    assert ended.reason == "completed"
    with sse_server([TAKEN]) as server:
        url = server.url  # nobody listens there any more
    began_s = time.perf_counter()
    with caplog.at_level(logging.WARNING):
        ended = await run(url)
    assert ended.reason == "completed"
    assert time.perf_counter() - began_s < tracing.CLOSE_S + 5
    warned = [record.getMessage() for record in caplog.records if "traces do not reach" in record.getMessage()]
    assert warned == ["traces do not reach 127.0.0.1: spans are dropped until it answers"] * len(warned)
    assert 1 <= len(warned) <= 2
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []


async def test_a_collector_that_is_slow_holds_nobody_up():
    """Turns do not wait for it, and the end waits for so long and no longer."""

    def slow(heard: Heard) -> Answer:
        return Answer(pieces=(Piece(b"x", delay_s=30.0),))

    with sse_server(slow) as server:
        began_s = time.perf_counter()
        await run(server.url)
        assert time.perf_counter() - began_s < tracing.CLOSE_S + 5


async def test_a_bug_of_tracing_is_nobody_elses(monkeypatch, caplog):
    """It is logged once, tracing goes no further, and metrics go on counting."""

    def broken(*_: Any) -> None:
        raise LookupError("a bug")

    with sse_server([TAKEN]) as server:
        config = RuntimeConfig(otel=Otel(endpoint=server.url))
        async with open_runtime(config, model=ScriptedModel(play), tools=[look]) as rt:
            assert rt._ground.tracing is not None
            monkeypatch.setattr(rt._ground.tracing._spans, "event", broken)
            session = await rt.create("p")
            assert (await session.run("go")).reason == "completed"
            assert "callboard_turns_total{" in rt.metrics_text()
    assert [record.getMessage() for record in caplog.records if "tracing" in record.getMessage()] == [tracing.FAILED]


async def test_without_the_extra(monkeypatch):
    """The error names it, before anything is opened."""
    monkeypatch.setattr(tracing, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"install callboard\[otel\]"):
        await run("http://127.0.0.1:9")


NOTHING_IMPORTED = """
import asyncio, sys
from callboard.runtime import open_runtime
async def main():
    async with open_runtime() as rt:
        await (await rt.create()).run("hi")
    assert not [name for name in sys.modules if name.startswith("opentelemetry")]
asyncio.run(main())
"""


def test_nothing_is_imported_without_it():
    """Who does not trace does not pay."""
    subprocess.run([sys.executable, "-c", NOTHING_IMPORTED], check=True, timeout=60, cwd=ROOT)


async def test_many_turns_are_traced_whole():
    """Fifty sessions at once lose no span."""
    with sse_server([TAKEN]) as server:
        config = RuntimeConfig(otel=Otel(endpoint=server.url))
        async with open_runtime(config, model=ScriptedModel(lambda prompt: Reply("ok"))) as rt:
            sessions = [await rt.create() for _ in range(50)]
            await asyncio.gather(*(one.run("go") for one in sessions))
    assert len(spans_in(server)) == 50 * 4
