"""One batch of tool calls: gate, hooks, guard, body, receipt; every call leaves by one door with one result."""

import inspect
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import msgspec
import trio

from callboard.actors import hooks
from callboard.actors.errors import Dropped, FatalToolError, ToolError
from callboard.actors.eventlog import LOGGER
from callboard.actors.events import Call, Cause, ControlCallEnded, Event, NoteAdded, Receipt, ToolCalled, ToolReturned
from callboard.actors.host import Host
from callboard.actors.plugin import Failed, Partial, ToolCall, ToolResult
from callboard.actors.receipts import NOT_STARTED, OUTCOMES, aborted_text, clean_text, cut_middle, shown_name
from callboard.actors.tool import OUTPUT_MAX_BYTES, Tool, payload_fits
from callboard.actors.view import CallView, Scene, ThreadView

ERROR_MAX_CHARS = 2_000
BLOCKED = "Tool call blocked by PreToolUse hook: {reason}. Tool: {name}"


@attrs.frozen
class Returned:
    """What a call came to, before it is written."""

    receipt: Receipt
    text: str
    fatal: str | None = None


@attrs.define(eq=False)
class Entry:
    """One call on its way through the batch."""

    call: Call
    tool: Tool | None
    begun_s: float
    begun_ms: int
    arguments: Any
    view: CallView | None = None
    host: Host | None = None
    admitted: bool = False  # its ToolCalled is on the log
    guarded: bool = False  # a control call whose fact is owed
    returned: Returned | None = None
    seconds: float = 0.0
    recorded: bool = False


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

    def __init__(self, scene: Scene, calls: Sequence[Call], path: str) -> None:
        self._scene, self._stage, self._log, self._path = scene, scene.stage, scene.log, path
        now_s, now_ms = trio.current_time(), scene.stage.now_ms()
        tools = scene.stage.tools
        self.entries = [Entry(call, tools.get(call.name), now_s, now_ms, call.arguments) for call in calls]
        self._notes: list[str] = []
        self.told = False  # whether a graceful tool or a thread was running when the window opened
        self.tools_s = 0.0

    async def run(self) -> str | None:
        """Run all calls; the error that must end the turn, if a tool had one."""
        begun_s = trio.current_time()
        fatal = None
        for group in groups(self.entries):
            if fatal is not None:
                for entry in group:
                    entry.returned = Returned("not_started", NOT_STARTED.format(why="a call before it ended the turn"))
            else:
                await self._group(group)
            self._record_ready()
            fatal = fatal or next((e.returned.fatal for e in group if e.returned and e.returned.fatal), None)
        self._write_notes()
        self.tools_s = trio.current_time() - begun_s
        return fatal

    async def _group(self, group: list[Entry]) -> None:
        for entry in group:
            self._look_up(entry)
        waiting = [entry for entry in group if entry.returned is None]
        if self._stage.hooks:
            for entry in waiting:
                await self._ask_hooks(entry)
            waiting = [entry for entry in waiting if entry.returned is None]
        if not waiting:
            return
        await self._admit(waiting)
        if len(waiting) == 1:
            await self._body(waiting[0])
            return
        async with trio.open_nursery() as nursery:
            for entry in waiting:
                nursery.start_soon(self._body, entry)

    def _look_up(self, entry: Entry) -> None:
        name = shown_name(entry.call.name)
        if entry.tool is None:
            entry.returned = Returned("failed", f"unsupported call: {name}")
        elif not payload_fits(entry.call):
            entry.returned = Returned("failed", f"{name} handler received unsupported payload")

    async def _ask_hooks(self, entry: Entry) -> None:
        verdict = await hooks.before(self._stage, self._seen(entry))
        if verdict.failures:
            self._log.append(*verdict.failures)
        if verdict.block is not None:
            entry.guarded = self._is_control(entry)
            text = BLOCKED.format(reason=verdict.block, name=entry.call.name)
            entry.returned = Returned("rejected", clean_text(text))
        elif verdict.rewrite is not None:
            entry.arguments = verdict.rewrite.arguments
            self._check_rewrite(entry)

    def _check_rewrite(self, entry: Entry) -> None:
        assert entry.tool is not None
        try:
            entry.tool.parse(entry.arguments)
            msgspec.json.encode(entry.arguments)
        except (ToolError, TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
            entry.guarded = self._is_control(entry)
            entry.returned = Returned("failed", clean_text(f"a hook's rewrite does not fit: {error}"))

    async def _admit(self, entries: list[Entry]) -> None:
        """ToolCalled for all of them in one write, and one flush when any has an effect."""
        now_s, now_ms = trio.current_time(), self._stage.now_ms()
        called: list[Event] = []
        effects = False
        for entry in entries:
            assert entry.tool is not None
            entry.begun_s, entry.begun_ms = now_s, now_ms
            effects = effects or entry.tool.effect != "none"
            called.append(ToolCalled(entry.call.id, entry.call.name, entry.arguments, entry.tool.effect))
        self._log.append(*called)
        if effects:
            await self._log.flush()
        for entry in entries:
            entry.admitted, entry.guarded = True, self._is_control(entry)

    def _is_control(self, entry: Entry) -> bool:
        return entry.tool is not None and entry.tool.control

    async def _body(self, entry: Entry) -> None:
        tool = entry.tool
        assert tool is not None
        kind = ThreadView if tool.runs_on == "thread" else CallView
        entry.view = kind(self._scene, entry.call.id, hold=tool.control)
        try:
            refusal = entry.call.flaw and f"failed to parse function arguments: {entry.call.flaw}"
            if tool.refuse is not None:
                refusal = tool.refuse(entry.view) or refusal
            if refusal:
                raise ToolError(refusal)
            args, kwargs = tool.bind(tool.parse(entry.arguments), entry.view)
        except ToolError as error:
            entry.returned = Returned("failed", clean_text(str(error)))
        else:
            await self._run_body(entry, tool, partial(tool.fn, *args, **kwargs))
        if entry.returned is not None and entry.returned.receipt == "completed" and self._stage.hooks:
            await self._ask_after(entry, entry.returned)
        entry.seconds = trio.current_time() - entry.begun_s
        self._record_ready()

    async def _run_body(self, entry: Entry, tool: Tool, fn: Any) -> None:
        if tool.runs_on == "trio" and not inspect.iscoroutinefunction(tool.fn):
            entry.returned = run_in_place(tool, fn)
            return
        window = self._scene.window
        assert window is not None
        entry.host = Host(self._stage, window, tool, fn, tool.name)
        entry.host.start()
        if tool.timeout_s is None:
            await entry.host.wait()
        else:
            with trio.move_on_after(tool.timeout_s + window.window_s):
                await entry.host.wait()
            entry.host.abandon()
        entry.returned = judge(entry.host, window.cause)

    async def _ask_after(self, entry: Entry, returned: Returned) -> None:
        result = ToolResult("completed", "completed", returned.text)
        verdict = await hooks.after(self._stage, self._seen(entry), result)
        if verdict.failures:
            self._log.append(*verdict.failures)
        self._notes.extend(verdict.context)
        if verdict.block is not None:
            entry.returned = attrs.evolve(returned, text=verdict.block)

    def _seen(self, entry: Entry) -> ToolCall:
        turn = self._scene.turn
        return ToolCall(self._log.session, self._path, turn, entry.call.id, entry.call.name, entry.arguments)

    def _record_ready(self) -> None:
        """Write results in call order, as far as they are there without a gap."""
        for entry in self.entries:
            if entry.recorded:
                continue
            if entry.returned is None:
                return
            self._record(entry, entry.returned)

    def _record(self, entry: Entry, returned: Returned) -> None:
        held = entry.view.held if entry.view is not None and returned.receipt == "completed" else None
        if entry.view is not None:
            entry.view.close()
        limit = OUTPUT_MAX_BYTES if entry.tool is None else entry.tool.output_max
        text = cut_middle(clean_text(returned.text), limit)
        outcome = OUTCOMES[returned.receipt]
        if entry.guarded and returned.receipt == "not_started":
            entry.guarded = False
        name = shown_name(entry.call.name)
        written = ToolReturned(entry.call.id, returned.receipt, outcome, text, entry.seconds, name)
        facts: list[Event] = [written]
        if entry.guarded and outcome is not None:
            now_ms = self._stage.now_ms()
            facts.append(ControlCallEnded(entry.call.id, None, name, entry.begun_ms, now_ms, outcome))
        entry.recorded = True
        self._log.append(*(held or ()), *facts)

    def _write_notes(self) -> None:
        if self._notes:
            self._log.append(*(NoteAdded(clean_text(text), "developer", "hook") for text in self._notes))
            self._notes = []

    async def settle(self) -> None:
        """After the abort request: wait for the bodies, at most until the window ends."""
        window = self._scene.window
        assert window is not None
        hosts = [entry.host for entry in self.entries if entry.host is not None and not entry.recorded]
        self.told = any(not host.ended and (host.tool.graceful or host.tool.runs_on == "thread") for host in hosts)
        with trio.CancelScope(deadline=window.ends_s, shield=True):
            for host in hosts:
                await host.wait()

    def close(self, cause: Cause) -> None:
        """Give each call that has none its one result; what still runs is abandoned."""
        for entry in self.entries:
            if entry.recorded:
                continue
            if entry.returned is None and entry.host is not None:
                entry.host.abandon()
                entry.returned = judge(entry.host, cause)
                entry.seconds = trio.current_time() - entry.begun_s
            if entry.returned is None:
                entry.returned = Returned("not_started", aborted_text(cause, "not_started", 0.0))
            self._record(entry, entry.returned)
        self._write_notes()

    def cut(self) -> None:
        """The turn's own task is going down: cancel every body and wait for none."""
        for entry in self.entries:
            if entry.host is not None:
                entry.host.cut()


def run_in_place(tool: Tool, fn: Any) -> Returned:
    """A plain function on Trio runs in one piece on the loop: no scope, no task, nothing to cancel."""
    try:
        return completed(fn())
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return failed(error)


def judge(host: Host, cause: Cause | None) -> Returned:
    """What a body came to; `cause` is that of the open abort window, None without one."""
    seconds = host.ended_s - host.started_s if host.ended else trio.current_time() - host.started_s
    if host.has_value and not (host.late and cause is not None):
        return completed(host.value)
    if not host.ended or (host.abandoned and not host.has_value):
        return abandoned(host, cause, seconds)
    if host.has_value:
        assert cause is not None
        if isinstance(host.value, Partial):
            return Returned("interrupted", host.value.text)
        partial_text = completed(host.value).text
        return Returned("interrupted", aborted_text(cause, "interrupted", seconds, partial_text))
    if cause is not None:
        receipt: Receipt = "interrupted" if host.started else "not_started"
        if host.error is not None and not _only_cancels(host.error):
            if not host.late and not host.window.interrupted:
                return failed(host.error)
            _log_cleanup_error(host)
        return Returned(receipt, aborted_text(cause, receipt, seconds))
    if host.error is not None and not _only_cancels(host.error):
        return failed(host.error)
    return timed_out(host, seconds)


def abandoned(host: Host, cause: Cause | None, seconds: float) -> Returned:
    """A body that outlived its time."""
    if cause is None:
        return timed_out(host, seconds)
    return Returned("abandoned", aborted_text(cause, "abandoned", seconds))


def timed_out(host: Host, seconds: float) -> Returned:
    """A body that its own `timeout_s` ended, or that ended by a cancellation nobody here asked for."""
    if host.tool.timeout_s is None:
        return Returned("failed", f"{host.name} was cancelled from inside after {seconds:.1f}s")
    left = " It did not stop and was left behind." if host.abandoned else ""
    return Returned("failed", f"{host.name} timed out after {host.tool.timeout_s:g}s.{left}")


def completed(value: Any) -> Returned:
    """What the model reads of a returned value: text as it is, None as nothing, anything else as JSON."""
    match value:
        case str():
            return Returned("completed", value)
        case Failed():
            return Returned("failed", value.text)
        case Partial():
            return Returned("completed", value.text)
        case None:
            return Returned("completed", "")
    try:
        return Returned("completed", msgspec.json.encode(value).decode())
    except (TypeError, ValueError, RecursionError, UnicodeError) as error:
        return Returned("failed", f"the result cannot be written as JSON: {str(error)[:ERROR_MAX_CHARS]}")


def failed(error: BaseException) -> Returned:
    """What the model reads of an error: its text, never a traceback."""
    leaves = [leaf for leaf in _leaves(error) if not isinstance(leaf, trio.Cancelled | Dropped)]
    first = leaves[0] if leaves else error
    text = str(first) if isinstance(first, ToolError | FatalToolError) else f"{type(first).__name__}: {first}"
    if len(leaves) > 1:
        text = f"{text} (and {len(leaves) - 1} more)"
    text = text[:ERROR_MAX_CHARS]
    return Returned("failed", text, fatal=text if isinstance(first, FatalToolError) else None)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


def _only_cancels(error: BaseException) -> bool:
    return all(isinstance(leaf, trio.Cancelled | Dropped) for leaf in _leaves(error))


def _log_cleanup_error(host: Host) -> None:
    LOGGER.warning("%s raised while it was being interrupted: %r", host.name, host.error)
