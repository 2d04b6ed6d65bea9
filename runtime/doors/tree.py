"""tree: the supervision trees of programs that run, for people, or as one line of JSON for each."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import msgspec
from rich.text import Text

from callboard.runtime.doors.board import visible
from callboard.runtime.doors.output import Output
from callboard.runtime.doors.program import DONE_CODE, FAILED_CODE, say_error
from callboard.runtime.doors.screen import Screen
from callboard.runtime.doors.wording import fit, seconds_text
from callboard.runtime.nodes import Node, Shown
from callboard.runtime.peek import ask, is_stale, pid_of, runtime_folder, sockets
from callboard.runtime.registry import AGENTS_OF
from callboard.runtime.vitals import STUCK_S

ASKED_AT_ONCE_MAX = 64
NOBODY = (
    "no program shows its tree now: `callboard run` does while it runs, and a program of yours that opens its runtime "
    "with open_runtime(peek=True)."
)
NOT_THAT_ONE = "no program {pid} shows its tree now; these do: {others}."
PICK = "several programs show a tree: callboard tree PID shows one."
SILENT = "program {pid} does not answer: it is busy, or another version of callboard."


@attrs.frozen
class TreeOptions:
    """What `callboard tree` was asked for; `pid` None is whoever there is."""

    pid: int | None = None
    json: bool = False


def tree(options: TreeOptions, output: Output) -> int:
    """The command; its exit code."""
    try:
        found = [path for path in sockets(runtime_folder()) if not is_stale(path)]
    except OSError as error:
        say_error(f"the folder of the programs that show their trees cannot be read: {error}")
        return FAILED_CODE
    pids = list(dict.fromkeys(pid_of(path) for path in found))
    if not found:
        say_error(NOBODY)
        return FAILED_CODE
    if options.pid is not None and options.pid not in pids:
        say_error(NOT_THAT_ONE.format(pid=options.pid, others=", ".join(map(str, pids))))
        return FAILED_CODE
    screen, code = Screen(output), DONE_CODE
    several = options.pid is None and len(pids) > 1
    asked = [path for path in found if options.pid in (None, pid_of(path))]
    with ThreadPoolExecutor(min(ASKED_AT_ONCE_MAX, len(asked))) as pool:  # one that hangs delays no other
        answers = list(pool.map(ask, asked))
    for path, answer in zip(asked, answers, strict=True):
        shown = read_shown(answer)
        if shown is None:
            say_error(SILENT.format(pid=pid_of(path)))
            code = FAILED_CODE
        elif options.json:
            output.write(msgspec.json.encode(shown).decode() + "\n")
        else:
            screen.lines([heading(shown, screen.width)] if several else picture(shown, screen.width))
    if several and not options.json:
        screen.lines([PICK])
    output.flush()
    return code


def read_shown(answer: bytes | None) -> Shown | None:
    """What a program said of itself; None for anything else."""
    try:
        return None if answer is None else msgspec.json.decode(answer, type=Shown)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


# -- for people --------------------------------------------------------------------------------------------------------


def picture(shown: Shown, width: int) -> list[Text]:
    """One program: how it is, its tree, what was left behind."""
    lines = [heading(shown, width), *_health(shown.health)]
    lines += [Text(visible(shown.tree.id)) + _about(shown.tree), *_branches(shown.tree, "")]
    passivated = shown.sessions.get("passivated", 0)
    if passivated:
        lines.append(Text(f"{passivated:,} more sessions left memory until they are wanted", "dim"))
    for title, names in (("abandoned", shown.abandoned), ("parked", shown.parked)):
        if names:
            lines.append(Text(f"{title}: {visible(', '.join(names))}", "yellow"))
    return [fit(line, width) for line in lines]


def heading(shown: Shown, width: int) -> Text:
    """Who it is, in one line."""
    counts = ", ".join(f"{count:,} {visible(phase)}" for phase, count in shown.sessions.items())
    parts = (f"{shown.pid}", visible(shown.program), f"up {seconds_text(shown.up_s)}", counts or "no sessions")
    return fit(Text(" · ".join(parts), "bold"), width)


def _health(health: dict[str, Any]) -> Iterator[Text]:
    problems, lags = health.get("problems"), health.get("lag_p99_s")
    if isinstance(problems, list) and problems:
        yield from (Text(f"! {visible(str(problem))}", "red") for problem in problems)
    late = ", ".join(f"{visible(name)} {_ms(lag)}" for name, lag in lags.items()) if isinstance(lags, dict) else ""
    if late:
        yield Text(f"loops late by (99 of 100): {late}", "dim")


def _ms(lag_s: Any) -> str:
    return f"{lag_s * 1000:.1f} ms" if isinstance(lag_s, int | float) else "?"


def _branches(node: Node, before: str) -> Iterator[Text]:
    """What stands below a node, an agents' supervisor under its root session."""
    troupes = {child.id.removeprefix(AGENTS_OF): child for child in node.children if child.id.startswith(AGENTS_OF)}
    roots = {child.id for child in node.children if not child.id.startswith(AGENTS_OF)}
    rows = [child for child in node.children if not (child.id.startswith(AGENTS_OF) and _root(child) in roots)]
    ends = [f"and {count:,} more, {visible(phase)}" for phase, count in node.more.items()]
    ends += [f"{visible(name)} was given up and still lives" for name in node.left]
    for number, child in enumerate(rows, 1):
        last = number == len(rows) and not ends
        yield Text(f"{before}{'└─ ' if last else '├─ '}") + _name(child) + _about(child)
        deeper = before + ("   " if last else "│  ")
        troupe = troupes.get(child.id) if child.kind == "actor" else None
        yield from _branches(child if troupe is None else troupe, deeper)
    for number, end in enumerate(ends, 1):
        yield Text(f"{before}{'└─ ' if number == len(ends) else '├─ '}{end}", "dim")


def _root(troupe: Node) -> str:
    return troupe.id.removeprefix(AGENTS_OF)


def _name(node: Node) -> Text:
    return Text(visible(node.id), "bold" if node.kind == "supervisor" else "")


def _about(node: Node) -> Text:
    """What there is to say of a child, behind its name."""
    stuck = node.aborting_s is not None and node.aborting_s > STUCK_S
    words = [visible(node.phase or node.strategy)]
    if not node.alive:
        words.append("waits to be started again" if node.kind == "actor" else "ending")
    if node.restarts:
        words.append(f"{node.restarts:,} restart{'s' if node.restarts > 1 else ''}")
    if node.mailbox:
        words.append(f"mailbox {node.mailbox:,}")
    if node.queued:
        words.append(f"{node.queued:,} queued")
    if node.aborting_s is not None:
        words.append(f"for {seconds_text(node.aborting_s)}")
    said = " · ".join(word for word in words if word)
    text = Text(f"  {said}" if said else "", "dim")
    return text + Text("  STUCK", "bold red") if stuck else text
