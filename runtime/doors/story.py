"""Story: what happens in a tree of sessions, told as lines for people; the texts in it are made harmless."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.text import Text

from callboard.actors.envelope import Envelope
from callboard.actors.events import (
    AbortRequested,
    CallReceipt,
    Compacted,
    Event,
    HookFailed,
    HookWarned,
    MessageEdited,
    MessageQueued,
    MessageWithdrawn,
    ModelFailed,
    ModelSaid,
    NoteAdded,
    Receipt,
    SessionOpened,
    ShellEnded,
    ShellStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from callboard.actors.facts import ChildEnded, ChildSpawned, PlanModeSet, PlanUpdated, TodosWritten
from callboard.plugins.plan import Plan
from callboard.runtime.doors.board import CUT, TEXT_MAX_CHARS, plan_lines, todo_lines, visible

TEXT_MAX_LINES = 200  # of one message; the log holds all of it
ARGUMENTS_MAX_CHARS = 400
RECEIPTS_MAX = 20  # that one table shows
BAR = " │ "
INDENT = "  "
QUIET_TOOLS = frozenset({"update_plan", "todo_write"})  # what they wrote is shown, so a completed call says no more
SHORT_TOOLS = QUIET_TOOLS | {"spawn_agent", "list_agents", "shell_output"}  # over before their start is read

STYLES: Mapping[Receipt, str] = MappingProxyType(
    {
        "completed": "green",
        "failed": "red",
        "rejected": "red",
        "interrupted": "yellow",
        "abandoned": "bold yellow",
        "not_started": "yellow",
        "outcome_unknown": "bold yellow",
    }
)


PRINTED_LINES_MAX = 20  # of a command's output, at its head and at its tail


def seconds_text(seconds: float) -> str:
    """Seconds as people read them: `0.04 s`, `3.1 s`, `2 min 05 s`."""
    if seconds < 0.995:
        return f"{max(0.0, seconds):.2f} s"
    return f"{seconds:.1f} s" if seconds < 100 else f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def one_line(text: str) -> str:
    """The text with single spaces and nothing a terminal would obey."""
    return visible(" ".join(text[: 4 * ARGUMENTS_MAX_CHARS].split()))


def call_text(name: str, arguments: Any) -> str:
    """A call in one line: what it is about."""
    if isinstance(arguments, Mapping):
        match name:
            case "shell" if isinstance(arguments.get("command"), str):
                return f"$ {one_line(arguments['command'])}"
            case "update_plan" | "todo_write":
                items = arguments.get("plan", arguments.get("todos"))
                return f"{name} {_progress(items)}" if isinstance(items, list | tuple) else name
            case "spawn_agent":
                return one_line(f"{name} {arguments.get('task_name', '')}")
            case "wait_agent":
                targets = arguments.get("targets")
                return one_line(f"{name} {', '.join(map(str, targets)) if isinstance(targets, list) else ''}")
        if len(arguments) == 1 or "path" in arguments:
            value = arguments.get("path", next(iter(arguments.values()), ""))
            if isinstance(value, str | int | float):
                return one_line(f"{name} {value}")
    if not arguments:
        return visible(name)
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments, enc_hook=str).decode()
    return one_line(f"{name} {text[:ARGUMENTS_MAX_CHARS]}")


def _progress(items: Iterable[Any]) -> str:
    statuses = [item.get("status") if isinstance(item, Mapping) else None for item in items]
    return f"{statuses.count('completed')}/{len(statuses)} done"


class Story:
    """Told once, in order. `width` is asked for each line; `starts` also tells when a call begins.

    `take` answers with the lines that an event adds; those of subagents carry their name.
    """

    def __init__(self, root: str, width: Callable[[], int], *, colour: bool, starts: bool) -> None:
        self._root, self._width, self._colour, self._starts = root, width, colour, starts
        self._names: dict[str, str] = {root: ""}
        self._calls: dict[tuple[str, str], str] = {}

    def take(self, envelope: Envelope) -> list[Text]:
        """The lines that this event adds, without line ends; none for what people need not see."""
        tell = TELL.get(type(envelope.event))
        if tell is None:
            return []
        name = self._names.get(envelope.session, envelope.session)
        prefix = f"{visible(name)}{BAR}" if name else ""
        room = max(1, self._width() - cell_len(prefix))
        lines = list(tell(self, envelope.event, envelope.session, room))
        if prefix:
            lines = [Text.assemble((prefix, "magenta"), line) for line in lines]
        return lines if self._colour else [Text(line.plain) for line in lines]

    # -- one function for each kind of event that is told ------------------------------------------------------------

    def _opened(self, opened: SessionOpened, session: str, room: int) -> Iterator[Text]:
        if session != self._root:
            self._names[session] = opened.path.removeprefix("/root/")
        return iter(())

    def _queued(self, queued: MessageQueued, session: str, room: int) -> Iterator[Text]:
        if queued.task in ("compact", "review"):
            yield from paragraphs(f"/{queued.task} {queued.text}".rstrip(), room, "bold", "› ")
        elif queued.source == "shell":
            yield from printed(queued.text, room)
        elif queued.task == "shell":
            return  # told by its start and its end
        elif queued.source in ("user", "steer") or (
            queued.source.startswith("agent:") and queued.id.startswith("task:")
        ):
            yield from paragraphs(queued.text, room, "bold", "› ")
        elif not queued.source.startswith("agent:"):  # mail of subagents is told by their end
            yield from paragraphs(queued.text, room, "dim", f"› ({visible(queued.source)}) ")

    def _edited(self, edited: MessageEdited, session: str, room: int) -> Iterator[Text]:
        yield from paragraphs(edited.text, room, "bold", f"› ({visible(edited.id)} instead) ")

    def _shell_started(self, started: ShellStarted, session: str, room: int) -> Iterator[Text]:
        yield from paragraphs(started.command, room, "bold", "! ")

    def _shell_ended(self, ended: ShellEnded, session: str, room: int) -> Iterator[Text]:
        how = f"exit code {ended.code}" if ended.ending == "exited" else ended.ending.replace("_", " ")
        yield _fit(Text(f"! ended: {how}, {seconds_text(ended.seconds)}", "dim"), room)

    def _noted(self, note: NoteAdded, session: str, room: int) -> Iterator[Text]:
        """What a command of the user's own printed, and what a review came to; other notes are for the model."""
        if note.source == "shell":
            yield from printed(note.text, room)
        elif note.source == "review" and note.role == "assistant":
            yield from paragraphs(note.text, room, "", "")

    def _withdrawn(self, withdrawn: MessageWithdrawn, session: str, room: int) -> Iterator[Text]:
        yield _fit(Text(f"message {visible(withdrawn.id)} was withdrawn", "dim"), room)

    def _turn_started(self, started: TurnStarted, session: str, room: int) -> Iterator[Text]:
        if started.start != "user" and session == self._root:
            yield _fit(Text(f"turn {started.turn} starts by itself", "dim"), room)

    def _said(self, said: ModelSaid, session: str, room: int) -> Iterator[Text]:
        if said.text.strip():
            yield from paragraphs(said.text, room, "", "")
        if said.interrupted:
            yield _fit(Text("(cut off here)", "yellow"), room)
        elif said.truncated:
            yield _fit(Text("(cut off by the model's limit)", "yellow"), room)

    def _model_failed(self, failed: ModelFailed, session: str, room: int) -> Iterator[Text]:
        if failed.retryable:  # the last failure is told by the end of the turn
            yield from paragraphs(f"the model failed and is asked again: {failed.error}", room, "yellow", "")

    def _called(self, called: ToolCalled, session: str, room: int) -> Iterator[Text]:
        text = call_text(called.name, called.arguments)
        self._calls[session, called.call] = text
        if self._starts and called.name not in SHORT_TOOLS:
            yield _fit(Text(f"▸ {text}", "dim"), room)

    def _returned(self, returned: ToolReturned, session: str, room: int) -> Iterator[Text]:
        text = self._calls.pop((session, returned.call), visible(returned.name))
        if returned.name in QUIET_TOOLS and returned.receipt == "completed":
            return
        style = STYLES[returned.receipt]
        end = f"  {returned.receipt}, {seconds_text(returned.seconds)}"
        said = _fit(Text(text), max(8, room - 2 - len(end)))
        yield Text.assemble(("• ", style), said, (end, style if returned.receipt != "completed" else "dim"))
        if returned.receipt in ("failed", "rejected"):
            yield _fit(Text(INDENT + one_line(returned.text), "red"), room)

    def _planned(self, planned: PlanUpdated, session: str, room: int) -> Iterator[Text]:
        yield from _cell(plan_lines(Plan(planned.explanation, planned.plan), room, self._colour))

    def _listed(self, written: TodosWritten, session: str, room: int) -> Iterator[Text]:
        yield from _cell(todo_lines(written.todos, room, self._colour))

    def _spawned(self, spawned: ChildSpawned, session: str, room: int) -> Iterator[Text]:
        name = self._names[spawned.child] = spawned.path.removeprefix("/root/")
        yield _fit(Text.assemble(("+ ", "magenta"), f"agent {visible(name)}"), room)

    def _child_ended(self, ended: ChildEnded, session: str, room: int) -> Iterator[Text]:
        name = visible(self._names.get(ended.child, ended.child))
        style = {"completed": "green", "failed": "red"}.get(ended.status, "yellow")
        said = one_line(ended.text)
        tail = f": {said}" if said and ended.status != "completed" else ""
        yield _fit(Text.assemble(("= ", "magenta"), f"agent {name} ", (ended.status, style), tail), room)

    def _aborting(self, aborting: AbortRequested, session: str, room: int) -> Iterator[Text]:
        yield _fit(Text(f"interrupt ({aborting.cause})", "yellow"), room)

    def _turn_ended(self, ended: TurnEnded, session: str, room: int) -> Iterator[Text]:
        if ended.reason != "completed":
            yield from receipt_lines(ended, room)
        if ended.error is not None:
            yield from paragraphs(f"turn {ended.turn} ended with an error: {ended.error}", room, "red", "")

    def _mode(self, mode: PlanModeSet, session: str, room: int) -> Iterator[Text]:
        yield _fit(Text(f"plan mode is {'on' if mode.active else 'off'}", "cyan"), room)

    def _compacted(self, compacted: Compacted, session: str, room: int) -> Iterator[Text]:
        why = "by itself, before it outgrew the model's window" if compacted.automatic else "as it was asked to be"
        yield from paragraphs(f"the history was compacted {why}; repeated often, details get lost", room, "dim", "")

    def _hook_failed(self, failed: HookFailed, session: str, room: int) -> Iterator[Text]:
        yield _fit(Text(f"hook {one_line(failed.hook)} failed: {one_line(failed.error)}", "yellow"), room)

    def _hook_warned(self, warned: HookWarned, session: str, room: int) -> Iterator[Text]:
        yield _fit(Text(f"{one_line(warned.hook)} warns: {one_line(warned.text)}", "yellow"), room)


TELL: Mapping[type[Event], Callable[..., Iterator[Text]]] = MappingProxyType(
    {
        SessionOpened: Story._opened,
        MessageQueued: Story._queued,
        MessageEdited: Story._edited,
        MessageWithdrawn: Story._withdrawn,
        ShellStarted: Story._shell_started,
        ShellEnded: Story._shell_ended,
        TurnStarted: Story._turn_started,
        ModelSaid: Story._said,
        ModelFailed: Story._model_failed,
        ToolCalled: Story._called,
        ToolReturned: Story._returned,
        PlanUpdated: Story._planned,
        TodosWritten: Story._listed,
        ChildSpawned: Story._spawned,
        ChildEnded: Story._child_ended,
        AbortRequested: Story._aborting,
        TurnEnded: Story._turn_ended,
        Compacted: Story._compacted,
        NoteAdded: Story._noted,
        PlanModeSet: Story._mode,
        HookFailed: Story._hook_failed,
        HookWarned: Story._hook_warned,
    }
)


def printed(fragment: str, room: int) -> Iterator[Text]:
    """The output in what the model reads of a command; of a long one the head and the tail."""
    output = fragment.partition("\nOutput:\n")[2].rpartition("\n</result>")[0]
    lines = output.splitlines()
    gone = len(lines) - 2 * PRINTED_LINES_MAX
    if gone > 0:
        lines[PRINTED_LINES_MAX:-PRINTED_LINES_MAX] = [f"{CUT} {gone:,} lines {CUT}"]
    for line in lines:
        yield _fit(Text(visible(line)), room)


def receipt_lines(ended: TurnEnded, room: int) -> Iterator[Text]:
    """How a turn that did not complete ended, with a table of its receipts."""
    why = "" if ended.cause is None else f" ({ended.cause})"
    closed = "" if ended.abort_s is None else f"; its books were closed {seconds_text(ended.abort_s)} after the request"
    yield from paragraphs(f"turn {ended.turn} {ended.reason}{why}{closed}", room, "bold yellow", "")
    cut = [receipt for receipt in ended.receipts if receipt.receipt != "completed"]
    for receipt in cut[:RECEIPTS_MAX]:
        yield _fit(_receipt_line(receipt), room)
    done = len(ended.receipts) - len(cut)
    more = [f"{len(cut) - RECEIPTS_MAX} more"] if len(cut) > RECEIPTS_MAX else []
    more += [f"{done} completed"] if done else []
    if more:
        yield Text(f"{INDENT}and {', '.join(more)}", "dim")


def _receipt_line(receipt: CallReceipt) -> Text:
    said = f"{seconds_text(receipt.seconds):>9}  {visible(receipt.tool)}"
    return Text.assemble(INDENT, (f"{receipt.receipt:<15}", STYLES[receipt.receipt]), said)


def _cell(lines: list[Text]) -> Iterator[Text]:
    """A checklist behind a mark, in the margin that it leaves."""
    for at, line in enumerate(lines):
        yield Text.assemble(("• ", "cyan") if at == 0 else "  ", line)


def _fit(line: Text, room: int) -> Text:
    line.truncate(max(1, room), overflow="ellipsis")
    return line


def paragraphs(text: str, room: int, style: str, mark: str) -> Iterator[Text]:
    """The text with its own lines, each wrapped to `room` cells behind the mark or the space it takes."""
    lines = text.strip("\n").splitlines() or [""]
    indent = " " * cell_len(mark)
    for source in lines[:TEXT_MAX_LINES]:
        for piece in _wrapped(visible(source[:TEXT_MAX_CHARS].expandtabs(4)), max(1, room - len(indent))):
            yield Text.assemble((mark, style), (piece, style))
            mark = indent
    if len(lines) > TEXT_MAX_LINES:
        yield Text(f"{indent}{CUT} {len(lines) - TEXT_MAX_LINES} more lines", "dim")


def _wrapped(line: str, cells: int) -> Iterator[str]:
    """Pieces of at most `cells` cells, broken at spaces where there are any; leading space stays."""
    while cell_len(line) > cells:
        at = _cut_at(line, cells)
        space = line.rfind(" ", 0, at + 1)
        broken = line[:space].rstrip() if space > 0 else ""
        yield broken or line[:at]
        line = line[space + 1 :] if broken else line[at:]
    yield line


def _cut_at(line: str, cells: int) -> int:
    """How many characters of the line fill `cells` cells; at least one."""
    at, used = 0, 0
    while at < len(line) and used + cell_len(line[at]) <= cells:
        used += cell_len(line[at])
        at += 1
    return max(1, at)
