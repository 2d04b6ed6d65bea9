"""From a path to a Recording: which files belong to it, which format it has. The only module here that reads a disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from callboard.runtime.recordings import claude_code, codex, dsh, pi
from callboard.runtime.recordings.lines import dict_of, list_of, load, text_of
from callboard.runtime.recordings.recording import Recording, RecordingError

FILE_BYTES_MAX: Final = 512 * 1024 * 1024
"""Largest recording, its agents' files included, that is read into memory."""
AGENT_FILES_MAX: Final = 1000
"""Most files of subagents that are looked at for one session."""
_PROBE_LINES_MAX: Final = 200
"""How many readable lines vote on the format."""
_FIRST_LINE_BYTES_MAX: Final = 1024 * 1024
_PACKED: Final = (
    (b"\x1f\x8b", "gzip", "gunzip"),
    (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"),
    (b"PK\x03\x04", "zip", "unzip"),
)
_KNOWN: Final = "a session of Claude Code, pi or the DeepSeek harness, or a Codex rollout, as JSON lines"
_CODEX_TYPES: Final = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_CODEX_BARE: Final = ("message", "reasoning", "function_call", "function_call_output", "local_shell_call")
_CLAUDE_KEYS: Final = ("sessionId", "parentUuid", "isSidechain", "leafUuid", "session_id", "parent_tool_use_id")
_CLAUDE_TYPES: Final = ("summary", "file-history-snapshot", "queue-operation", "custom-title", "ai-title")
_PI_TYPES: Final = ("model_change", "thinking_level_change", "compaction", "branch_summary", "custom_message")


def read_recording(path: str | Path) -> Recording:
    """Read the recording at `path`, with the files of its subagents.

    Raises RecordingError, one sentence, for what is missing, empty, too large, binary or of no known format. Damage
    inside a recording never raises: it is counted in `Recording.skipped`.
    """
    path = Path(path)
    data = _read(path)
    found = _format(data)
    if found is None and (opened := _unrolled(data)):
        data, found = opened, codex.FORMAT
    if found is None:
        raise RecordingError(_unknown(path, data))
    if found == claude_code.FORMAT:
        return claude_code.parse(data, path.stem, tuple(_agent_files(path, data)))
    parse = {codex.FORMAT: codex.parse, pi.FORMAT: pi.parse, dsh.FORMAT: dsh.parse}[found]
    return parse(data, path.stem)


def _read(path: Path) -> bytes:
    """The bytes of a regular file, or the sentence that says why not."""
    try:
        if path.is_dir():
            raise RecordingError(f"{path} is a directory; name the session file inside it.")
        if not path.exists():
            raise RecordingError(f"There is no file {path}; check the path of the recording.")
        if not path.is_file():
            raise RecordingError(f"{path} is not a regular file; copy the recording into one.")
        if (size := path.stat().st_size) > FILE_BYTES_MAX:
            raise RecordingError(f"{path} has {size} bytes; the limit is {FILE_BYTES_MAX}, cut the recording.")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, RecordingError):
            raise
        raise RecordingError(f"{path} cannot be read ({error}); check its permissions and its name.") from error
    if not data.strip(b" \t\r\n\x00\xef\xbb\xbf"):
        raise RecordingError(f"{path} is empty; name a session file that holds at least one message.")
    return data.removeprefix(b"\xef\xbb\xbf")


def _unknown(path: Path, data: bytes) -> str:
    for magic, name, tool in _PACKED:
        if data.startswith(magic):
            return f"{path} is packed with {name}; unpack it first with {tool}."
    head = data[:4096]
    if b"\x00" in head or head.decode(errors="replace").count("�") > len(head) // 20:
        return f"{path} is binary (it starts with {data[:8]!r}); name {_KNOWN}."
    return f"{path} has no known format (it starts with {data[:40].decode(errors='replace')!r}); name {_KNOWN}."


def _format(data: bytes) -> str | None:
    """The format that most of the first readable lines speak for."""
    votes: dict[str, int] = {}
    for line in _probe(data):
        if (name := _vote(line)) is not None:
            votes[name] = votes.get(name, 0) + 1
    return max(votes, key=lambda name: votes[name]) if votes else None


def _probe(data: bytes) -> Iterator[dict[str, Any]]:
    read = start = 0
    while start < len(data) and read < _PROBE_LINES_MAX:
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        value = load(data[start:end].strip(b" \t\r\x00"))
        start = end + 1
        if isinstance(value, dict):
            read += 1
            yield value


def _vote(line: dict[str, Any]) -> str | None:
    """The format this one line speaks for, told by keys that no other format has."""
    kind = text_of(line.get("type"))
    if (kind == "session" and "createdAt" in line) or ("header" in line and not kind):
        return dsh.FORMAT
    if "/" in kind and "data" in line:
        return dsh.FORMAT
    if kind in _CODEX_TYPES and "payload" in line:
        return codex.FORMAT
    if any(key in line for key in _CLAUDE_KEYS) or kind in _CLAUDE_TYPES:
        return claude_code.FORMAT
    if kind in ("user", "assistant") and isinstance(line.get("message"), dict):
        return claude_code.FORMAT
    if kind in _PI_TYPES or (kind == "session" and "timestamp" in line):
        return pi.FORMAT
    if kind == "message" and isinstance(line.get("message"), dict):
        return pi.FORMAT
    return codex.FORMAT if _is_bare_codex(kind, line) else None


def _is_bare_codex(kind: str, line: dict[str, Any]) -> bool:
    if kind in _CODEX_BARE:
        return kind != "message" or "role" in line
    return "record_type" in line or (not kind and {"id", "timestamp"} <= line.keys() and "instructions" in line)


def _unrolled(data: bytes) -> bytes | None:
    """The oldest Codex files are one JSON object with `session` and `items`: as lines, or None for anything else."""
    whole = dict_of(load(data))
    items = list_of(whole.get("items"))
    if not items or not isinstance(whole.get("session"), dict):
        return None
    return b"\n".join(map(msgspec.json.encode, [whole["session"], *items]))


def _agent_files(path: Path, data: bytes) -> Iterator[claude_code.AgentFile]:
    """The files of the session's subagents: in its folder, or in the older layout beside it."""
    first: dict[str, Any] = next(_probe(data), {})
    if path.name.startswith("agent-") or (first.get("isSidechain") is True and first.get("agentId")):
        return
    left = FILE_BYTES_MAX - len(data)
    session = next((text_of(line.get("sessionId")) for line in _probe(data) if line.get("sessionId")), "")
    for file in _candidates(path, session or path.stem):
        try:
            left -= file.stat().st_size
            if left < 0:
                return
            meta = _meta(file)
            yield claude_code.AgentFile(
                file.stem.removeprefix("agent-"),
                file.read_bytes(),
                text_of(meta.get("agentType")),
                text_of(meta.get("toolUseId")),
            )
        except OSError:
            continue


def _candidates(path: Path, session: str) -> list[Path]:
    try:
        inside = sorted((path.parent / path.stem / "subagents").rglob("agent-*.jsonl"))
        beside = sorted(path.parent.glob("agent-*.jsonl"))[:AGENT_FILES_MAX]
    except OSError:
        return []
    own = [file for file in beside if _session_of(file) == session]
    return [file for file in (*inside, *own) if file.is_file()][:AGENT_FILES_MAX]


def _session_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return text_of(dict_of(load(opened.readline(_FIRST_LINE_BYTES_MAX))).get("sessionId"))
    except OSError:
        return ""


def _meta(file: Path) -> dict[str, Any]:
    try:
        beside = file.with_suffix(".meta.json")
        return dict_of(load(beside.read_bytes())) if beside.is_file() else {}
    except OSError:
        return {}
