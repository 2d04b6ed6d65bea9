"""How a step's cost grows: with the length of its session, and with the number of plugins, hooks and readers."""

import asyncio
import statistics
from collections.abc import Mapping
from typing import Any

from callboard.actors import Allow, Enter, Hook, Plugin
from callboard.actors.fold import Projection
from callboard.plugins.agents import AGENTS_PLUGIN
from callboard.plugins.plan import PLAN_PLUGIN
from callboard.plugins.todo import TODO_PLUGIN

from .measure import Span, settle
from .row import Figures, Goal, Row
from .sides import STEPS_MAX, is_whole, runtime

SHIPPED = (PLAN_PLUGIN, TODO_PLUGIN, AGENTS_PLUGIN)


def length(marks: Mapping[str, int], turns: int) -> Figures:
    """CPU of a step of one session when its log has so many events, and that over the first."""
    return asyncio.run(_length(marks, turns))


async def _length(marks: Mapping[str, int], turns: int) -> Figures:
    figures: dict[str, float] = {}
    async with runtime() as rt:
        warm, session = await rt.create(), await rt.create()
        await _turns(warm, turns)
        for name, events in marks.items():
            while session.state()["seq"] < events:
                assert is_whole(await session.run("go"))
            settle()
            figures[f"cpu_us_step_{name}"] = await _turns(session, turns)
        assert session.state()["seq"] >= max(marks.values())
    first = figures[f"cpu_us_step_{next(iter(marks))}"]
    return {**figures, **{f"growth_{name}": figures[f"cpu_us_step_{name}"] / first for name in list(marks)[1:]}}


async def _turns(session: Any, turns: int) -> float:
    """Median CPU microseconds of a step over some turns."""
    takes = []
    for _ in range(turns):
        with Span() as span:
            ended = await session.run("go")
        assert is_whole(ended), ended
        takes.append(span.cpu_s / STEPS_MAX * 1e6)
    return statistics.median(takes)


def plugins(count: int, turns: int) -> Figures:
    """What one more plugin costs a step: a hook before it, a section of the prompt, a projection."""
    return asyncio.run(_grown(count, turns, plugins=(*SHIPPED, *map(_plugin, range(count)))))


def _plugin(number: int) -> Plugin:
    async def enter(view: Any, messages: Any) -> Enter:
        return Enter(messages)

    counted: Projection[int] = Projection(f"p{number}", 0, lambda state, event: state, on=())
    return Plugin(f"p{number}", projections=(counted,), before_step=enter, prompt_section=lambda view: None)


def hooks(count: int, turns: int) -> Figures:
    """What one more hook costs a step: asked before and after its call."""
    calls = 0

    def before(call: Any) -> Allow:
        nonlocal calls
        calls += 1
        return Allow()

    many = [Hook(f"h{number}", before, lambda call, result: None) for number in range(count)]
    figures = asyncio.run(_grown(count, turns, hooks=many))
    assert calls >= count * turns * (STEPS_MAX - 1)
    return figures


def readers(count: int, turns: int) -> Figures:
    """What one more reader of the session's events costs a step, the reader's own loop included."""
    return asyncio.run(_grown(0, turns, readers=count))


async def _grown(count: int, turns: int, *, readers: int = 0, **options: Any) -> Figures:
    none = await _cost(turns, 0, **({"plugins": SHIPPED} if "plugins" in options else {}))
    many = await _cost(turns, readers, **options)
    number = count or readers
    return {"cpu_us_each": (many - none) / number, "cpu_us_step": many, "cpu_us_step_without": none}


async def _cost(turns: int, readers: int, **options: Any) -> float:
    seen = 0

    async def read(events: Any) -> None:
        nonlocal seen
        async for _ in events:
            seen += 1

    async with runtime(**options) as rt:
        session = await rt.create()
        reading = [asyncio.ensure_future(read(session.events())) for _ in range(readers)]
        await _turns(session, max(2, turns // 10))
        settle()
        cost = await _turns(session, turns)
        written = session.state()["seq"]
    await asyncio.gather(*reading)
    assert seen >= readers * (written + 1)
    return cost


ROWS = (
    Row(
        "growth.length",
        "a step when its session has 0, 1,000 and 100,000 events",
        length,
        None,
        ("cpu_us_step_0", "cpu_us_step_1k", "cpu_us_step_100k", "growth_1k", "growth_100k"),
        {"marks": {"0": 0, "1k": 1_000, "100k": 100_000}, "turns": 40},
        {"marks": {"0": 0, "1k": 1_000, "100k": 2_000}, "turns": 5},
        {"growth_1k": Goal(value=1.2), "growth_100k": Goal(value=1.2)},
    ),
    Row(
        "growth.plugins",
        "30 more plugins: what each adds to a step",
        plugins,
        None,
        ("cpu_us_each", "cpu_us_step", "cpu_us_step_without"),
        {"count": 30, "turns": 60},
        {"count": 30, "turns": 5},
        {"cpu_us_each": Goal(value=3)},
    ),
    Row(
        "growth.hooks",
        "10 more hooks around each call: what each adds to a step",
        hooks,
        None,
        ("cpu_us_each", "cpu_us_step", "cpu_us_step_without"),
        {"count": 10, "turns": 60},
        {"count": 10, "turns": 5},
        {"cpu_us_each": Goal(value=15)},
    ),
    Row(
        "growth.readers",
        "20 readers of the session: what each adds to a step",
        readers,
        None,
        ("cpu_us_each", "cpu_us_step", "cpu_us_step_without"),
        {"count": 20, "turns": 60},
        {"count": 5, "turns": 5},
        {"cpu_us_each": Goal(value=15)},
    ),
)
