"""Drawing: a picture of the tree as a few lines at the foot of a terminal, or as a dashboard; pure."""

from collections.abc import Mapping
from types import MappingProxyType

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from callboard.runtime.doors.board import MARGIN_MAX, plan_lines, todo_lines, visible
from callboard.runtime.doors.picture import Agent, Picture
from callboard.runtime.doors.wording import one_line, seconds_text

FRAME_MS = 100  # of a spinner
WIDE_CELLS_MIN = 76  # from here on two columns fit
SAYING_LINES_MAX = 6
CALLS_MAX, AGENTS_MAX = 4, 8  # that the foot shows
EDGES_MAX = 4  # cells of a panel's own, left and right
BORDERS_MAX = 2  # lines of a panel's own, above and below
ENDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"completed": ("✔", "green"), "failed": ("✗", "red"), "interrupted": ("■", "yellow")}
)
RESTS = ("·", "dim")
PHASES: Mapping[str, str] = MappingProxyType({"active": "cyan", "blocked": "bold yellow", "complete": "green"})
WAITS = "waits for your answer"


def foot(picture: Picture, now_ms: int, width: int, height: int, spinner: str) -> RenderableType:
    """What goes on right now, in few lines: growing text, running calls, working agents, how far the plan is."""
    root, lines = picture.root, list[Text]()
    if root.saying.strip():
        tail = root.saying.splitlines()[-SAYING_LINES_MAX:]
        lines += [_fit(Text(visible(line.expandtabs(4))), width) for line in tail]
    turning = spinner[now_ms // FRAME_MS % len(spinner)]
    for call in list(root.calls.values())[:CALLS_MAX]:
        since = seconds_text((now_ms - call.begun_ms) / 1000)
        lines.append(_between(Text.assemble((f"{turning} ", "cyan"), call.text), Text(f"  {since}", "dim"), width))
    if root.calls and root.printing.strip():
        lines.append(_fit(Text(f"  {root.last_line}", "dim"), width))
    working = [agent for agent in picture.children if agent.working]
    for agent in working[:AGENTS_MAX]:
        lines.append(_between(_headline(agent, turning, now_ms), _since(agent, now_ms), width))
        if agent.last_line:
            lines.append(_fit(Text(f"    {agent.last_line}", "dim"), width))
    if len(working) > AGENTS_MAX:
        lines.append(Text(f"  and {len(working) - AGENTS_MAX} more agents", "dim"))
    doing = "" if lines or root.waits or not root.working else f"{turning} thinking  "
    lines += _goal_lines(root, width)
    if root.waits:
        lines.append(_fit(Text(WAITS, "bold yellow"), width))
    if root.working:
        mode = f"{mode}  " if (mode := _mode_text(root)) else ""
        lines.append(_fit(Text(f"{doing}{mode}{_plan_text(root)}Ctrl-C interrupts", "dim"), width))
    return Group(*lines[-max(1, height - 1) :])


def _mode_text(root: Agent) -> str:
    """Plan mode as it is, and as it will be from the next step."""
    mode = root.mode
    if mode.target == mode.active:
        return "plan mode" if mode.active else ""
    return "plan mode soon" if mode.target else "plan mode, off soon"


def _goal_lines(root: Agent, width: int) -> list[Text]:
    """The goal with its phase, in one line; none without a goal."""
    if root.goal is None:
        return []
    head = (f"goal ({root.goal.phase}): ", PHASES.get(root.goal.phase, "dim"))
    return [_fit(Text.assemble(head, one_line(root.goal.objective)), width)]


def _plan_text(root: Agent) -> str:
    if root.plan is None or not root.plan.plan:
        return ""
    now = next((step.step for step in root.plan.plan if step.status == "in_progress"), "")
    return f"plan {root.plan.done}/{len(root.plan.plan)}{': ' if now else ''}{visible(now)}  "


def dashboard(picture: Picture, now_ms: int, width: int, height: int, spinner: str, *, colour: bool) -> RenderableType:
    """The whole tree: the root's plan and todos, and its agents beside them, or below where it is narrow."""
    wide = width >= WIDE_CELLS_MIN
    left_cells = (width - 1) // 2 if wide else width
    right_cells = width - 1 - left_cells if wide else width
    left = root_lines(picture.root, left_cells - EDGES_MAX, colour=colour)
    right = _agent_lines(picture, now_ms, right_cells - EDGES_MAX, spinner)
    if not wide:
        right = right[: max(1, height - 2 * BORDERS_MAX - 1)]
        room = max(1, height - len(right) - 2 * BORDERS_MAX)
        return Group(_panel("root", left[:room], width), _panel("agents", right, width))
    rows = max(1, min(max(len(left), len(right)), height - BORDERS_MAX))
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(_panel("root", left, left_cells, rows), _panel("agents", right, right_cells, rows))
    return grid


def _panel(title: str, lines: list[Text], width: int, rows: int | None = None) -> Panel:
    height = None if rows is None else rows + BORDERS_MAX
    return Panel(Group(*lines), title=title, title_align="left", border_style="dim", width=width, height=height)


def root_lines(root: Agent, width: int, *, colour: bool) -> list[Text]:
    """What the root is about: mode, goal, a question that waits; then its plan and its todos."""
    mode = [_fit(Text(_mode_text(root), "cyan"), width)] if _mode_text(root) else []
    heads = [*mode, *_goal_lines(root, width), *([_fit(Text(WAITS, "bold yellow"), width)] if root.waits else [])]
    plan = plan_lines(root.plan, width + MARGIN_MAX, colour)
    todos = todo_lines(root.todos, width + MARGIN_MAX, colour)
    lines: list[Text] = []
    for block in filter(None, (heads, plan, todos)):
        lines += [Text(""), *block] if lines else block
    return lines


def _agent_lines(picture: Picture, now_ms: int, width: int, spinner: str) -> list[Text]:
    turning = spinner[now_ms // FRAME_MS % len(spinner)]
    lines: list[Text] = []
    for agent in picture.children[-AGENTS_MAX:]:
        lines.append(_between(_headline(agent, turning, now_ms), _since(agent, now_ms), width))
        lines.append(_fit(Text(f"  {agent.last_line}", "dim"), width))
    root = picture.root
    doing = next((call.text for call in root.calls.values()), "thinks" if root.working else "rests")
    mark = turning if root.working else RESTS[0]
    return [*lines, _fit(Text.assemble((f"{mark} ", "cyan"), "root ", (doing, "dim")), width)]


def _headline(agent: Agent, turning: str, now_ms: int) -> Text:
    mark, style = (turning, "cyan") if agent.working else ENDS.get(agent.state, RESTS)
    call = next(iter(agent.calls.values()), None)
    doing = call.text if call is not None else "thinks" if agent.working else agent.state
    end = "" if agent.working else style
    return Text.assemble((f"{mark} ", style), (visible(agent.name), "bold"), " ", (doing, end))


def _since(agent: Agent, now_ms: int) -> Text:
    end_ms = now_ms if agent.working or not agent.ended_ms else agent.ended_ms
    return Text(f"  {seconds_text((end_ms - agent.begun_ms) / 1000)}", "dim")


def _between(left: Text, right: Text, width: int) -> Text:
    """Both in one line, the right one at its end."""
    room = max(1, width - right.cell_len)
    left.truncate(room, overflow="ellipsis", pad=True)
    return _fit(Text.assemble(left, right), width)


def _fit(line: Text, width: int) -> Text:
    line.truncate(max(1, width), overflow="ellipsis")
    return line
