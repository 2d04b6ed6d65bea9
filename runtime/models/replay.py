"""replay:FILE: the model side of a recorded session, and tools that answer as they did then."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from callboard.actors.children import CHILDREN
from callboard.actors.errors import ToolError, UsageError
from callboard.actors.events import Call, Usage
from callboard.actors.model import Prompt, Reply, Say
from callboard.actors.plugin import Failed, View
from callboard.actors.receipts import shown_name
from callboard.actors.tool import Tool
from callboard.runtime.recordings import (
    RecordedAgent,
    RecordedCall,
    RecordedReply,
    RecordedTurn,
    Recording,
    RecordingError,
    read_recording,
)

ID_MAX_CHARS = 200
OUTPUT_MAX_BYTES = 256 * 1024
NO_RESULT = "the recording has no result for this call"

# What other agents call the tools that ours take over; items are mapped to what ours know, and nothing is mended.
TODO_NAMES = frozenset({"TodoWrite", "todowrite", "todo_write", "todo-write"})
PLAN_NAMES = frozenset({"update_plan", "update-plan"})
USAGE_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "input": ("input_tokens", "input", "inputTokens", "prompt_tokens"),
        "cached": ("cache_read_input_tokens", "cached_input_tokens", "cacheRead", "cachedInputTokens"),
        "output": ("output_tokens", "output", "outputTokens", "completion_tokens"),
        "reasoning": ("reasoning_output_tokens", "reasoning", "reasoningTokens"),
    }
)


class AnyArguments(msgspec.Struct, frozen=True):
    """Whatever a recorded call was given."""


class RecordedTool(Tool):
    """A tool that takes any arguments, as the recorded one took them, and answers by the id of the call."""

    def parse(self, arguments: Any) -> msgspec.Struct:
        """Everything fits."""
        return AnyArguments()


class ReplayModel:
    """Answers turn N, step M of a session with what was recorded there; the tasks are the recorded user messages.

    `tools` belong to it: the recorded tools, none of which does anything, and each recorded subagent behind the call
    that started it.
    """

    provider = "replay"

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._ids = _plain_ids(recording)
        self._main = recording.turns
        self._agents = dict(zip(_agent_names(recording.agents), recording.agents, strict=True))
        self.tasks: tuple[str, ...] = tuple(turn.prompt for turn in recording.turns)
        self.steps_max = 1 + max((len(replies) for replies in self._all_replies()), default=0)
        self.agents_max = len(recording.agents)
        results, starts = self._results()
        self.tools = tuple(_tools(recording, results, starts, self._agents))

    def _all_replies(self) -> Iterator[tuple[RecordedReply, ...]]:
        for turn in self._main:
            yield turn.replies
        for agent in self._agents.values():
            yield _flat(agent.turns)

    def _results(self) -> tuple[dict[str, RecordedCall], dict[str, str]]:
        """Calls by the ids they are replayed with, and the agent that such a call starts."""
        results = {self._ids[call.id]: call for replies in self._all_replies() for r in replies for call in r.calls}
        by_call = {agent.call: name for name, agent in self._agents.items() if agent.call is not None}
        starts = {self._ids[id_]: name for id_, name in by_call.items() if id_ in self._ids}
        return results, starts

    @property
    def loose_agents(self) -> tuple[tuple[str, str], ...]:
        """Names and tasks of recorded subagents that no recorded call started."""
        started = {call for replies in self._all_replies() for reply in replies for call in (c.id for c in reply.calls)}
        return tuple((name, agent.task) for name, agent in self._agents.items() if agent.call not in started)

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """The recorded reply of this place, or an empty one where the recording has none."""
        replies = self._replies(prompt)
        if prompt.step > len(replies):
            return Reply()
        recorded = replies[prompt.step - 1]
        calls = [self._call(call) for call in recorded.calls]
        if recorded.text:
            say(recorded.text)
        return Reply(recorded.text, calls, _usage(recorded.usage), more=prompt.step < len(replies))

    def _replies(self, prompt: Prompt) -> tuple[RecordedReply, ...]:
        agent = self._agents.get(prompt.session.rpartition(".")[2])
        if agent is not None and "." in prompt.session:
            return _flat(agent.turns) if prompt.turn == 1 else ()
        return self._main[prompt.turn - 1].replies if prompt.turn <= len(self._main) else ()

    def _call(self, call: RecordedCall) -> Call:
        id_ = self._ids[call.id]
        if call.name in TODO_NAMES:
            return Call("todo_write", _mapped(call.arguments, "todos", ("content", "status")), id_)
        if call.name in PLAN_NAMES:
            return Call("update_plan", _mapped(call.arguments, "plan", ("step", "status"), "explanation"), id_)
        return Call(call.name, call.arguments, id_)


def open_replay(path: str) -> ReplayModel:
    """The model of a recording; a `UsageError` says what is wrong with the file."""
    try:
        return ReplayModel(read_recording(Path(path).expanduser()))
    except RecordingError as error:
        raise UsageError(str(error)) from None


def _flat(turns: Iterable[RecordedTurn]) -> tuple[RecordedReply, ...]:
    return tuple(reply for turn in turns for reply in turn.replies)


def _plain_ids(recording: Recording) -> dict[str, str]:
    """Recorded call ids, replaced where they could not be kept as they are."""
    every = (*recording.turns, *(turn for agent in recording.agents for turn in agent.turns))
    recorded = [call.id for turn in every for reply in turn.replies for call in reply.calls]
    taken, plain = set(recorded), dict[str, str]()
    for at, id_ in enumerate(recorded):
        own = id_ if 0 < len(id_) <= ID_MAX_CHARS and id_.isprintable() else f"r{at}"
        while own != id_ and own in taken:
            own += "'"
        plain[id_] = own
        taken.add(own)
    return plain


def _agent_names(agents: Iterable[RecordedAgent]) -> list[str]:
    """A task name for each agent, unique and of the letters that names may have."""
    names: list[str] = []
    for agent in agents:
        base = re.sub(r"[^a-z0-9_]+", "_", (agent.name + "_" + agent.id).lower()).strip("_")[:48] or "agent"
        name, again = base, 1
        while name in names:
            again += 1
            name = f"{base}_{again}"
        names.append(name)
    return names


def _tools(
    recording: Recording,
    results: Mapping[str, RecordedCall],
    starts: Mapping[str, str],
    agents: Mapping[str, RecordedAgent],
) -> Iterator[Tool]:
    names = {shown_name(call.name) for call in results.values()} - TODO_NAMES - PLAN_NAMES
    starters = {shown_name(results[id_].name) for id_ in starts}

    def answer(args: Any, view: View) -> str | Failed:
        return _answer(results.get(view.call))

    async def start(args: Any, view: View) -> str | Failed:
        name = starts.get(view.call)
        if name is not None:
            await _run_agent(view, name, agents[name].task)
        return _answer(results.get(view.call))

    for name in sorted(names):
        fn = start if name in starters else answer
        yield RecordedTool(
            name,
            f"{name}, as recorded.",
            fn,
            AnyArguments,
            None,
            "view",
            parallel=True,
            effect="idempotent" if name in starters else "none",
            output_max=OUTPUT_MAX_BYTES,
            external="dynamic",
        )


def _answer(call: RecordedCall | None) -> str | Failed:
    if call is None or call.result is None:
        return Failed(NO_RESULT)
    return Failed(call.result) if call.failed else call.result


async def _run_agent(view: View, name: str, task: str) -> None:
    """A recorded subagent, as a real session beside this one; its call returns when it has ended."""
    try:
        path = await view.spawn(name, task.strip() or "(no task recorded)", notify=False)
    except ToolError:
        return  # a limit of the tree: the recorded answer stands alone
    running = ("pending", "running")
    await view.until(lambda: all(c.path != path or c.status not in running for c in view[CHILDREN]))


def _mapped(arguments: Any, key: str, kept: tuple[str, ...], *beside: str) -> Any:
    """Foreign list arguments with only the fields that ours have; anything of another shape is passed as it is."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            return arguments
    if not isinstance(arguments, dict) or not isinstance(arguments.get(key), list):
        return arguments
    items = [
        {field: item[field] for field in kept if field in item} if isinstance(item, dict) else item
        for item in arguments[key]
    ]
    return {key: items, **{name: arguments[name] for name in beside if isinstance(arguments.get(name), str)}}


def _usage(recorded: Mapping[str, Any] | None) -> Usage | None:
    if not recorded:
        return None
    counts = {field: _count(recorded, keys) for field, keys in USAGE_KEYS.items()}
    return Usage(**counts)


def _count(recorded: Mapping[str, Any], keys: tuple[str, ...]) -> int:
    for key in keys:
        value = recorded.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:
            return value
    return 0
