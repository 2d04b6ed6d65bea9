"""plan: the arguments of update_plan, its refusals, the fold behind it, open steps and the note after a restart."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.books import TURN
from callboard.actors.codec import Codec
from callboard.actors.envelope import CORE_EVENTS
from callboard.actors.errors import ToolError
from callboard.actors.events import Event, Message, NoteAdded, StepEnded, StepStarted, TurnEnded, TurnStarted
from callboard.actors.facts import PlanModeRequested, PlanModeSet, PlanStep, PlanUpdated, TodosWritten
from callboard.actors.fold import Projection, replay
from callboard.actors.mode import MODE
from callboard.actors.plugin import Enter
from callboard.plugins.checklist import ITEM_MAX_CHARS, ITEMS_MAX
from callboard.plugins.plan import (
    DESCRIPTION,
    ENFORCED,
    EXPLANATION_FIELD,
    NOTE,
    PLAN,
    PLAN_PLUGIN,
    STEPS_FIELD,
    Plan,
    UpdatePlan,
    plan_plugin,
    remind,
)

A, B, C = PlanStep("read", "completed"), PlanStep("write", "in_progress"), PlanStep("check", "pending")
PARSE = "failed to parse function arguments: "


class FakeView:
    """The part of a View that the plan uses, over events that were appended."""

    def __init__(self, *events: Event, fresh: bool = False, turn: int = 1) -> None:
        self.events = list(events)
        self.fresh, self.turn = fresh, turn

    def __getitem__(self, projection: Projection[Any]) -> Any:
        return replay(projection, (e for e in self.events if projection.on is None or type(e) in projection.on))

    def append(self, *events: Event) -> None:
        self.events.extend(events)


def call(view: FakeView, arguments: Any, plugin=PLAN_PLUGIN) -> Any:
    """What a dispatcher does with one call: refuse, parse, run."""
    (tool,) = plugin.tools
    refused = tool.refuse(view)
    if refused is not None:
        raise ToolError(refused)
    args, kwargs = tool.bind(tool.parse(arguments), view)
    return tool.fn(*args, **kwargs)


def stepping(hook, view: FakeView, *messages: Message) -> Any:
    """The answer of a before_step hook that never waits."""
    with pytest.raises(StopIteration) as stop:
        hook(view, messages).send(None)
    return stop.value.value


def steps(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"step": step, "status": status} for step, status in pairs]


def test_it_declares_what_the_dispatcher_needs():
    """update_plan is a control tool for the model alone that runs in one piece and goes alone."""
    (tool,) = PLAN_PLUGIN.tools
    declared = (tool.name, tool.control, tool.effect, tool.exposure, tool.parallel, tool.mutates, tool.runs_on)
    assert ("update_plan", True, "none", "direct_model_only", False, False, "trio") == declared


def test_exposure_can_be_widened():
    """A configuration may offer the tool inside code as well."""
    assert plan_plugin(exposure="direct").tools[0].exposure == "direct"


def test_the_schema_is_closed_at_every_level():
    """The model sees two fields and two per step, all else forbidden, with only the explanation optional."""
    (tool,) = PLAN_PLUGIN.tools
    item = {
        "type": "object",
        "description": "One step of a plan: what is to be done, and how far it is.",
        "properties": {"step": {"type": "string"}, "status": {"enum": ["completed", "in_progress", "pending"]}},
        "required": ["step", "status"],
        "additionalProperties": False,
    }
    assert tool.spec.parameters == {
        "type": "object",
        "description": UpdatePlan.__doc__,
        "properties": {
            "plan": {"description": STEPS_FIELD, "type": "array", "items": item},
            "explanation": {"description": EXPLANATION_FIELD, "anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["plan"],
        "additionalProperties": False,
    }


def test_a_call_writes_one_event_and_says_so():
    """A good call appends the whole plan once and the model reads the fixed text."""
    view = FakeView()
    said = call(
        view, json.dumps({"explanation": "why", "plan": steps(("read", "completed"), ("write", "in_progress"))})
    )
    assert said == "Plan updated"
    assert view.events == [PlanUpdated("why", (A, B))]
    assert view[PLAN] == Plan("why", (A, B))


@pytest.mark.parametrize(
    ("plan", "expected"),
    [([], ()), (steps(("", "pending"), ("", "pending")), (PlanStep("", "pending"),) * 2)],
    ids=["empty list", "empty and repeated steps"],
)
def test_what_looks_odd_is_accepted(plan, expected):
    """Empty lists, empty steps and repeated steps are plans."""
    view = FakeView()
    assert call(view, {"plan": plan}) == "Plan updated"
    assert view[PLAN] == Plan(None, expected)


def test_a_null_explanation_is_none():
    """`explanation: null` writes the same event as no explanation."""
    with_null, without = FakeView(), FakeView()
    call(with_null, '{"plan": [], "explanation": null}')
    call(without, '{"plan": []}')
    assert with_null.events == without.events == [PlanUpdated(None, ())]


def test_an_equal_plan_is_written_again():
    """A call that changes nothing still puts its event on the log."""
    view = FakeView()
    call(view, {"plan": []})
    call(view, {"plan": []})
    assert view.events == [PlanUpdated(None, ())] * 2


def test_a_call_replaces_the_whole_plan():
    """Nothing of the last plan is merged into the next, the explanation included."""
    view = FakeView(PlanUpdated("old", (A, B, C)))
    call(view, {"plan": steps(("check", "pending"))})
    assert view[PLAN] == Plan(None, (C,))


def test_plan_mode_refuses_before_parsing():
    """In Plan mode even nonsense is answered with the mode's refusal, and nothing is written."""
    view = FakeView(PlanModeSet(active=True))
    with pytest.raises(ToolError, match=r"^update_plan is a TODO/checklist tool and is not allowed in Plan mode$"):
        call(view, "{nonsense")
    assert view.events == [PlanModeSet(active=True)]


@pytest.mark.parametrize("asked", [PlanModeRequested(active=True), PlanModeSet(active=False)])
def test_only_the_mode_of_the_log_refuses(asked):
    """A selection that still waits, or a mode that ended, refuses nothing."""
    view = FakeView(asked)
    assert (view[MODE].active, call(view, {"plan": []})) == (False, "Plan updated")


@pytest.mark.parametrize("one_in_progress", [False, True])
def test_the_rule_of_one_is_always_in_the_description(one_in_progress):
    """The model is asked for one step in progress, and told of the refusal where there is one."""
    description = plan_plugin(one_in_progress=one_in_progress).tools[0].spec.description
    assert description == (DESCRIPTION + ENFORCED if one_in_progress else DESCRIPTION)
    assert "at most one" in DESCRIPTION


def test_several_in_progress_are_accepted_by_default():
    """The rule is advice unless it is switched on."""
    view = FakeView()
    call(view, {"plan": steps(("a", "in_progress"), ("b", "in_progress"))})
    assert len(view.events) == 1


def test_the_rule_of_one_gives_the_count():
    """With the rule on, three in progress are refused with their number and nothing is written."""
    view, strict = FakeView(), plan_plugin(one_in_progress=True)
    with pytest.raises(ToolError, match=r"^invalid plan: at most one step may be in_progress \(got 3\)$"):
        call(view, {"plan": steps(*[("same", "in_progress")] * 3)}, strict)
    assert view.events == []
    assert call(view, {"plan": steps(("a", "in_progress"), ("b", "pending"))}, strict) == "Plan updated"


def test_the_rule_of_one_comes_after_parsing():
    """A call that is wrong in both ways is answered with what does not parse."""
    wrong = [*steps(("a", "in_progress"), ("b", "in_progress")), {"step": "c"}]
    with pytest.raises(ToolError, match=r"missing required field `status` - at `\$\.plan\[2\]`"):
        call(FakeView(), {"plan": wrong}, plan_plugin(one_in_progress=True))


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = {
    "not json": ("{nonsense", "JSON is malformed"),
    "not an object": ("[]", "Expected `object`, got `array`"),
    "null": ("null", "Expected `object`, got `null`"),
    "nothing": ("", "missing required field `plan`"),
    "no plan": ("{}", "missing required field `plan`"),
    "plan is null": ('{"plan": null}', "got `null` - at `$.plan`"),
    "plan is text": ({"plan": "do it"}, "got `str` - at `$.plan`"),
    "step is text": ({"plan": ["do it"]}, "got `str` - at `$.plan[0]`"),
    "step is a number": ({"plan": [{"step": 1, "status": "pending"}]}, "got `int` - at `$.plan[0].step`"),
    "no step": ({"plan": [{"status": "pending"}]}, "missing required field `step` - at `$.plan[0]`"),
    "no status": ({"plan": [{"step": "a"}]}, "missing required field `status` - at `$.plan[0]`"),
    "other status": ({"plan": steps(("a", "done"))}, "Invalid enum value 'done' - at `$.plan[0].status`"),
    "camel case": ({"plan": steps(("a", "inProgress"))}, "Invalid enum value 'inProgress'"),
    "explanation is a number": ({"plan": [], "explanation": 5}, "at `$.explanation`"),
    "unknown field": ({"plan": [], "merge": True}, "unknown field `merge`"),
    "unknown step field": ({"plan": [{"step": "a", "status": "pending", "id": 1}]}, "unknown field `id`"),
    "the event's own tag": ({"plan": [], "type": "plan_updated"}, "unknown field `type`"),
    "bytes outside unicode": (b'{"plan":[{"step":"\xff","status":"pending"}]}', "Invalid UTF-8"),
    "half a pair, escaped": ('{"plan":[{"step":"\\ud800","status":"pending"}]}', "surrogate"),
    "half a pair, raw": ('{"plan":[{"step":"\ud800","status":"pending"}]}', "surrogate"),
    "half a pair, decoded": ({"plan": steps(("\ud800", "pending"))}, "`$.plan[0].step` holds a lone surrogate"),
    "half a pair, explained": ({"plan": [], "explanation": "\udfff"}, "`explanation` holds a lone surrogate"),
    "raw control character": ('{"plan":[{"step":"\x1b","status":"pending"}]}', "invalid character"),
    "deep text": ('{"plan":' + "[" * 100_000, "at `$.plan[0]`"),
    "deep value": ({"plan": nested(100_000)}, "at `$.plan[0]`"),
    "10 MB of nothing": ("x" * 10_000_000, "invalid character"),
    "10 MB in a wrong place": ({"plan": "x" * 10_000_000}, "got `str`"),
    "a key that is a number": ({1: 2}, "Expected `str`"),
    "an object of another kind": (object(), "Expected `object`"),
}


@pytest.mark.parametrize(("arguments", "said"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_arguments_are_told_apart(arguments, said):
    """Whatever a model sends, a call is refused with a short text that names the place, and nothing is written."""
    view = FakeView()
    with pytest.raises(ToolError) as error:
        call(view, arguments)
    text = str(error.value)
    assert text.startswith(PARSE)
    assert said in text
    assert len(text) < 300
    assert view.events == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["plan", "step", "status", "x"]), inner)
    ),
    max_leaves=12,
)


@given(json_values | st.text() | st.binary())
def test_any_argument_is_a_plan_or_a_tool_error(arguments):
    """No value a provider can hand over raises anything but a ToolError, and what is accepted has a written form."""
    view = FakeView()
    try:
        call(view, arguments)
    except ToolError:
        assert view.events == []
    else:
        (event,) = view.events
        assert Codec().decode(Codec().encode(event)) == event


texts = st.text(st.characters(exclude_categories=["Cs"]))
plans = st.builds(
    PlanUpdated,
    st.none() | texts,
    st.lists(st.builds(PlanStep, texts, st.sampled_from(["pending", "in_progress", "completed"]))).map(tuple),
)
foreign = st.sampled_from(
    [
        NoteAdded("n"),
        TurnStarted(1),
        TurnEnded(1, "completed"),
        StepStarted(1, 1),
        TodosWritten(()),
        PlanModeSet(active=True),
    ]
)


@given(st.lists(plans | foreign), st.integers(0, 20))
def test_the_fold_is_the_last_plan_however_it_is_replayed(events, cut):
    """Replay in one go, replay from a middle state and the last plan of the log agree."""
    written = [event for event in events if isinstance(event, PlanUpdated)]
    expected = Plan(written[-1].explanation, written[-1].plan) if written else None
    middle = replay(PLAN, events[:cut])
    assert expected == replay(PLAN, events) == replay(PLAN, events[cut:], middle)


@given(st.none() | plans.map(lambda event: Plan(event.explanation, event.plan)), foreign)
def test_the_fold_leaves_foreign_events_alone(state, event):
    """An event of somebody else's gives back the very same object, turns and modes included."""
    assert PLAN.apply(state, event) is state


def test_the_fold_reads_no_core_event():
    """The plan outlives turns because it listens to nothing but its own event."""
    assert (PlanUpdated,) == PLAN.on
    assert PlanUpdated not in CORE_EVENTS


def test_the_state_has_a_json_form():
    """What `state()` shows of a plan holds both fields always."""
    shown = msgspec.json.decode(msgspec.json.encode(Plan(None, (A,))))
    assert shown == {"explanation": None, "plan": [{"step": "read", "status": "completed"}]}


@pytest.mark.parametrize(
    ("events", "expected"),
    [((), 0), ((PlanUpdated(None, ()),), 0), ((PlanUpdated(None, (A, B, C)),), 2), ((PlanUpdated(None, (A,)),), 0)],
    ids=["no plan", "empty", "two open", "all done"],
)
def test_open_steps_counts_what_is_not_completed(events, expected):
    """Pending steps and the one in progress are open at a turn's end."""
    counted: Any = PLAN_PLUGIN.open_steps
    assert expected == counted(FakeView(*events))


UNFINISHED = PlanUpdated("why", (A, B, C))
HELLO = Message("m1", "go on")


def test_a_fresh_step_reads_an_unfinished_plan():
    """At the first step after an open the plan follows the user's input as one notice."""
    view = FakeView(UNFINISHED, TurnStarted(4), fresh=True, turn=4)
    text = NOTE.format(steps="- [completed] read\n- [in_progress] write\n- [pending] check")
    assert stepping(remind, view, HELLO) == Enter((HELLO, Message("plan-note-4-1", text, "notice")))
    assert view.events == [UNFINISHED, TurnStarted(4)]


def test_a_note_in_a_later_step_has_its_own_id():
    """A compaction in the middle of a turn makes a second note, and no two notes share an id."""
    view = FakeView(UNFINISHED, TurnStarted(4), StepStarted(4, 1), StepEnded(4, 1), fresh=True, turn=4)
    assert view[TURN].step == 1
    assert stepping(remind, view).messages[0].id == "plan-note-4-2"


@pytest.mark.parametrize(
    "view",
    [
        FakeView(UNFINISHED),
        FakeView(fresh=True),
        FakeView(PlanUpdated(None, ()), fresh=True),
        FakeView(PlanUpdated(None, (A, A)), fresh=True),
    ],
    ids=["not fresh", "no plan", "empty plan", "finished plan"],
)
def test_nothing_to_remind_of_is_silent(view):
    """A later step, and a plan with nothing open, leave the input as it is."""
    assert stepping(remind, view, HELLO) == Enter((HELLO,))


def test_a_note_is_bounded_and_keeps_its_lines():
    """A step cannot forge lines of the note, and neither many steps nor a long one make it long."""
    long = PlanStep("x\n- [completed] forged " + "y" * 100_000, "pending")
    view = FakeView(PlanUpdated(None, (long, *[C] * 10_000)), fresh=True)
    lines = stepping(remind, view).messages[0].text.splitlines()
    items = [line for line in lines if line.startswith("- ")]
    assert items[0].startswith("- [pending] x - [completed] forged y")
    assert len(items[0]) == len("- [pending] ") + ITEM_MAX_CHARS
    assert items[-1] == f"- (and {10_001 - ITEMS_MAX} more)"
    assert len(items) == ITEMS_MAX + 1
