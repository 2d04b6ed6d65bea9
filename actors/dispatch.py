"""One batch of tool calls: gate, hooks, guard, body, receipt; every call leaves by one door with one result."""

from collections.abc import Callable, Container, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

import attrs
import msgspec
import trio

from callboard.actors import hooks
from callboard.actors.books import FOUND, OPENED
from callboard.actors.calls import OpenCall
from callboard.actors.catalogue import permitted
from callboard.actors.cell import Cell
from callboard.actors.entry import Entry, each, groups, not_begun, own_copy, result_of, take_up
from callboard.actors.errors import CallOver, FatalToolError, ToolError
from callboard.actors.events import (
    Call,
    Cause,
    CellCalled,
    ControlCallEnded,
    Event,
    ToolCalled,
    ToolReturned,
)
from callboard.actors.host import Host, report_interrupts
from callboard.actors.intake import take_nested
from callboard.actors.plugin import ToolCall, ToolResult
from callboard.actors.receipts import NOT_STARTED, OUTCOMES, aborted_text, clean_text, cut_middle
from callboard.actors.results import Returned, completed, describe, failed, judge
from callboard.actors.stage import Stage
from callboard.actors.tool import OUTPUT_MAX_BYTES, Tool, payload_fits
from callboard.actors.view import CallView, Scene, ThreadView

CELL_OVER = "the call that made this one ended"
NESTS_ONCE = "a call that a tool makes cannot make calls of its own."
BLOCKED = "Tool call blocked by PreToolUse hook: {reason}. Tool: {name}"


class Batch:
    """The calls of one model response. `run` is cancelled with the turn's scope; `close` then settles what is open."""

    def __init__(
        self, scene: Scene, calls: Sequence[Call], path: str, said: Event | None = None, used: set[str] | None = None
    ) -> None:
        """`said` asked for these and is not on the log yet: the first write takes it along. `used`: ids of the turn."""
        assert scene.window is not None
        self._scene, self._stage, self._log, self._path = scene, scene.stage, scene.log, path
        self._window, self._turn = scene.window, scene.turn
        now_s, now_ms, tools = scene.stage.now_s(), scene.stage.now_ms(), self._callable()
        self.entries = [Entry(c, tools.get(c.name), now_s, now_ms, c.arguments, c.flaw) for c in calls]
        self._said, self._used = said, set() if used is None else used
        self._cell_id: str | None = None  # of the call whose body makes these
        self._recorded = 0  # entries before this one have their result on the log
        self._notes: list[str] = []
        self.tools_s = 0.0

    def _callable(self) -> Mapping[str, Tool]:
        """By name, what this caller may call; anything else does not exist for it."""
        offer = self._stage.offer
        tools = offer.callable_by_model(self._log[FOUND]) if offer.has_deferred else offer.offered
        return permitted(self._log[OPENED], tools)

    def resume(self, left: Sequence[OpenCall]) -> None:
        """These are calls that a crash left open, each one that is owed a result."""
        for entry, one in zip(self.entries, left, strict=True):
            take_up(entry, one)

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

    @property
    def concludes(self) -> bool:
        """Whether a call said that the turn has nothing more to do."""
        return any(entry.returned is not None and entry.returned.concludes for entry in self.entries)

    async def _group(self, group: list[Entry]) -> None:
        again = [entry for entry in group if entry.left is not None and not entry.ready]  # hooks and guards passed it
        waiting = [entry for entry in group if entry.left is None]
        for entry in waiting:
            self._look_up(entry)
        waiting = [entry for entry in waiting if not entry.ready]
        if self._stage.slots.before_tool:
            await each(self._ask_hooks, waiting)
            waiting = [entry for entry in waiting if not entry.ready]
        if self._stage.guards:
            await each(self._ask_guards, waiting, in_order=True)  # the user is asked in the order of the calls
            waiting = [entry for entry in waiting if not entry.ready]
        if waiting:
            await self._admit(waiting)
        bodies = [entry for entry in group if not entry.ready] if again else waiting
        if len(bodies) == 1:
            await self._body(bodies[0])
        elif bodies:
            await each(self._body, bodies)

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

    async def _ask_guards(self, entry: Entry) -> None:
        """The plugins that may refuse a call; the first reason is its result. One that cannot run is refused anyway."""
        assert entry.tool is not None
        if entry.flaw:
            return
        id_, given = entry.call.id, own_copy(entry.arguments) if isinstance(entry.arguments, str) else entry.arguments
        call = ToolCall(self._log.session, self._path, self._turn, id_, entry.call.name, given, self._cell_id)
        for plugin in self._stage.guards:
            assert plugin.guard is not None
            try:
                with CallView(self._scene, id_, asks=self._write) as view:
                    reason = await plugin.guard(view, call, entry.tool)
            except Exception as error:  # who cannot decide refuses
                reason = f"plugin {plugin.name} could not decide about this call: {describe(error)}"
            if reason is not None:
                self._refuse(entry, Returned("rejected", clean_text(reason)))
                return

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
            call, effect = entry.call, entry.tool.effect
            called.append(ToolCalled(call.id, call.name, entry.arguments, effect, self._cell_id))
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
        entry.view = kind(self._scene, entry.call.id, hold=tool.control, caller=self)
        try:
            fn = self._bound(entry, tool, entry.view)
        except Exception as error:  # a refusal, arguments that do not fit, or a bug of the tool's in looking at them
            entry.returned = not_begun(entry, failed(error))
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
        during, arguments = hooks.hook_turn(self._scene), own_copy(entry.arguments)
        return ToolCall(
            during.session, self._path, self._turn, call.id, call.name, arguments, self._cell_id, during=during
        )

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
        if entry.cell is not None:
            entry.cell.close(self._window.cause)
        limit = OUTPUT_MAX_BYTES if entry.tool is None else entry.tool.output_max
        text = cut_middle(clean_text(returned.text), limit)
        outcome = OUTCOMES[returned.receipt]
        id_, name, cell = entry.call.id, entry.call.name, self._cell_id
        facts: list[Event] = [ToolReturned(id_, returned.receipt, outcome, text, entry.seconds, name, cell)]
        if entry.guarded and outcome is not None:
            now_ms = self._stage.now_ms()
            facts.append(ControlCallEnded(id_, cell, name, entry.begun_ms, now_ms, outcome))
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
            if entry.returned is None:
                entry.returned = self._unfinished(entry, cause)
            self._record(entry)
        self._write_notes()

    def _unfinished(self, entry: Entry, cause: Cause | None) -> Returned:
        """What a call came to that has not returned; it is left behind."""
        if entry.host is None and entry.left is not None:
            return entry.left
        if entry.host is not None:
            entry.host.abandon()
            entry.seconds = self._stage.now_s() - entry.begun_s
            return judge(entry.host, cause)
        if cause is None:
            return Returned("not_started", NOT_STARTED.format(why="an error ended the turn"))
        return Returned("not_started", aborted_text(cause, "not_started", 0))

    def leave(self) -> None:
        """The turn is over, or its task is going down: no body has a turn any more."""
        for entry in self.entries:
            if entry.cell is not None:
                entry.cell.leave()
            if entry.host is not None:
                entry.host.desert()

    async def nest(self, cell: str, name: str, arguments: Any, allowed: Container[str] | None) -> ToolResult:
        """(Trio) A call that the body of the call `cell` makes, with a result of its own."""
        if self._cell_id is not None:
            raise ToolError(NESTS_ONCE)
        if self._window.cause is not None:
            raise CallOver("the turn is being aborted: no call begins any more.")
        entry = next(entry for entry in self.entries if entry.call.id == cell)
        inside = entry.cell = entry.cell or Cell(cell)
        call = take_nested(name, arguments, self._used, cell, inside.number())
        return await Nested(self._scene, call, self._path, inside, allowed, self._notes).answer()


class Nested(Batch):
    """One call that the body of another makes. What hooks note about it stands behind the batch it is in."""

    def __init__(
        self, scene: Scene, call: Call, path: str, cell: Cell, allowed: Container[str] | None, notes: list[str]
    ) -> None:
        self._allowed, self._inside = allowed, cell
        super().__init__(scene, (call,), path, CellCalled(cell.id, call))
        self._cell_id, self._notes = cell.id, notes
        self._scope = trio.CancelScope()

    def _callable(self) -> Mapping[str, Tool]:
        tools, allowed = self._stage.tools, self._allowed
        if allowed is not None:
            tools = {name: tool for name, tool in tools.items() if name in allowed}
        return permitted(self._log[OPENED], tools)

    def _write_notes(self) -> None:
        """The batch around it does."""

    def ask(self) -> None:
        """The abort window opened: nothing of it begins any more; its body is asked by itself."""
        self._scope.cancel()

    async def answer(self) -> ToolResult:
        """(Trio) Run it. Cancelled inside its cell it ends first; in an abort it is closed with its cell."""
        (entry,), window = self.entries, self._window
        self._inside.open[self] = window.asked[self] = None
        fatal = None
        try:
            with self._scope:
                async with self._inside.gate.inside(shared=entry.tool is not None and entry.tool.parallel):
                    fatal = await self.run()
        finally:
            window.asked.pop(self, None)
            if not self._recorded and window.cause is None:
                await self._end(entry)
            if self._recorded:
                self._inside.open.pop(self, None)
        if not entry.ready:
            raise CallOver("the turn is being aborted: this call has no result for its caller.")
        if fatal is not None:
            raise FatalToolError(fatal)
        return result_of(entry)

    async def _end(self, entry: Entry) -> None:
        host = entry.host
        if host is not None and not host.ended:
            host.cut()
            with trio.CancelScope(shield=True, deadline=self._stage.now_s() + self._window.window_s):
                await host.wait()
        self.close(self._window.cause)

    def close(self, cause: Cause | None) -> None:
        """Give it its one result, if it has none, and begin nothing any more."""
        super().close(cause)
        self._scope.cancel()

    def _unfinished(self, entry: Entry, cause: Cause | None) -> Returned:
        if cause is not None:
            return super()._unfinished(entry, cause)
        returned = super()._unfinished(entry, "interrupted")  # and not by the user
        match returned.receipt:
            case "not_started":
                return attrs.evolve(returned, text=NOT_STARTED.format(why=CELL_OVER))
            case "interrupted" | "abandoned":
                return attrs.evolve(returned, text=f"interrupted: {CELL_OVER}")
        return returned


def run_in_place(stage: Stage, fn: Callable[[], Any]) -> Returned:
    """A plain function on Trio runs in one piece on the loop: no scope, no task, nothing to cancel."""
    try:
        return completed(copy_context().run(fn))
    except BaseException as error:
        report_interrupts(stage, error)
        return failed(error)
