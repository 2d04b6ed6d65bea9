"""todo: the arguments of todo_write, its errors and their order, the folds behind it, and the note after a restart."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.codec import Codec
from callboard.actors.errors import ToolError
from callboard.actors.events import Event, Message, NoteAdded, StepStarted, TurnEnded, TurnStarted
from callboard.actors.facts import PlanModeSet, PlanUpdated, Todo, TodosWritten
from callboard.actors.fold import Projection, replay
from callboard.actors.plugin import Enter
from callboard.plugins.todo import (
    DESCRIPTION,
    NOTE_BEFORE,
    NOTE_NOW,
    ONE,
    SEVERAL,
    TODO_PLUGIN,
    TODOS,
    TODOS_LEFT,
    Counts,
    counts,
    remind,
    todo_plugin,
)

A, B, C = Todo("read", "completed"), Todo("write", "in_progress"), Todo("check", "pending")
STRICT = todo_plugin(allow_parallel_in_progress=False)


class FakeView:
    """The part of a View that the todo list uses, over events that were appended."""

    def __init__(self, *events: Event, fresh: bool = False, turn: int = 1) -> None:
        self.events = list(events)
        self.fresh, self.turn = fresh, turn

    def __getitem__(self, projection: Projection[Any]) -> Any:
        return replay(projection, (e for e in self.events if projection.on is None or type(e) in projection.on))

    def append(self, *events: Event) -> None:
        self.events.extend(events)


def call(view: FakeView, arguments: Any, plugin=TODO_PLUGIN) -> Any:
    """What a dispatcher does with one call: parse, run."""
    (tool,) = plugin.tools
    args, kwargs = tool.bind(tool.parse(arguments), view)
    return tool.fn(*args, **kwargs)


def stepping(hook, view: FakeView, *messages: Message) -> Any:
    """The answer of a before_step hook that never waits."""
    with pytest.raises(StopIteration) as stop:
        hook(view, messages).send(None)
    return stop.value.value


def todos(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"todos": [{"content": content, "status": status} for content, status in pairs]}


def test_it_declares_what_the_dispatcher_needs():
    """todo_write is a control tool that runs in one piece, changes nothing outside and goes alone, in any mode."""
    (tool,) = TODO_PLUGIN.tools
    declared = (tool.name, tool.control, tool.effect, tool.exposure, tool.parallel, tool.mutates, tool.runs_on)
    assert ("todo_write", True, "none", "direct", False, False, "trio") == declared
    assert tool.refuse is None
    assert TODO_PLUGIN.open_steps is None


@pytest.mark.parametrize(("plugin", "rule"), [(TODO_PLUGIN, SEVERAL), (STRICT, ONE)], ids=["several", "one"])
def test_the_description_differs_by_the_flag(plugin, rule):
    """The model reads the rule that its calls are held to."""
    assert plugin.tools[0].spec.description == DESCRIPTION + rule


def test_the_schema_is_closed_at_every_level():
    """The model sees one list of items with two required fields, all else forbidden."""
    parameters = TODO_PLUGIN.tools[0].spec.parameters
    item = parameters["properties"]["todos"]["items"]
    assert (parameters["additionalProperties"], parameters["required"]) == (False, ["todos"])
    assert (item["additionalProperties"], item["required"]) == (False, ["content", "status"])


def test_a_call_writes_trimmed_contents_and_counts_them():
    """A good call appends the whole list, trimmed, once, and the model reads one line of counts."""
    view = FakeView()
    pairs = [("\u3000read\n", "completed"), ("d", "completed"), (" write ", "in_progress"), ("check", "pending")]
    said = call(view, todos(*pairs, ("e", "pending"), ("f", "pending")))
    assert said == "Updated todo list: 3 pending, 1 in progress, 2 completed."
    d, e, f = Todo("d", "completed"), Todo("e", "pending"), Todo("f", "pending")
    assert view.events == [TodosWritten((A, d, B, C, e, f))]


def test_an_empty_list_is_a_list():
    """Clearing the list is not the same as having none."""
    view = FakeView()
    assert view[TODOS] is None
    assert call(view, '{"todos": []}') == "Updated todo list: 0 pending, 0 in progress, 0 completed."
    assert view[TODOS] == ()


EMPTY = "invalid todo: `content` must be a non-empty string"
DUPLICATE = 'invalid todos: duplicate content "{}"'
REFUSED = {
    "empty": ([("", "pending")], EMPTY),
    "only white space": ([("a", "pending"), (" \t\u00a0", "pending")], EMPTY),
    "duplicate": ([("a", "pending"), ("a", "completed")], DUPLICATE.format("a")),
    "duplicate after trimming": ([("say {x}", "pending"), ("\tsay {x} ", "pending")], DUPLICATE.format("say {x}")),
    "the duplicate came first": ([("a", "pending"), ("a", "pending"), ("", "pending")], DUPLICATE.format("a")),
    "the empty came first": ([("a", "pending"), ("", "pending"), ("a", "pending")], EMPTY),
    "the count comes last": ([("a", "in_progress"), ("b", "in_progress"), ("", "pending")], EMPTY),
    "the first duplicate": (
        [("a", "pending"), ("b", "pending"), ("b", "pending"), ("a", "pending")],
        DUPLICATE.format("b"),
    ),
}


@pytest.mark.parametrize("plugin", [TODO_PLUGIN, STRICT], ids=["several", "one"])
@pytest.mark.parametrize(("pairs", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_the_first_offender_is_named_and_nothing_written(pairs, expected, plugin):
    """Items are looked at in order, the count of those in progress last, and a refused call keeps the old list."""
    view = FakeView(TodosWritten((A,)))
    with pytest.raises(ToolError) as error:
        call(view, todos(*pairs), plugin)
    assert expected == str(error.value)
    assert view.events == [TodosWritten((A,))]


def test_contents_are_compared_exactly():
    """Upper and lower case make two items."""
    assert call(FakeView(), todos(("a", "pending"), ("A", "pending"))).startswith("Updated")


def test_one_in_progress_gives_the_count():
    """With the flag off, two in progress are refused with their number; one and none are fine."""
    view = FakeView()
    with pytest.raises(ToolError, match=r"^invalid todos: at most one task may be in_progress \(got 2\)$"):
        call(view, todos(("a", "in_progress"), ("b", "in_progress"), ("c", "pending")), STRICT)
    assert view.events == []
    assert call(view, todos(("a", "in_progress"), ("b", "pending")), STRICT).startswith("Updated")
    assert call(view, todos(("a", "pending")), STRICT).startswith("Updated")


def test_several_in_progress_are_accepted_by_default():
    """By default work may go on side by side."""
    said = call(FakeView(), todos(("a", "in_progress"), ("b", "in_progress")))
    assert said == "Updated todo list: 0 pending, 2 in progress, 0 completed."


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = {
    "not json": ("{nonsense", "JSON is malformed"),
    "not an object": ("[]", "Expected `object`, got `array`"),
    "nothing": ("", "missing required field `todos`"),
    "todos is null": ('{"todos": null}', "got `null` - at `$.todos`"),
    "item is text": ({"todos": ["do it"]}, "got `str` - at `$.todos[0]`"),
    "content is a number": ({"todos": [{"content": 1, "status": "pending"}]}, "at `$.todos[0].content`"),
    "content is null": ({"todos": [{"content": None, "status": "pending"}]}, "at `$.todos[0].content`"),
    "no content": ({"todos": [{"status": "pending"}]}, "missing required field `content`"),
    "no status": ({"todos": [{"content": "a"}]}, "missing required field `status`"),
    "other status": (todos(("a", "inProgress")), "Invalid enum value 'inProgress' - at `$.todos[0].status`"),
    "unknown field": ({"todos": [], "merge": True}, "unknown field `merge`"),
    "unknown item field": ({"todos": [{"content": "a", "status": "pending", "id": 1}]}, "unknown field `id`"),
    "bytes outside unicode": (b'{"todos":[{"content":"\xff","status":"pending"}]}', "Invalid UTF-8"),
    "half a pair, escaped": ('{"todos":[{"content":"\\ud800","status":"pending"}]}', "surrogate"),
    "half a pair, decoded": (todos(("\ud800", "pending")), "`$.todos[0].content` holds a lone surrogate"),
    "raw control character": ('{"todos":[{"content":"\x1b","status":"pending"}]}', "invalid character"),
    "deep text": ('{"todos":' + "[" * 100_000, "at `$.todos[0]`"),
    "deep value": ({"todos": nested(100_000)}, "at `$.todos[0]`"),
    "10 MB of nothing": ("x" * 10_000_000, "invalid character"),
    "10 MB in a wrong place": ({"todos": "x" * 10_000_000}, "got `str`"),
}


@pytest.mark.parametrize(("arguments", "said"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_arguments_are_told_apart(arguments, said):
    """Whatever a model sends, a call is refused with a short text that names the place, and nothing is written."""
    view = FakeView()
    with pytest.raises(ToolError) as error:
        call(view, arguments)
    text = str(error.value)
    assert text.startswith("failed to parse function arguments: ")
    assert said in text
    assert len(text) < 300
    assert view.events == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["todos", "content", "status", "x"]), inner)
    ),
    max_leaves=12,
)
items = st.fixed_dictionaries(
    {"content": st.text(st.characters()), "status": st.sampled_from(["pending", "completed"])}
)


@given(json_values | st.text() | st.binary() | st.fixed_dictionaries({"todos": st.lists(items, max_size=4)}))
def test_any_argument_is_a_list_or_a_tool_error(arguments):
    """No value raises anything but a ToolError, and what is accepted is trimmed, unique and has a written form."""
    view = FakeView()
    try:
        call(view, arguments)
    except ToolError:
        assert view.events == []
        return
    event: Any = view.events[0]
    assert len(view.events) == 1
    assert Codec().decode(Codec().encode(event)) == event
    contents = [todo.content for todo in event.todos]
    assert all(content == content.strip() != "" for content in contents)
    assert len(set(contents)) == len(contents)


def test_counts_are_a_value_with_all_three():
    """The structured value always names every status."""
    assert counts((A, B, C, A)) == Counts(pending=1, in_progress=1, completed=2)
    assert msgspec.to_builtins(counts(())) == {"pending": 0, "in_progress": 0, "completed": 0}


WRITTEN = TodosWritten((A, B))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (TurnStarted(2), None),
        (TurnStarted(2, start="automatic"), None),
        (TurnStarted(2, start="recovery"), None),
        (TurnStarted(2, kind="compact"), (A, B)),
        (TurnStarted(2, kind="review"), (A, B)),
        (TurnEnded(1, "completed"), (A, B)),
        (TurnEnded(1, "aborted"), (A, B)),
        (TodosWritten(()), ()),
        (PlanUpdated(None, ()), (A, B)),
    ],
    ids=repr,
)
def test_what_clears_the_list(event, expected):
    """Only a turn that runs the model on input clears the list; its end, a compaction and a review keep it."""
    assert expected == replay(TODOS, [WRITTEN, event])


statuses = st.sampled_from(["pending", "in_progress", "completed"])
lists = st.lists(st.builds(Todo, st.sampled_from("abc"), statuses), max_size=3).map(tuple)
own = st.builds(TodosWritten, lists) | st.builds(
    TurnStarted, st.integers(1, 9), st.sampled_from(["regular", "compact", "review"])
)
foreign = st.sampled_from(
    [NoteAdded("n"), TurnEnded(1, "completed"), StepStarted(1, 1), PlanUpdated(None, ()), PlanModeSet(active=True)]
)


@given(st.lists(own | foreign), st.integers(0, 20))
def test_the_folds_do_not_care_how_they_are_replayed(events, cut):
    """Replay in one go and replay from a middle state agree, and both folds know the same current list."""
    folds: tuple[Projection[Any], ...] = (TODOS, TODOS_LEFT)
    for fold in folds:
        state = fold.zero
        for event in events:
            state = fold.apply(state, event)
        assert state == replay(fold, events)
        middle = replay(fold, events[:cut])
        assert middle is None or replay(fold, events[cut:], middle) == state
    assert replay(TODOS_LEFT, events)[0] == replay(TODOS, events)


@given(st.none() | lists, st.none() | lists, foreign | st.just(TurnStarted(3, "compact")))
def test_the_folds_leave_foreign_events_alone(now, before, event):
    """An event of somebody else's gives back the very same object."""
    state = (now, before)
    assert TODOS.apply(now, event) is now
    assert TODOS_LEFT.apply(state, event) is state


def test_no_lists_stay_the_same_object():
    """A session that never uses the tool keeps one state through all its turns."""
    assert TODOS_LEFT.apply(TODOS_LEFT.zero, TurnStarted(1)) is TODOS_LEFT.zero


HELLO = Message("m1", "go on")
TEXT = "- [completed] read\n- [in_progress] write"


def test_a_fresh_step_reads_what_the_last_turn_left():
    """After a restart the list that the new turn cleared follows the user's input as one notice, once."""
    view = FakeView(TurnStarted(1), WRITTEN, TurnEnded(1, "interrupted"), TurnStarted(2), fresh=True, turn=2)
    note = Message("todo-note-2-1", NOTE_BEFORE.format(todos=TEXT), "notice")
    assert stepping(remind, view, HELLO) == Enter((HELLO, note))
    assert view[TODOS] is None


def test_a_fresh_step_within_the_turn_reads_the_current_list():
    """After a compaction in the middle of a turn the current list is shown, with an id of its own."""
    view = FakeView(TurnStarted(2), StepStarted(2, 1), WRITTEN, fresh=True, turn=2)
    note = Message("todo-note-2-2", NOTE_NOW.format(todos=TEXT), "notice")
    assert stepping(remind, view) == Enter((note,))


DONE = TodosWritten((A,))


@pytest.mark.parametrize(
    "view",
    [
        FakeView(WRITTEN),
        FakeView(fresh=True),
        FakeView(TodosWritten(()), fresh=True),
        FakeView(DONE, fresh=True),
        FakeView(WRITTEN, TurnStarted(2), TodosWritten(()), fresh=True),
        FakeView(WRITTEN, TurnStarted(2), DONE, fresh=True),
        FakeView(WRITTEN, TurnStarted(2), TurnStarted(3), fresh=True),
    ],
    ids=["not fresh", "no list", "empty", "finished", "cleared now", "finished now", "left two turns ago"],
)
def test_nothing_to_remind_of_is_silent(view):
    """A later step, and a list with nothing open or of long ago, leave the input as it is."""
    assert stepping(remind, view, HELLO) == Enter((HELLO,))
