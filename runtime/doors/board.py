"""board: a plan or a todo list as terminal lines; pure, wrapped by cells, harmless whatever the texts hold.

Every line is a `rich.text.Text`; without colours it has no styles, and `str(line)` is all there is to print.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from callboard.actors.facts import Progress, Todo
from callboard.plugins.plan import Plan

DONE_MARK, OPEN_MARK, INDENT = "✔ ", "□ ", "  "
IN_PROGRESS = " (in progress)"  # said in text where no colour says it
NO_STEPS = "(no steps provided)"
NO_TODOS = "(no todos)"
CUT = "…"
MARGIN_MAX = 4  # cells kept free beside the items, for what a door puts before them
TEXT_MAX_CHARS = 4_000  # of one text: a longer one is cut, so that drawing never holds up the loop

HEADING_STYLE, NOTE_STYLE = "bold", "dim italic"
MARK_STYLES: Mapping[Progress, str] = {"completed": "dim", "in_progress": "bold cyan", "pending": "dim"}
TEXT_STYLES: Mapping[Progress, str] = {"completed": "dim strike", "in_progress": "bold cyan", "pending": "dim"}

_JOINER = "\u200d"
_BIDI = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def plan_lines(plan: Plan | None, width: int, colour: bool) -> list[Text]:
    """The plan in `width` cells: heading, explanation, steps; no lines at all without a plan."""
    if plan is None:
        return []
    lines = _heading("Plan", [step.status for step in plan.plan], width)
    for part in _clipped(plan.explanation or "").splitlines():
        lines += [Text(line, NOTE_STYLE) for line in _wrap(part, width - MARGIN_MAX) if line]
    lines += _items([(step.step, step.status) for step in plan.plan], NO_STEPS, width, colour=colour)
    return lines if colour else _plain(lines)


def todo_lines(todos: Sequence[Todo] | None, width: int, colour: bool) -> list[Text]:
    """The todo list in `width` cells: no lines at all without a list, heading and `(no todos)` for an empty one."""
    if todos is None:
        return []
    lines = _heading("Todo", [todo.status for todo in todos], width)
    lines += _items([(todo.content, todo.status) for todo in todos], NO_TODOS, width, colour=colour)
    return lines if colour else _plain(lines)


def _plain(lines: Iterable[Text]) -> list[Text]:
    return [Text(line.plain) for line in lines]


def _heading(name: str, statuses: list[Progress], width: int) -> list[Text]:
    heading = f"{name} ({statuses.count('completed')}/{len(statuses)} done)"
    return [Text(line, HEADING_STYLE) for line in _wrap(heading, width)]


def _items(items: list[tuple[str, Progress]], empty: str, width: int, *, colour: bool) -> list[Text]:
    """Each item behind its mark, in `width - MARGIN_MAX` cells with the mark; its text has at least one cell."""
    if not items:
        return [Text(line, NOTE_STYLE) for line in _wrap(empty, width - MARGIN_MAX)]
    return [line for text, status in items for line in _item(text, status, width - MARGIN_MAX, colour=colour)]


def _item(text: str, status: Progress, width: int, *, colour: bool) -> Iterator[Text]:
    mark = DONE_MARK if status == "completed" else OPEN_MARK
    said = _clipped(text) + (IN_PROGRESS if status == "in_progress" and not colour else "")
    for line in _wrap(said, width - len(INDENT)):
        yield Text.assemble((mark, MARK_STYLES[status]), (line, TEXT_STYLES[status]))
        mark = INDENT


def _clipped(text: str) -> str:
    return text if len(text) <= TEXT_MAX_CHARS else text[:TEXT_MAX_CHARS] + CUT


def visible(text: str) -> str:
    r"""The text with everything a terminal would obey made visible: `\x1b`, `\u202e`, lone surrogates."""
    return text if text.isascii() and text.isprintable() else "".join(map(_visible, text))


def _visible(char: str) -> str:
    obeyed = unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(char) in _BIDI
    return char.encode("unicode_escape").decode("ascii") if obeyed else char


def _wrap(text: str, width: int) -> Iterator[str]:
    """At least one line, each of at most `width` cells; white space is one space, words too long are broken."""
    width = max(1, width)
    line, used = "", 0
    for word in map(visible, text.split()):
        size = cell_len(word)
        if line and used + 1 + size > width and (size <= width or used + 1 >= width):
            yield line
            line, used = "", 0
        if line:
            line, used = line + " ", used + 1
        for piece in (word,) if size <= width else _clusters(word):
            cells = cell_len(piece)
            if line and used + cells > width:
                yield line.rstrip()
                line, used = "", 0
            line, used = line + piece, used + cells
    yield line


def _clusters(word: str) -> Iterator[str]:
    """What stands in one place: a character with the marks on it, and what is joined to it."""
    cluster = ""
    for char in word:
        if cluster and not cluster.endswith(_JOINER) and cell_len(char) > 0:
            yield cluster
            cluster = ""
        cluster += char
    yield cluster
