"""Events of sessions -> spans, named as the GenAI conventions of OpenTelemetry name them.

A tree of agents is one trace. Its id, and that of each session's span, are made from the ids of the sessions, so that a
session that goes on in another process goes on in the same trace.
"""

import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final, Literal

import attrs
import msgspec

from callboard.actors.events import (
    Compacted,
    Event,
    ModelFailed,
    ModelSaid,
    SessionForked,
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

Value = str | int | float | bool | tuple[str, ...]
OPEN_MAX: Final = 50_000  # sessions whose turn is open; of more, the oldest are told without what came before
TEXT_MAX_CHARS: Final = 8_192  # of a text, where contents are told
SPAWN: Final = "spawn_agent"
FAILED_RECEIPTS: Final = frozenset({"failed", "abandoned"})
NS_MS: Final = 1_000_000
NS_S: Final = 1_000_000_000


@attrs.frozen
class Span:
    """Something that took time: ids as numbers, times in nanoseconds since 1970 UTC; `error` where it failed."""

    name: str
    trace: int
    id: int
    parent: int | None
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value]
    error: str | None = None
    kind: Literal["internal", "client"] = "internal"


@attrs.define
class Begun:
    """A span that has not ended."""

    id: int
    start_ns: int
    attributes: dict[str, Value] = attrs.field(factory=dict)
    name: str = ""


@attrs.define
class Turning:
    """A session whose turn is open."""

    opened: SessionOpened
    number: int
    turn: Begun
    step: Begun | None = None
    tools: dict[str, Begun] = attrs.field(factory=dict)


def trace_of(root: str) -> int:
    """The trace of a tree, by the id of its root."""
    return int.from_bytes(sha256(root.encode("utf-8", "replace")).digest()[:16]) or 1


def span_of(session: str) -> int:
    """The span of a session, by its id."""
    return int.from_bytes(sha256(b"session " + session.encode("utf-8", "replace")).digest()[:8]) or 1


class Spans:
    """Takes live events, in the order of each log, and gives each span when it has ended.

    `opened(session)` is how a session was opened, where it was before; `default_model` is what sessions without a model
    of their own are answered by. Texts, arguments and results are told only where `contents` is true.
    """

    def __init__(
        self,
        emit: Callable[[Span], None],
        opened: Callable[[str], SessionOpened | None],
        default_model: str,
        now_ns: Callable[[], int],
        *,
        contents: bool = False,
        new_id: Callable[[], int] = lambda: secrets.randbits(64) or 1,
    ) -> None:
        self._emit, self._opened, self._default_model = emit, opened, default_model
        self._now_ns, self._contents, self._new_id = now_ns, contents, new_id
        self._open: dict[str, Turning] = {}
        self._told: dict[type[Event], Callable[[str, Any], None]] = {
            SessionOpened: self._session,
            SessionForked: self._forked,
            TurnStarted: self._turn_started,
            TurnRecovered: self._turn_recovered,
            StepStarted: self._step_started,
            StepEnded: self._step_ended,
            ModelSaid: self._model_said,
            ModelFailed: self._model_failed,
            Compacted: self._compacted,
            ToolCalled: self._tool_called,
            ToolReturned: self._tool_returned,
            ChildSpawned: self._child_spawned,
            TurnEnded: self._turn_ended,
        }

    def event(self, event: Event, session: str, turn: int | None) -> None:
        """Take one event of a session."""
        told = self._told.get(type(event))
        if told is not None:
            told(session, event)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def _session(self, session: str, event: SessionOpened) -> None:
        if event.parent is None:  # an agent is told of by the call that starts it
            self._created(session, event.root or session, event.path, None)

    def _forked(self, session: str, event: SessionForked) -> None:
        self._created(session, session, "/root", None, {"callboard.source": event.source})

    def _child_spawned(self, session: str, event: ChildSpawned) -> None:
        open_ = self._open.get(session)
        if open_ is None:
            root, parent = self._root(session), span_of(session)
        else:
            root = open_.opened.root or session
            calls = [one for one in open_.tools.values() if one.name == SPAWN]
            call = open_.tools.get(event.call) or (calls[-1] if calls else None)
            parent = (call or open_.turn).id
        self._created(event.child, root, event.path, parent, {"callboard.role": event.role} if event.role else {})

    def _created(
        self, session: str, root: str, path: str, parent: int | None, more: Mapping[str, Value] | None = None
    ) -> None:
        now_ns = self._now_ns()
        told = {"gen_ai.operation.name": "create_agent", **self._agent(session, path), **(more or {})}
        self._emit(Span(f"create_agent {path}", trace_of(root), span_of(session), parent, now_ns, now_ns, told))

    def _root(self, session: str) -> str:
        opened = self._opened(session)
        return (opened.root if opened is not None else "") or session

    def _agent(self, session: str, path: str) -> dict[str, Value]:
        return {"gen_ai.agent.id": session, "gen_ai.agent.name": path, "gen_ai.conversation.id": session}

    # -- turns and steps -----------------------------------------------------------------------------------------------

    def _turn_started(self, session: str, event: TurnStarted) -> None:
        self._begin(session, event.turn, self._now_ns(), {"callboard.turn.start": event.start})

    def _turn_recovered(self, session: str, event: TurnRecovered) -> None:
        if session not in self._open:  # it began in another process, which told nothing of it
            self._begin(session, event.turn, self._now_ns(), {"callboard.turn.recovered": event.times})

    def _begin(self, session: str, number: int, start_ns: int, more: Mapping[str, Value]) -> Turning:
        opened = self._opened(session) or SessionOpened(root=session)
        told = {"gen_ai.operation.name": "invoke_agent", **self._agent(session, opened.path), **more}
        made = Turning(opened, number, Begun(self._new_id(), start_ns, {**told, "callboard.turn": number}))
        self._open[session] = made
        if len(self._open) > OPEN_MAX:
            del self._open[next(iter(self._open))]
        return made

    def _turn_ended(self, session: str, event: TurnEnded) -> None:
        open_ = self._open.pop(session, None)
        if open_ is None or open_.number != event.turn:
            self._begin(session, event.turn, event.started_ms * NS_MS or self._now_ns(), {})
            open_ = self._open.pop(session)
        now_ns = self._now_ns()
        if open_.step is not None:
            self._end(session, open_, open_.step, open_.turn.id, now_ns)
        told: dict[str, Value] = {
            **open_.turn.attributes,
            **used(event.usage),
            "callboard.turn.kind": event.kind,
            "callboard.turn.reason": event.reason,
            "callboard.turn.steps": event.steps,
            "callboard.turn.tool_calls": event.tool_calls,
        }
        for name, value in (("cause", event.cause), ("ending", event.ending), ("abort_s", event.abort_s)):
            if value is not None:
                told[f"callboard.turn.{name}"] = value
        if self._contents and event.last_message is not None:
            told["gen_ai.output.messages"] = said(event.last_message)
        name, start_ns = f"invoke_agent {open_.opened.path}", open_.turn.start_ns
        trace = trace_of(open_.opened.root or session)
        self._emit(
            Span(name, trace, open_.turn.id, span_of(session), start_ns, max(start_ns, now_ns), told, event.error)
        )

    def _step_started(self, session: str, event: StepStarted) -> None:
        if (open_ := self._open.get(session)) is not None:
            named: dict[str, Value] = {"callboard.turn": event.turn, "callboard.step": event.step}
            open_.step = Begun(self._new_id(), self._now_ns(), named, f"step {event.step}")

    def _step_ended(self, session: str, event: StepEnded) -> None:
        open_ = self._open.get(session)
        if open_ is not None and open_.step is not None:
            open_.step.attributes["callboard.step.overhead_s"] = event.overhead_s
            self._end(session, open_, open_.step, open_.turn.id, self._now_ns())
            open_.step = None

    def _end(
        self, session: str, open_: Turning, begun: Begun, parent: int, now_ns: int, error: str | None = None
    ) -> None:
        trace, start_ns = trace_of(open_.opened.root or session), begun.start_ns
        end_ns = max(start_ns, now_ns)
        self._emit(Span(begun.name, trace, begun.id, parent, start_ns, end_ns, begun.attributes, error))

    # -- models and tools ----------------------------------------------------------------------------------------------

    def _model_said(self, session: str, event: ModelSaid) -> None:
        reason = "length" if event.truncated else "tool_call" if event.calls else "stop"
        told: dict[str, Value] = {**used(event.usage)}
        if not event.interrupted:
            told["gen_ai.response.finish_reasons"] = (reason,)
        else:
            told["callboard.interrupted"] = True
        if self._contents:
            calls = [{"type": "tool_call", "id": one.id, "name": one.name} for one in event.calls]
            told["gen_ai.output.messages"] = said(event.text, calls, reason)
        self._model(session, event.provider, event.seconds, told)

    def _model_failed(self, session: str, event: ModelFailed) -> None:
        self._model(session, event.provider, event.seconds, {"error.type": "model_error"}, event.error)

    def _compacted(self, session: str, event: Compacted) -> None:
        told = {**used(event.usage), "callboard.compaction": True}
        self._model(session, event.provider, event.seconds, told)

    def _model(
        self, session: str, provider: str, seconds: float, told: dict[str, Value], error: str | None = None
    ) -> None:
        open_ = self._open.get(session)
        if open_ is None:
            return
        name = open_.opened.model or self._default_model
        model = name.removeprefix(f"{provider}:")
        end_ns = self._now_ns()
        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "gen_ai.conversation.id": session,
            **told,
        }
        trace, parent = trace_of(open_.opened.root or session), (open_.step or open_.turn).id
        start_ns = end_ns - round(max(seconds, 0.0) * NS_S)
        self._emit(Span(f"chat {model}", trace, self._new_id(), parent, start_ns, end_ns, told, error, kind="client"))

    def _tool_called(self, session: str, event: ToolCalled) -> None:
        if (open_ := self._open.get(session)) is None:
            return
        told: dict[str, Value] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.name,
            "gen_ai.tool.call.id": event.call,
            "gen_ai.tool.type": "function",
            "callboard.effect": event.effect,
        }
        if self._contents:
            told["gen_ai.tool.call.arguments"] = shown(event.arguments)
        open_.tools[event.call] = Begun(self._new_id(), self._now_ns(), told, event.name)

    def _tool_returned(self, session: str, event: ToolReturned) -> None:
        if (open_ := self._open.get(session)) is None:
            return
        begun = open_.tools.pop(event.call, None)
        if begun is None:  # it was refused, or it never started
            begun = Begun(self._new_id(), self._now_ns(), {"gen_ai.operation.name": "execute_tool"}, event.name)
            begun.attributes |= {"gen_ai.tool.name": event.name, "gen_ai.tool.call.id": event.call}
        begun.attributes["callboard.receipt"] = event.receipt
        if event.outcome is not None:
            begun.attributes["callboard.outcome"] = event.outcome
        if self._contents:
            begun.attributes["gen_ai.tool.call.result"] = event.text[:TEXT_MAX_CHARS]
        cell = open_.tools.get(event.cell or "")
        begun.name = f"execute_tool {event.name}"
        error = event.receipt if event.receipt in FAILED_RECEIPTS else None
        if error is not None:
            begun.attributes["error.type"] = error
        parent = cell or open_.step or open_.turn
        self._end(session, open_, begun, parent.id, self._now_ns(), error)


def used(usage: Usage) -> dict[str, Value]:
    """What something cost, under the conventions' names; nothing where nothing is known."""
    counts: dict[str, Value] = {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
    told = counts if usage.total else {}
    return {**told, "callboard.cost_usd": usage.cost_usd} if usage.cost_usd else told


def said(text: str, calls: list[dict[str, str]] | None = None, reason: str = "stop") -> str:
    """One message of a model, as the conventions write it."""
    parts: list[dict[str, str]] = [{"type": "text", "content": text[:TEXT_MAX_CHARS]}] if text else []
    message = {"role": "assistant", "parts": [*parts, *(calls or ())], "finish_reason": reason}
    return shown([message], whole=True)


def shown(value: Any, *, whole: bool = False) -> str:
    """A value as JSON, cut unless it is bounded already."""
    try:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = repr(value)[:TEXT_MAX_CHARS]
    return text if whole else text[:TEXT_MAX_CHARS]
