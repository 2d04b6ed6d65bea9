"""Claude Code session files: one content block a line, subagents inline (side chains) or in files of their own."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import attrs
import msgspec

from callboard.runtime.recordings.claude_text import Said, command_of, split_user
from callboard.runtime.recordings.draft import Draft, DraftCall, DraftReply, UniqueIds
from callboard.runtime.recordings.lines import (
    Tally,
    arguments_of,
    content_text,
    dict_of,
    has_content,
    list_of,
    load,
    read_lines,
    text_of,
)
from callboard.runtime.recordings.recording import RecordedAgent, RecordedTurn, Recording

FORMAT: Final = "claude-code"
_SIDE_AGENTS: Final = (
    ("acompact", "compaction agent"),
    ("aprompt_suggestion", "suggestion agent"),
    ("aside_question", "side question"),
)
"""Agent ids by which Claude Code names its own errands; they are no subagents of the conversation."""
_WARM_UP: Final = "Warmup"
_MESSAGES: Final = ("user", "assistant")
_THINKING: Final = ("thinking", "redacted_thinking")
_SYNTHETIC: Final = "<synthetic>"


@attrs.frozen
class AgentFile:
    """The file of one subagent, and what stands in its `.meta.json`."""

    id: str
    data: bytes
    kind: str = ""
    call: str = ""


class _Line(msgspec.Struct, rename="camel"):
    type: object = None
    subtype: object = None
    uuid: object = None
    parent_uuid: object = None
    is_sidechain: object = None
    session_id: object = None
    stream_session: object = msgspec.field(default=None, name="session_id")
    stream_parent: object = msgspec.field(default=None, name="parent_tool_use_id")
    agent_id: object = None
    cwd: object = None
    is_meta: object = None
    is_compact_summary: object = None
    is_api_error_message: object = None
    request_id: object = None
    parent_tool_use_id: object = msgspec.field(default=None, name="parentToolUseID")
    message: msgspec.Raw = msgspec.Raw()
    data: msgspec.Raw = msgspec.Raw()
    attachment: msgspec.Raw = msgspec.Raw()
    tool_use_result: msgspec.Raw = msgspec.Raw()


class _AgentRef(msgspec.Struct, rename="camel"):
    """Only what names an agent, in a payload that may be large."""

    type: object = None
    agent_id: object = None


_DECODER: Final = msgspec.json.Decoder(_Line)
_REF_DECODER: Final = msgspec.json.Decoder(_AgentRef)


def parse(data: bytes, name: str, files: Sequence[AgentFile] = ()) -> Recording:
    """The recording in these bytes and in its agents' files; `name` stands in for a missing session id."""
    reader = _Reader(Tally())
    reader.read(data)
    if not reader.main.turns and len(reader.chains) == 1 and not files:
        return reader.alone(name)
    for file in files:
        errand = next((reason for prefix, reason in _SIDE_AGENTS if file.id.startswith(prefix)), None)
        if errand:
            reader.tally.note(errand)
        else:
            reader.read(file.data, file.id)
            reader.describe(file)
    return reader.done(name)


@attrs.define(eq=False)
class _Chain:
    """One conversation in the file: the main one or that of a subagent."""

    draft: Draft
    kind: str = ""
    call: str = ""
    command: str = ""
    """A slash command that becomes a prompt when the model answers it."""
    model: str | None = None


@attrs.define
class _Reader:
    tally: Tally
    ids: UniqueIds = attrs.field(factory=UniqueIds)
    main: Draft = attrs.field(init=False)
    chains: dict[str, _Chain] = attrs.field(factory=dict)
    session: str = ""
    cwd: str | None = None
    _main: _Chain = attrs.field(init=False)
    _seen: set[tuple[object, str]] = attrs.field(factory=set)
    _chain_of: dict[str, str] = attrs.field(factory=dict)
    _started_by: dict[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.main = Draft(self.tally, self.ids)
        self._main = _Chain(self.main)

    def read(self, data: bytes, agent: str = "") -> None:
        """Every line of one file; `agent` when the file belongs to a subagent."""
        for _, line in read_lines(data, _DECODER, self.tally):
            message = dict_of(load(line.message)) if line.type in _MESSAGES else {}
            if line.type in _MESSAGES and not has_content(message):
                self.tally.note("malformed message")
                continue
            if self._repeated(line):
                self.tally.note("repeated line")
                continue
            self.session = self.session or text_of(line.session_id) or text_of(line.stream_session)
            self.cwd = self.cwd or text_of(line.cwd) or None
            self.line(line, message, self._chain(line, agent))

    def _repeated(self, line: _Line) -> bool:
        uuid = text_of(line.uuid)
        key = (text_of(line.type), uuid)
        if not uuid or key not in self._seen:
            self._seen.add(key)
            return False
        return True

    def line(self, line: _Line, message: dict[str, Any], chain: _Chain) -> None:
        """One line, by its type."""
        if line.type == "user":
            self.user(line, message, chain)
        elif line.type == "assistant":
            self.assistant(line, message, chain)
        elif line.type == "progress":
            self.progress(line)
        elif line.type == "attachment":
            self.attachment(dict_of(load(line.attachment)), chain)
        else:
            self.tally.kind(text_of(line.type, "kind"), line.subtype)

    def progress(self, line: _Line) -> None:
        """Progress becomes no turn; that of an agent tells which call started it."""
        ref = _ref(line.data)
        self.tally.kind("progress", ref.type)
        if text_of(ref.agent_id) and text_of(line.parent_tool_use_id):
            self._started_by.setdefault(text_of(ref.agent_id), text_of(line.parent_tool_use_id))

    def attachment(self, attachment: dict[str, Any], chain: _Chain) -> None:
        """What the user typed while the model was at work reaches it as an attachment; all others are notes."""
        said = split_user(attachment.get("prompt"))
        if attachment.get("type") == "queued_command" and said.text and said.text.strip():
            self.said(said, chain)
        else:
            self.tally.kind("attachment", attachment.get("type"))

    def user(self, line: _Line, message: dict[str, Any], chain: _Chain) -> None:
        """Tool results, a prompt, or one of the many things that only look like one."""
        content = message.get("content")
        for block in list_of(content):
            if isinstance(block, dict) and block.get("type") == "tool_result":
                self.result(line, block, chain.draft)
        said = split_user(content)
        if line.is_compact_summary is True:
            self.tally.note("compaction summary")
        elif line.is_meta is True:
            if said.text or not said.results:
                self.tally.note("meta message")
        else:
            self.said(said, chain)

    def said(self, said: Said, chain: _Chain) -> None:
        """What is left of a user line without its tool results."""
        for reason in said.skipped:
            self.tally.note(reason)
        if said.interrupted:
            self.tally.note("interrupt marker")
            chain.draft.interrupt()
        if said.text is not None:
            command = command_of(said.text)
            chain.command = command
            if command:
                self.tally.note("slash command")
            else:
                chain.draft.prompt(said.text)
        elif said.skipped:
            chain.command = ""
        elif not said.results and not said.interrupted:
            self.tally.note("blank message")

    def result(self, line: _Line, block: dict[str, Any], draft: Draft) -> None:
        """One tool result; that of an agent's call names the agent."""
        known_as = text_of(block.get("tool_use_id"))
        draft.result(known_as, content_text(block.get("content")), failed=block.get("is_error") is True)
        agent = text_of(_ref(line.tool_use_result).agent_id)
        if not agent and line.is_sidechain is not True:
            agent = text_of(line.agent_id)
        if agent:
            self._started_by.setdefault(agent, known_as)

    def assistant(self, line: _Line, message: dict[str, Any], chain: _Chain) -> None:
        """One line of an assistant message; the lines of one message id make one reply."""
        model = text_of(message.get("model"))
        if line.is_api_error_message is True or model == _SYNTHETIC:
            self.tally.note("API error message" if line.is_api_error_message is True else "synthetic message")
            return
        if chain.command:
            chain.draft.prompt(chain.command)
            chain.command = ""
        chain.model = chain.model or model or None
        reply = chain.draft.reply(text_of(message.get("id")) or text_of(line.request_id))
        reply.usage = dict_of(message.get("usage")) or reply.usage
        content = message.get("content")
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            self.block(reply, dict_of(block), chain.draft)

    def block(self, reply: DraftReply, block: dict[str, Any], draft: Draft) -> None:
        """One content block; a block written again when the message was complete replaces its first writing."""
        kind = block.get("type")
        if kind == "text":
            text = text_of(block.get("text"))
            if reply.texts and text.startswith(reply.texts[-1]):
                self.tally.note("repeated block")
                reply.texts.pop()
            reply.say(text)
        elif kind == "tool_use":
            self.tool_use(reply, block, draft)
        elif kind in _THINKING:
            self.tally.note("thinking")
        else:
            self.tally.kind("block", kind)

    def tool_use(self, reply: DraftReply, block: dict[str, Any], draft: Draft) -> None:
        """A call, unless this very message has held it already."""
        known_as, arguments = text_of(block.get("id")), arguments_of(block.get("input"))
        same = next((call for call in reply.calls if known_as and call.known_as == known_as), None)
        if same is not None and same.arguments in ({}, arguments):
            self.tally.note("repeated block")
            same.arguments = arguments
        else:
            draft.call(reply, known_as, text_of(block.get("name")), arguments)

    def describe(self, file: AgentFile) -> None:
        """What the file beside the agent's file says about it."""
        chain = self.chains.get(file.id)
        if chain is not None:
            chain.kind, chain.call = chain.kind or file.kind, chain.call or file.call

    def _chain(self, line: _Line, agent: str) -> _Chain:
        """The conversation a line belongs to: main, or by file, parent, agent id, call, or the last one."""
        key = agent
        if not key and (line.is_sidechain is True or text_of(line.stream_parent)):
            last = next(reversed(self.chains), "")
            key = (
                self._chain_of.get(text_of(line.parent_uuid), "")
                or text_of(line.agent_id)
                or text_of(line.stream_parent)
                or (last if text_of(line.parent_uuid) else "")
                or f"sidechain-{len(self.chains) + 1}"
            )
        if not key:
            return self._main
        if text_of(line.uuid):
            self._chain_of[text_of(line.uuid)] = key
        if key not in self.chains:
            self.chains[key] = _Chain(Draft(self.tally, self.ids), call=text_of(line.stream_parent))
        return self.chains[key]

    def alone(self, name: str) -> Recording:
        """A subagent's file opened by itself: its side chain is the conversation."""
        ((key, chain),) = self.chains.items()
        self._main, self.main, self.chains = chain, chain.draft, {}
        self.session = f"{self.session}/{key}" if self.session else key
        return self.done(name)

    def done(self, name: str) -> Recording:
        """The recording, with every agent tied to its call as far as can be told."""
        turns = self.main.finish()
        agents = self._agents()
        return Recording(
            FORMAT, self.session or name, self.cwd, self._main.model, turns, agents, skipped=self.tally.counts
        )

    def _agents(self) -> tuple[RecordedAgent, ...]:
        turns = {key: chain.draft.finish() for key, chain in self.chains.items()}
        for key, its in list(turns.items()):
            if not its or its[0].prompt == _WARM_UP:
                self.tally.note("warm-up agent" if its else "empty agent")
                del turns[key]
        starts = self._starts({key: its[0].prompt.strip() for key, its in turns.items()})
        order = sorted(turns, key=lambda key: starts[key][0])
        return tuple(_agent(key, self.chains[key], turns[key], starts[key][1]) for key in order)

    def _starts(self, tasks: dict[str, str]) -> dict[str, tuple[int, DraftCall | None]]:
        """For each agent the call that started it and its place: by what the file says, else by the same prompt."""
        drafts = [self.main, *(chain.draft for chain in self.chains.values())]
        turns = [turn for draft in drafts for turn in draft.turns]
        calls = [call for turn in turns for reply in turn.replies for call in reply.calls]
        named = {key: self._started_by.get(key) or self.chains[key].call for key in tasks}
        found: dict[str, tuple[int, DraftCall | None]] = {}
        for wanted, of in ((named, _known_as), (tasks, _prompt)):
            taken = {place for place, _ in found.values()}
            free: dict[str, deque[int]] = {}
            for place, call in enumerate(calls):
                if place not in taken:
                    free.setdefault(of(call), deque()).append(place)
            for key in tasks:
                if key not in found and wanted[key] and free.get(wanted[key]):
                    place = free[wanted[key]].popleft()
                    found[key] = (place, calls[place])
        return {key: found.get(key, (len(calls), None)) for key in tasks}


def _known_as(call: DraftCall) -> str:
    return call.known_as


def _prompt(call: DraftCall) -> str:
    return text_of(dict_of(call.arguments).get("prompt")).strip()


def _agent(key: str, chain: _Chain, turns: tuple[RecordedTurn, ...], call: DraftCall | None) -> RecordedAgent:
    arguments = dict_of(call.arguments) if call else {}
    name = text_of(arguments.get("subagent_type")) or chain.kind or "agent"
    return RecordedAgent(key, name, turns[0].prompt, turns, call.id if call else None)


def _ref(raw: msgspec.Raw) -> _AgentRef:
    """Type and agent id of a payload; nothing when it is no object."""
    try:
        return _REF_DECODER.decode(raw)
    except (ValueError, RecursionError):
        return _AgentRef()
