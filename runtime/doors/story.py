"""Story: what happens in a tree of sessions, told as lines for people; the texts in it are made harmless."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

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
    SessionForked,
    SessionOpened,
    ShellEnded,
    ShellStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnRecovered,
    TurnStarted,
)
from callboard.actors.facts import ChildEnded, ChildSpawned, PlanHandedOver, PlanUpdated, TodosWritten
from callboard.plugins.plan import Plan
from callboard.plugins.plan_mode import DISMISSED, KEEP_PLANNING
from callboard.runtime.doors.board import CUT, plan_lines, todo_lines, visible
from callboard.runtime.doors.chapters import CHAPTERS, Chapters
from callboard.runtime.doors.wording import call_text, fit, one_line, paragraphs, seconds_text

SET_ASIDE = "message {id} was set aside: the session crashed twice while it was being taken"
RECEIPTS_MAX = 20  # that one table shows
BAR = " │ "
INDENT = "  "
QUIET_TOOLS = frozenset(  # what they wrote is shown, so a completed call says no more
    {
        *("update_plan", "todo_write", "exit_plan_mode", "request_user_input"),
        *("schedule_create", "schedule_delete", "create_goal", "update_goal"),
    }
)
SHORT_TOOLS = QUIET_TOOLS | {
    "spawn_agent",
    "list_agents",
    "send_message",
    "followup_task",
    "interrupt_agent",
    "report",
    "shell_output",
    "schedule_list",
    "get_goal",
}  # over before their start is read

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


class Story:
    """Told once, in order. `width` is asked for each line; `starts` tells when a call begins too, `asks` what is asked.

    `take` answers with the lines that an event adds; those of subagents carry their name.
    """

    def __init__(self, root: str, width: Callable[[], int], *, colour: bool, starts: bool, asks: bool = True) -> None:
        self._root, self._width, self._colour, self._starts = root, width, colour, starts
        self._names: dict[str, str] = {root: ""}
        self._calls: dict[tuple[str, str], str] = {}
        self._chapters = Chapters(asks=asks)
        self._announced = False  # a turn of the root that comes next, by the reminder or the round that starts it

    def take(self, envelope: Envelope) -> list[Text]:
        """The lines that this event adds, without line ends; none for what people need not see."""
        kind = type(envelope.event)
        tell, chapter = TELL.get(kind), CHAPTERS.get(kind)
        if tell is None and chapter is None:
            return []
        name = self._names.get(envelope.session, envelope.session)
        prefix = f"{visible(name)}{BAR}" if name else ""
        room = max(1, self._width() - cell_len(prefix))
        lines: list[Text] = []
        if tell is not None:
            lines += tell(self, envelope.event, envelope.session, room)
        if chapter is not None:
            lines += chapter(self._chapters, envelope.event, envelope.session, room)
        if prefix:
            lines = [Text.assemble((prefix, "magenta"), line) for line in lines]
        return lines if self._colour else [Text(line.plain) for line in lines]

    # -- one function for each kind of event that is told ------------------------------------------------------------

    def _opened(self, opened: SessionOpened, session: str, room: int) -> Iterator[Text]:
        if session != self._root and opened.parent is not None:
            self._names[session] = opened.path.removeprefix("/root/")
        return iter(())

    def _handed_over(self, over: PlanHandedOver, session: str, room: int) -> Iterator[Text]:
        """Its own lines carry the plan's id; which session that is, is told with the plan."""
        self._names[over.session] = over.id
        return iter(())

    def _forked(self, forked: SessionForked, session: str, room: int) -> Iterator[Text]:
        yield fit(Text(f"so far this is session {one_line(forked.source)}; it goes its own way from here", "dim"), room)

    def _queued(self, queued: MessageQueued, session: str, room: int) -> Iterator[Text]:
        if session == self._root and queued.source in ("goal", "schedule"):
            self._announced = True
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
        elif queued.source in ("goal", "plan", "schedule"):
            yield from self._chapters.queued(queued, session, room)
        elif not queued.source.startswith("agent:"):  # mail of subagents is told by their end
            yield from paragraphs(queued.text, room, "dim", f"› ({visible(queued.source)}) ")

    def _edited(self, edited: MessageEdited, session: str, room: int) -> Iterator[Text]:
        yield from paragraphs(edited.text, room, "bold", f"› ({visible(edited.id)} instead) ")

    def _shell_started(self, started: ShellStarted, session: str, room: int) -> Iterator[Text]:
        yield from paragraphs(started.command, room, "bold", "! ")

    def _shell_ended(self, ended: ShellEnded, session: str, room: int) -> Iterator[Text]:
        how = f"exit code {ended.code}" if ended.ending == "exited" else ended.ending.replace("_", " ")
        yield fit(Text(f"! ended: {how}, {seconds_text(ended.seconds)}", "dim"), room)

    def _noted(self, note: NoteAdded, session: str, room: int) -> Iterator[Text]:
        """What a command of the user's own printed, and what a review came to; other notes are for the model."""
        if note.source == "shell":
            yield from printed(note.text, room)
        elif note.source == "review" and note.role == "assistant":
            yield from paragraphs(note.text, room, "", "")

    def _withdrawn(self, withdrawn: MessageWithdrawn, session: str, room: int) -> Iterator[Text]:
        if withdrawn.reason == "crashes":
            yield from paragraphs(SET_ASIDE.format(id=withdrawn.id), room, "red", "✗ ")
        else:
            yield fit(Text(f"message {visible(withdrawn.id)} was withdrawn", "dim"), room)

    def _turn_started(self, started: TurnStarted, session: str, room: int) -> Iterator[Text]:
        if session != self._root:
            return
        announced, self._announced = self._announced, False
        if started.start != "user" and not announced:
            yield fit(Text(f"turn {started.turn} starts by itself", "dim"), room)

    def _recovered(self, recovered: TurnRecovered, session: str, room: int) -> Iterator[Text]:
        yield fit(Text(f"turn {recovered.turn} goes on where a crash cut it off", "yellow"), room)

    def _said(self, said: ModelSaid, session: str, room: int) -> Iterator[Text]:
        if said.text.strip():
            yield from paragraphs(said.text, room, "", "")
        if said.interrupted:
            yield fit(Text("(cut off here)", "yellow"), room)
        elif said.truncated:
            yield fit(Text("(cut off by the model's limit)", "yellow"), room)

    def _model_failed(self, failed: ModelFailed, session: str, room: int) -> Iterator[Text]:
        if failed.retryable:  # the last failure is told by the end of the turn
            yield from paragraphs(f"the model failed and is asked again: {failed.error}", room, "yellow", "")

    def _called(self, called: ToolCalled, session: str, room: int) -> Iterator[Text]:
        text = call_text(called.name, called.arguments)
        self._calls[session, called.call] = text
        if self._starts and called.name not in SHORT_TOOLS:
            yield fit(Text(f"▸ {text}", "dim"), room)

    def _returned(self, returned: ToolReturned, session: str, room: int) -> Iterator[Text]:
        text = self._calls.pop((session, returned.call), visible(returned.name))
        if returned.name in QUIET_TOOLS and returned.receipt == "completed":
            return
        if returned.name == "exit_plan_mode" and returned.text.startswith((KEEP_PLANNING, DISMISSED)):
            yield fit(Text("planning goes on", "cyan"), room)
            return
        style = STYLES[returned.receipt]
        end = f"  {returned.receipt}, {seconds_text(returned.seconds)}"
        said = fit(Text(text), max(8, room - 2 - len(end)))
        yield Text.assemble(("• ", style), said, (end, style if returned.receipt != "completed" else "dim"))
        if returned.receipt in ("failed", "rejected"):
            yield fit(Text(INDENT + one_line(returned.text), "red"), room)

    def _planned(self, planned: PlanUpdated, session: str, room: int) -> Iterator[Text]:
        yield from _cell(plan_lines(Plan(planned.explanation, planned.plan), room, self._colour))

    def _listed(self, written: TodosWritten, session: str, room: int) -> Iterator[Text]:
        yield from _cell(todo_lines(written.todos, room, self._colour))

    def _spawned(self, spawned: ChildSpawned, session: str, room: int) -> Iterator[Text]:
        name = self._names[spawned.child] = spawned.path.removeprefix("/root/")
        yield fit(Text.assemble(("+ ", "magenta"), f"agent {visible(name)}"), room)

    def _child_ended(self, ended: ChildEnded, session: str, room: int) -> Iterator[Text]:
        name = visible(self._names.get(ended.child, ended.child))
        style = {"completed": "green", "failed": "red"}.get(ended.status, "yellow")
        said = one_line(ended.text)
        tail = f": {said}" if said and ended.status != "completed" else ""
        yield fit(Text.assemble(("= ", "magenta"), f"agent {name} ", (ended.status, style), tail), room)

    def _aborting(self, aborting: AbortRequested, session: str, room: int) -> Iterator[Text]:
        yield fit(Text(f"interrupt ({aborting.cause})", "yellow"), room)

    def _turn_ended(self, ended: TurnEnded, session: str, room: int) -> Iterator[Text]:
        if ended.reason != "completed":
            yield from receipt_lines(ended, room)
        if ended.error is not None:
            yield from paragraphs(f"turn {ended.turn} ended with an error: {ended.error}", room, "red", "")
        if ended.open_steps > 0:
            count = "1 step of the plan is" if ended.open_steps == 1 else f"{ended.open_steps:,} steps of the plan are"
            yield fit(Text(f"{count} still open", "yellow"), room)

    def _compacted(self, compacted: Compacted, session: str, room: int) -> Iterator[Text]:
        why = "by itself, before it outgrew the model's window" if compacted.automatic else "as it was asked to be"
        yield from paragraphs(f"the history was compacted {why}; repeated often, details get lost", room, "dim", "")

    def _hook_failed(self, failed: HookFailed, session: str, room: int) -> Iterator[Text]:
        yield fit(Text(f"hook {one_line(failed.hook)} failed: {one_line(failed.error)}", "yellow"), room)

    def _hook_warned(self, warned: HookWarned, session: str, room: int) -> Iterator[Text]:
        yield fit(Text(f"{one_line(warned.hook)} warns: {one_line(warned.text)}", "yellow"), room)


TELL: Mapping[type[Event], Callable[..., Iterator[Text]]] = MappingProxyType(
    {
        SessionOpened: Story._opened,
        SessionForked: Story._forked,
        PlanHandedOver: Story._handed_over,
        MessageQueued: Story._queued,
        MessageEdited: Story._edited,
        MessageWithdrawn: Story._withdrawn,
        ShellStarted: Story._shell_started,
        ShellEnded: Story._shell_ended,
        TurnStarted: Story._turn_started,
        TurnRecovered: Story._recovered,
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
        yield fit(Text(visible(line)), room)


def receipt_lines(ended: TurnEnded, room: int) -> Iterator[Text]:
    """How a turn that did not complete ended, with a table of its receipts."""
    why = "" if ended.cause is None else f" ({ended.cause})"
    closed = "" if ended.abort_s is None else f"; its books were closed {seconds_text(ended.abort_s)} after the request"
    yield from paragraphs(f"turn {ended.turn} {ended.reason}{why}{closed}", room, "bold yellow", "")
    cut = [receipt for receipt in ended.receipts if receipt.receipt != "completed"]
    for receipt in cut[:RECEIPTS_MAX]:
        yield fit(_receipt_line(receipt), room)
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
