"""Events become spans: one trace for a tree, each span inside its cause, and no content unless it is asked for."""

import itertools
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.events import (
    Call,
    Event,
    ModelFailed,
    ModelSaid,
    SessionOpened,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnRecovered,
    TurnStarted,
    Usage,
)
from callboard.actors.facts import ChildSpawned
from callboard.metrics.spans import NS_MS, NS_S, Span, Spans, span_of, trace_of

USED = Usage(100, 40, 9, 4, 0.5)
SECRET = "the words of somebody"
OPENED = {
    "p": SessionOpened(root="p", model="openai:gpt-x"),
    "p.a": SessionOpened("p", "p", 1, "/root/a"),
}
STORY: list[tuple[str, Event]] = [
    ("p", OPENED["p"]),
    ("p", TurnStarted(1)),
    ("p", StepStarted(1, 1)),
    ("p", ModelFailed("no", retryable=True, seconds=0.5, provider="openai")),
    (
        "p",
        ModelSaid(
            SECRET,
            (Call("spawn_agent", {"x": SECRET}, "c1"), Call("look", SECRET, "c2")),
            usage=USED,
            seconds=2.0,
            provider="openai",
        ),
    ),
    ("p", ToolCalled("c1", "spawn_agent", {"x": SECRET})),
    ("p", ChildSpawned("p.a", "/root/a", SECRET, role="scout")),
    ("p.a", OPENED["p.a"]),
    ("p.a", TurnStarted(1, start="automatic")),
    ("p", ToolReturned("c1", "completed", "completed", SECRET, name="spawn_agent")),
    ("p", ToolCalled("c2", "look", SECRET, "none")),
    ("p", ToolReturned("c2", "failed", "failed", SECRET, name="look")),
    ("p", ToolReturned("c3", "not_started", None, SECRET, name="look")),
    ("p", StepEnded(1, 1, 0.001)),
    ("p.a", TurnEnded(1, "completed", last_message=SECRET)),
    ("p", TurnEnded(1, "aborted", "interrupted", last_message=SECRET, usage=USED, steps=1, tool_calls=3)),
]


def spans_of(events: list[tuple[str, Event]], **more: Any) -> list[Span]:
    """What comes of them: a second passes between two events, and ids are counted."""
    made, ids, clock = list[Span](), itertools.count(1), itertools.count(1000)
    spans = Spans(
        made.append, OPENED.get, "scripted:demo", lambda: next(clock) * NS_S, new_id=lambda: next(ids), **more
    )
    for session, event in events:
        spans.event(event, session, None)
    return made


def test_a_tree_is_one_trace_and_each_span_is_inside_its_cause():
    """Sessions by the calls that start them, turns in sessions, steps in turns, models and tools in steps."""
    spans = spans_of(STORY)
    assert {span.trace for span in spans} == {trace_of("p")}
    assert len({span.id for span in spans}) == len(spans)
    names = {span.id: span.name for span in spans}
    assert [(span.name, names.get(span.parent or 0)) for span in spans] == [
        ("create_agent /root", None),
        ("chat gpt-x", "step 1"),
        ("chat gpt-x", "step 1"),
        ("create_agent /root/a", "execute_tool spawn_agent"),
        ("execute_tool spawn_agent", "step 1"),
        ("execute_tool look", "step 1"),
        ("execute_tool look", "step 1"),
        ("step 1", "invoke_agent /root"),
        ("invoke_agent /root/a", "create_agent /root/a"),
        ("invoke_agent /root", "create_agent /root"),
    ]
    by_id = {span.id: span for span in spans}
    for span in spans:
        assert span.start_ns <= span.end_ns
        parent = by_id.get(span.parent or 0)
        if parent is not None and not parent.name.startswith("create_agent"):
            assert parent.start_ns <= span.start_ns


def test_what_the_conventions_name():
    """Operations, models, tokens, tools and ends stand under the names that others look for."""
    spans = spans_of(STORY)
    failed, model = (span for span in spans if span.name == "chat gpt-x")
    assert (failed.error, failed.attributes["error.type"], failed.kind) == ("no", "model_error", "client")
    assert (model.end_ns - model.start_ns, model.kind, model.error) == (2 * NS_S, "client", None)
    assert model.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.conversation.id": "p",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 9,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "gen_ai.usage.reasoning.output_tokens": 4,
        "callboard.cost_usd": 0.5,
        "gen_ai.response.finish_reasons": ("tool_call",),
    }
    tools = [span for span in spans if span.name == "execute_tool look"]
    assert [
        (one.attributes["gen_ai.tool.call.id"], one.attributes["callboard.receipt"], one.error) for one in tools
    ] == [
        ("c2", "failed", "failed"),
        ("c3", "not_started", None),
    ]
    turn = spans[-1]
    assert turn.error is None
    for name, value in {"turn": 1, "turn.start": "user", "turn.reason": "aborted", "turn.cause": "interrupted"}.items():
        assert turn.attributes[f"callboard.{name}"] == value
    assert turn.attributes["gen_ai.agent.name"] == "/root"


def test_no_content_unless_it_is_asked_for():
    """What was said, arguments and results are told only then, and tasks and messages of users never."""
    assert SECRET not in repr(spans_of(STORY))
    told = spans_of(STORY, contents=True)
    by_name = {span.name: span.attributes for span in told}
    assert msgspec.json.decode(str(by_name["chat gpt-x"]["gen_ai.output.messages"])) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": SECRET},
                {"type": "tool_call", "id": "c1", "name": "spawn_agent"},
                {"type": "tool_call", "id": "c2", "name": "look"},
            ],
            "finish_reason": "tool_call",
        }
    ]
    assert by_name["execute_tool spawn_agent"]["gen_ai.tool.call.arguments"] == f'{{"x":"{SECRET}"}}'
    assert by_name["execute_tool spawn_agent"]["gen_ai.tool.call.result"] == SECRET
    assert SECRET in str(by_name["invoke_agent /root"]["gen_ai.output.messages"])
    long = spans_of(
        [
            ("p", TurnStarted(1)),
            ("p", ToolCalled("c", "f", "x" * 99_999)),
            ("p", ToolReturned("c", "completed", None, "y" * 99_999)),
        ],
        contents=True,
    )
    assert max(len(str(value)) for value in long[0].attributes.values()) == 8_192


def test_a_turn_of_another_process():
    """What a crash left is told from its end, or from where it went on."""
    (closed,) = spans_of([("p", TurnEnded(3, "interrupted", error="died", started_ms=900_000))])
    assert (closed.name, closed.start_ns, closed.parent, closed.error) == (
        "invoke_agent /root",
        900_000 * NS_MS,
        span_of("p"),
        "died",
    )
    spans = spans_of([("p", TurnRecovered(3, 1)), ("p", StepStarted(3, 2)), ("p", TurnEnded(3, "completed"))])
    assert [span.name for span in spans] == ["step 2", "invoke_agent /root"]
    assert spans[1].attributes["callboard.turn.recovered"] == 1


def test_a_crash_in_the_middle_leaves_nothing_open():
    """A turn that ends takes its step with it, and the next one begins anew."""
    spans = spans_of(
        [
            ("p", TurnStarted(1)),
            ("p", StepStarted(1, 1)),
            ("p", TurnEnded(1, "interrupted")),
            ("p", TurnStarted(2)),
            ("p", TurnEnded(2, "completed")),
        ]
    )
    assert [span.name for span in spans] == ["step 1", "invoke_agent /root", "invoke_agent /root"]
    assert [span.attributes["callboard.turn"] for span in spans] == [1, 1, 2]


ANY: st.SearchStrategy[tuple[str, Event]] = st.tuples(
    st.sampled_from(["p", "p.a", "q"]),
    st.sampled_from([event for _, event in STORY] + [TurnRecovered(1, 1), TurnStarted(2), TurnEnded(2, "completed")]),
)


@given(events=st.lists(ANY, max_size=25), contents=st.booleans())
def test_events_in_any_order_are_spans(events, contents):
    """Nothing raises, and no span ends before it starts."""
    for span in spans_of(events, contents=contents):
        assert span.start_ns <= span.end_ns
        assert span.name
