"""wording: how times, calls and long texts read as terminal lines; pure, harmless whatever the texts hold."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.text import Text

from callboard.runtime.doors.board import CUT, TEXT_MAX_CHARS, visible

TEXT_MAX_LINES = 200  # of one message; the log holds all of it
ARGUMENTS_MAX_CHARS = 400


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
            case "exit_plan_mode":
                return name  # the plan is shown with the question
            case "request_user_input":
                questions = arguments.get("questions")
                return f"{name} {len(questions)}" if isinstance(questions, list | tuple) else name
            case "schedule_create" | "create_goal" | "update_goal":
                said = [arguments.get(key) for key in ("action", "title", "prompt", "objective")]
                return one_line(
                    f"{name} {next((text for text in said if isinstance(text, str) and text), '')}".rstrip()
                )
            case "spawn_agent" | "send_message" | "followup_task":
                return one_line(f"{name} {arguments.get('task_name', arguments.get('target', ''))}")
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


def fit(line: Text, room: int) -> Text:
    """The line, cut to `room` cells."""
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
