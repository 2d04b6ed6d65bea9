"""One batch of tool calls: gate, hooks, guard, body, receipt; every call leaves by one door with one result."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

import attrs
import msgspec
import trio

from callboard.actors import hooks
from callboard.actors.errors import ToolError
from callboard.actors.events import Call, Cause, ControlCallEnded, Event, ModelSaid, ToolCalled, ToolReturned
from callboard.actors.host import Host, report_interrupts
from callboard.actors.plugin import ToolCall, ToolResult
from callboard.actors.receipts import NOT_STARTED, OUTCOMES, aborted_text, clean_text, cut_middle
from callboard.actors.results import Returned, completed, failed, judge
from callboard.actors.stage import Stage
from callboard.actors.tool import OUTPUT_MAX_BYTES, Tool, payload_fits
from callboard.actors.view import CallView, Scene, ThreadView

BLOCKED = "Tool call blocked by PreToolUse hook: {reason}. Tool: {name}"


@attrs.define(eq=False)
class Entry:
    """One call on its way through the batch."""

    call: Call
    tool: Tool | None
    begun_s: float
    begun_ms: int
    arguments: Any
    flaw: str
    view: CallView | None = None
    host: Host | None = None
    guarded: bool = False  # a control call whose fact is owed
    returned: Returned | None = None
    ready: bool = False  # nothing will change what it returned
    seconds: float = 0.0


def groups(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Neighbours that may run side by side; any other call is a group of its own.

    The same as one reader-writer gate that lets calls in by order: parallel tools share it, others hold it alone.
    """
    together: list[Entry] = []
    for entry in entries:
        if entry.tool is not None and entry.tool.parallel:
            together.append(entry)
            continue
        if together:
            yield together
            together = []
        yield [entry]
    if together:
        yield together


class Batch:
    """The calls of one model response. `run` is cancelled with the turn's scope; `close` then settles what is open."""

    def __init__(self, scene: Scene, calls: Sequence[Call], path: str, said: ModelSaid | None = None) -> None:
        """`said` is the reply when it is not on the log yet: the first write takes it along."""
        assert scene.window is not None
        self._scene, self._stage, self._log, self._path = scene, scene.stage, scene.log, path
        self._window, self._turn = scene.window, scene.turn
        now_s, now_ms, tools = scene.stage.now_s(), scene.stage.now_ms(), scene.stage.tools
        self.entries = [Entry(c, tools.get(c.name), now_s, now_ms, c.arguments, c.flaw) for c in calls]
        self._said = said
        self._recorded = 0  # entries before this one have their result on the log
        self._notes: list[str] = []
        self.tools_s = 0.0

    async def run(self) -> str | None:
        """Run all calls; the error that must end the turn, if a tool had one."""
        begun_s = self._stage.now_s()
        fatal = None
        for group in groups(self.entries):
            if fatal is not None:
                for entry in group:
                    entry.returned = Returned("not_started", NOT_STARTED.format(why="a call before it ended the turn"))
                    entry.ready = True
            else:
                await self._group(group)
            self._record_ready()
            fatal = fatal or next((e.returned.fatal for e in group if e.returned and e.returned.fatal), None)
        self._write_notes()
        self.tools_s = self._stage.now_s() - begun_s
        return fatal

    async def _group(self, group: list[Entry]) -> None:
        for entry in group:
            self._look_up(entry)
        waiting = [entry for entry in group if not entry.ready]
        if self._stage.slots.before_tool:
            await _each(self._ask_hooks, waiting)
            waiting = [entry for entry in waiting if not entry.ready]
        if waiting:
            await self._admit(waiting)
            if len(waiting) == 1:
                await self._body(waiting[0])
            else:
                await _each(self._body, waiting)

    def _look_up(self, entry: Entry) -> None:
        name = entry.call.name
        if entry.tool is None:
            entry.returned, entry.ready = Returned("failed", f"unsupported call: {name}"), True
        elif not payload_fits(entry.call):
            entry.returned, entry.ready = Returned("failed", f"{name} handler received unsupported payload"), True

    async def _ask_hooks(self, entry: Entry) -> None:
        verdict = await hooks.before(self._stage, self._window, self._seen(entry))
        if verdict.events:
            self._log.append(*verdict.events)
        self._notes.extend(verdict.notes)
        if verdict.block is not None:
            text = BLOCKED.format(reason=verdict.block, name=entry.call.name)
            self._refuse(entry, Returned("rejected", clean_text(text)))
        elif verdict.rewrite is not None:
            self._rewrite(entry, verdict.rewrite.arguments)

    def _refuse(self, entry: Entry, returned: Returned) -> None:
        entry.guarded = self._is_control(entry)
        entry.returned, entry.ready = returned, True

    def _rewrite(self, entry: Entry, arguments: Any) -> None:
        assert entry.tool is not None
        try:
            entry.arguments, entry.flaw = msgspec.json.decode(msgspec.json.encode(arguments)), ""
            entry.tool.parse(entry.arguments)
        except (ToolError, TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
            self._refuse(entry, Returned("failed", clean_text(f"a hook's rewrite does not fit: {error}")))

    async def _admit(self, entries: list[Entry]) -> None:
        """ToolCalled for all of them in one write, and one flush when any has an effect."""
        if self._window.cause is not None:
            await trio.lowlevel.checkpoint()  # a wait that was over already does not see the cancellation
        now_s, now_ms = self._stage.now_s(), self._stage.now_ms()
        called: list[Event] = []
        effects = False
        for entry in entries:
            assert entry.tool is not None
            entry.begun_s, entry.begun_ms = now_s, now_ms
            effects = effects or entry.tool.effect != "none"
            called.append(ToolCalled(entry.call.id, entry.call.name, entry.arguments, entry.tool.effect))
        self._write(*called)
        if effects:
            await self._log.flush()
        else:
            self._log.nudge()  # who watches sees the call when it begins, not when a long one has ended
        for entry in entries:
            entry.guarded = self._is_control(entry)

    def _is_control(self, entry: Entry) -> bool:
        return entry.tool is not None and entry.tool.control

    async def _body(self, entry: Entry) -> None:
        if self._window.cause is not None:
            await trio.lowlevel.checkpoint()  # as in `_admit`; from here on a body would run
        tool = entry.tool
        assert tool is not None
        kind = ThreadView if tool.runs_on == "thread" else CallView
        entry.view = kind(self._scene, entry.call.id, hold=tool.control)
        try:
            fn = self._bound(entry, tool, entry.view)
        except Exception as error:  # a refusal, arguments that do not fit, or a bug of the tool's in looking at them
            entry.returned = failed(error)
        else:
            entry.returned = await self._run_body(entry, tool, fn)
        entry.seconds = self._stage.now_s() - entry.begun_s
        if entry.returned.receipt == "completed" and self._stage.slots.after_tool:
            await self._ask_after(entry, entry.returned)
        entry.ready = True
        self._record_ready()

    def _bound(self, entry: Entry, tool: Tool, view: CallView) -> Callable[[], Any]:
        refusal = entry.flaw and f"failed to parse function arguments: {entry.flaw}"
        if tool.refuse is not None:
            refusal = tool.refuse(view) or refusal
        if refusal:
            raise ToolError(refusal)
        arguments = entry.arguments
        if isinstance(arguments, dict | list):
            arguments = msgspec.json.encode(arguments)  # so that the tool may change what it gets
        args, kwargs = tool.bind(tool.parse(arguments), view)
        return partial(tool.fn, *args, **kwargs)

    async def _run_body(self, entry: Entry, tool: Tool, fn: Callable[[], Any]) -> Returned:
        if tool.in_place:
            return run_in_place(self._stage, fn)
        window = self._window
        host = entry.host = Host(
            self._stage, window, fn, tool.name, runs_on=tool.runs_on, graceful=tool.graceful, timeout_s=tool.timeout_s
        )
        window.asked[host] = None
        host.start()
        if tool.timeout_s is None:
            await host.wait()
        else:
            with trio.move_on_after(tool.timeout_s + window.window_s):
                await host.wait()
            host.abandon()
        return judge(host, window.cause)

    async def _ask_after(self, entry: Entry, returned: Returned) -> None:
        result = ToolResult("completed", "completed", returned.text)
        verdict = await hooks.after(self._stage, self._window, self._seen(entry), result)
        if verdict.events:
            self._log.append(*verdict.events)
        self._notes.extend(verdict.notes)
        if verdict.block is not None:
            entry.returned = attrs.evolve(returned, text=verdict.block)

    def _seen(self, entry: Entry) -> ToolCall:
        call = entry.call
        during, arguments = hooks.hook_turn(self._scene), _own(entry.arguments)
        return ToolCall(during.session, self._path, self._turn, call.id, call.name, arguments, during=during)

    def _record_ready(self) -> None:
        """Write results in call order, as far as they are there without a gap."""
        while self._recorded < len(self.entries) and self.entries[self._recorded].ready:
            self._record(self.entries[self._recorded])
            self._log.nudge()

    def _record(self, entry: Entry) -> None:
        returned = entry.returned
        assert returned is not None
        held = entry.view.held if entry.view is not None and returned.receipt == "completed" else None
        if entry.view is not None:
            entry.view.close()
        limit = OUTPUT_MAX_BYTES if entry.tool is None else entry.tool.output_max
        text = cut_middle(clean_text(returned.text), limit)
        outcome = OUTCOMES[returned.receipt]
        name = entry.call.name
        facts: list[Event] = [ToolReturned(entry.call.id, returned.receipt, outcome, text, entry.seconds, name)]
        if entry.guarded and outcome is not None:
            now_ms = self._stage.now_ms()
            facts.append(ControlCallEnded(entry.call.id, None, name, entry.begun_ms, now_ms, outcome))
        self._write(*(held or ()), *facts)
        self._recorded += 1  # only now: what the store refused is owed still

    def _write(self, *events: Event) -> None:
        self._log.append(*(events if self._said is None else (self._said, *events)))
        self._said = None

    def _write_notes(self) -> None:
        if self._notes:
            self._log.append(*hooks.hook_notes(self._notes))
            self._notes = []

    def close(self, cause: Cause | None) -> None:
        """Give each call that has none its one result; what still runs is abandoned. None: the turn met an error."""
        for entry in self.entries[self._recorded :]:
            if entry.returned is None and entry.host is not None:
                entry.host.abandon()
                entry.returned = judge(entry.host, cause)
                entry.seconds = self._stage.now_s() - entry.begun_s
            if entry.returned is None:
                entry.returned = Returned("not_started", _never_ran(cause))
            self._record(entry)
        self._write_notes()

    def leave(self) -> None:
        """The turn is over, or its task is going down: no body has a turn any more."""
        for entry in self.entries:
            if entry.host is not None:
                entry.host.desert()


def _never_ran(cause: Cause | None) -> str:
    return NOT_STARTED.format(why="an error ended the turn") if cause is None else aborted_text(cause, "not_started", 0)


async def _each(fn: Callable[[Entry], Awaitable[None]], entries: Sequence[Entry]) -> None:
    """Do it for all of them side by side; for a single one without a nursery."""
    if len(entries) == 1:
        await fn(entries[0])
    elif entries:
        async with trio.open_nursery() as nursery:
            for entry in entries:
                nursery.start_soon(fn, entry)


def _own(arguments: Any) -> Any:
    """The arguments as a hook may keep and change them: text is read, an object is copied."""
    try:
        return msgspec.json.decode(arguments if isinstance(arguments, str) else msgspec.json.encode(arguments))
    except (msgspec.MsgspecError, RecursionError, UnicodeError, TypeError, ValueError):
        return arguments


def run_in_place(stage: Stage, fn: Callable[[], Any]) -> Returned:
    """A plain function on Trio runs in one piece on the loop: no scope, no task, nothing to cancel."""
    try:
        return completed(copy_context().run(fn))
    except BaseException as error:
        report_interrupts(stage, error)
        return failed(error)
