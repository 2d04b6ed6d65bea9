"""Entry: one call on its way through a batch, and which of them may run side by side."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import attrs
import msgspec
import trio

from callboard.actors.calls import OpenCall
from callboard.actors.cell import Cell
from callboard.actors.events import Call
from callboard.actors.host import Host
from callboard.actors.plugin import ToolResult
from callboard.actors.receipts import CONTROL_TOOLS, OUTCOMES, clean_text, cut_middle, found
from callboard.actors.recovery import fate
from callboard.actors.results import Returned
from callboard.actors.tool import OUTPUT_MAX_BYTES, Tool
from callboard.actors.view import CallView

NOT_AGAIN = "{left} It was to run again here, and could not: {why}"


@attrs.define(eq=False)
class Entry:
    """One call on its way through the batch."""

    call: Call
    tool: Tool | None
    begun_s: float
    begun_ms: int
    arguments: Any
    flaw: str
    view: CallView | None = None
    host: Host | None = None
    cell: Cell | None = None  # the calls that its body makes
    left: Returned | None = None  # what a crash made of it, unless its body, which had begun, runs again
    guarded: bool = False  # a control call whose fact is owed
    returned: Returned | None = None
    ready: bool = False  # nothing will change what it returned
    seconds: float = 0.0


def take_up(entry: Entry, one: OpenCall) -> None:
    """A call that was open when its session crashed: what is left to do about it."""
    what = fate(one)
    if what != "begin":
        entry.left = Returned(*found(one))
        entry.guarded = entry.tool.control if entry.tool is not None else one.call.name in CONTROL_TOOLS
    changed = entry.tool is None or entry.tool.effect == "once"  # since it began: then it does not run again
    if what == "closed" or (what == "again" and changed):
        entry.returned, entry.ready = entry.left, True


def not_begun(entry: Entry, why: Returned) -> Returned:
    """What a call came to whose body cannot begin. One that a crash cut off had begun once, and may have done it."""
    if entry.left is None:
        return why
    return attrs.evolve(entry.left, text=NOT_AGAIN.format(left=entry.left.text, why=why.text), fatal=why.fatal)


def groups(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Neighbours that may run side by side; any other call is a group of its own.

    The same as one reader-writer gate that lets calls in by order: parallel tools share it, others hold it alone.
    """
    together: list[Entry] = []
    for entry in entries:
        if entry.tool is not None and entry.tool.parallel:
            together.append(entry)
            continue
        if together:
            yield together
            together = []
        yield [entry]
    if together:
        yield together


async def each(fn: Callable[[Entry], Awaitable[None]], entries: Sequence[Entry], *, in_order: bool = False) -> None:
    """Do it for all of them side by side; for a single one without a nursery. `in_order`: begun one by one."""
    if len(entries) == 1:
        await fn(entries[0])
    elif entries:
        async with trio.open_nursery() as nursery:
            for entry in entries:
                nursery.start_soon(fn, entry)
                if in_order:
                    await trio.lowlevel.checkpoint()  # what the next one starts runs in a later round of the scheduler


def own_copy(arguments: Any) -> Any:
    """The arguments as a hook may keep and change them: text is read, an object is copied."""
    try:
        return msgspec.json.decode(arguments if isinstance(arguments, str) else msgspec.json.encode(arguments))
    except (msgspec.MsgspecError, RecursionError, UnicodeError, TypeError, ValueError):
        return arguments


def result_of(entry: Entry) -> ToolResult:
    """What the body that made a call reads of it."""
    returned = entry.returned
    assert returned is not None
    limit = OUTPUT_MAX_BYTES if entry.tool is None else entry.tool.output_max
    text = cut_middle(clean_text(returned.text), limit)
    return ToolResult(OUTCOMES[returned.receipt] or "interrupted", returned.receipt, text)
