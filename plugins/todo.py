"""todo: the work of the current turn as a list, cleared when the next turn begins; the tool `todo_write`."""

from collections.abc import Sequence
from typing import Annotated

import attrs
import msgspec

from callboard.actors.books import TURN
from callboard.actors.errors import ToolError
from callboard.actors.events import Event, Message, TurnStarted, Value
from callboard.actors.facts import Todo, TodosWritten
from callboard.actors.fold import Projection
from callboard.actors.plugin import Enter, Plugin, View
from callboard.actors.tool import Tool, tool
from callboard.plugins.checklist import check_text, listing

DESCRIPTION = """\
Keep a list of the work of this turn, so that you and the user see what is left.
Use it when the request takes several steps. Every call carries the whole list and replaces the last one: keep the \
items that still count, and send the list again as soon as an item starts or is done.
Each `content` says one thing to do; no two items may read the same. An empty list clears it. The next turn starts \
without a list.
"""
SEVERAL = "Mark an item in_progress while it is worked on; several may be in progress when work goes on side by side."
ONE = "Mark the one item you work on in_progress; a list with more than one in progress is refused."
TODOS_FIELD = "The whole list, in the order of work."
WRITTEN = "Updated todo list: {pending} pending, {in_progress} in progress, {completed} completed."
EMPTY = "invalid todo: `content` must be a non-empty string"
DUPLICATE = 'invalid todos: duplicate content "{content}"'
TOO_MANY = "invalid todos: at most one task may be in_progress (got {count})"
NOTE_NOW = """\
The todo list of this turn is not finished. It stood like this:
{todos}
This is a record of the work so far and not a new request. Go on from it and keep it current with todo_write.\
"""
NOTE_BEFORE = """\
The turn before this one left its todo list unfinished, and the list was cleared when this turn began:
{todos}
This is a record of earlier work and not a new request. If that work goes on now, write the list again with todo_write.\
"""

Todos = tuple[Todo, ...]


def _todos(state: Todos | None, event: Event) -> Todos | None:
    match event:
        case TodosWritten():
            return event.todos
        case TurnStarted(kind="regular"):
            return None
    return state


TODOS: Projection[Todos | None] = Projection("todos", None, _todos, on=(TodosWritten, TurnStarted), state=Todos | None)
"""The list of the current turn; None is no list, and differs from an empty one.

A regular turn clears it. A user's `!` turn is of kind regular too, until events tell it apart.
"""


def _left(state: tuple[Todos | None, Todos | None], event: Event) -> tuple[Todos | None, Todos | None]:
    now, before = state
    after = _todos(now, event)
    if isinstance(event, TurnStarted) and event.kind == "regular":
        return state if now is None and before is None else (None, now)
    return state if after is now else (after, before)


TODOS_LEFT: Projection[tuple[Todos | None, Todos | None]] = Projection(
    "todos_left",
    (None, None),
    _left,
    on=(TodosWritten, TurnStarted),
    state=tuple[Todos | None, Todos | None],
)
"""The list of the current turn, and the one that the start of this turn cleared: what a note after a restart shows."""


class Counts(Value, frozen=True, omit_defaults=False):
    """How many items have each status."""

    pending: int = 0
    in_progress: int = 0
    completed: int = 0


def counts(todos: Sequence[Todo]) -> Counts:
    """Count a list by status."""
    statuses = [todo.status for todo in todos]
    return Counts(statuses.count("pending"), statuses.count("in_progress"), statuses.count("completed"))


class WriteTodos(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `todo_write` takes: the whole list."""

    todos: Annotated[Todos, msgspec.Meta(description=TODOS_FIELD)]

    def __post_init__(self) -> None:
        """Refuse text that the log cannot hold."""
        for at, todo in enumerate(self.todos):
            check_text(todo.content, f"`$.todos[{at}].content`")


def checked(todos: Sequence[Todo], *, parallel: bool) -> Todos:
    """The list with trimmed contents; a `ToolError` names the first item that is empty or repeats another.

    Without `parallel` more than one item in progress is refused too; that is looked at last.
    """
    seen: set[str] = set()
    kept: list[Todo] = []
    for todo in todos:
        content = todo.content.strip()
        if not content:
            raise ToolError(EMPTY)
        if content in seen:
            raise ToolError(DUPLICATE.format(content=content))
        seen.add(content)
        kept.append(Todo(content, todo.status))
    running = counts(kept).in_progress
    if running > 1 and not parallel:
        raise ToolError(TOO_MANY.format(count=running))
    return tuple(kept)


async def remind(view: View, messages: tuple[Message, ...]) -> Enter:
    """At the first step after an open, a fork or a compaction, put an unfinished list into the prompt, once."""
    now, before = view[TODOS_LEFT]
    todos, note = (before, NOTE_BEFORE) if now is None else (now, NOTE_NOW)
    if not view.fresh or not todos or counts(todos).completed == len(todos):
        return Enter(messages)
    text = note.format(todos=listing((todo.content, todo.status) for todo in todos))
    return Enter((*messages, Message(f"todo-note-{view.turn}-{view[TURN].step + 1}", text, "notice")))


def _tool(*, parallel: bool) -> Tool:
    @tool(runs_on="trio", effect="none", control=True, mutates=False)
    def todo_write(arguments: WriteTodos, view: View) -> str:
        todos = checked(arguments.todos, parallel=parallel)
        view.append(TodosWritten(todos))
        return WRITTEN.format(**msgspec.structs.asdict(counts(todos)))

    return attrs.evolve(todo_write, description=DESCRIPTION + (SEVERAL if parallel else ONE))


def todo_plugin(allow_parallel_in_progress: bool = True) -> Plugin:
    """The todo plugin; without `allow_parallel_in_progress` at most one item may be in progress."""
    return Plugin(
        "todo",
        events=(TodosWritten,),
        projections=(TODOS, TODOS_LEFT),
        tools=(_tool(parallel=allow_parallel_in_progress),),
        before_step=remind,
    )


TODO_PLUGIN = todo_plugin()
