"""Lines from pipes, files and terminals: one at a time, whatever is written into them, without holding up the loop."""

import asyncio
import os
import pty
import tty
from pathlib import Path

from callboard.runtime.doors.typed import LINE_MAX_BYTES, Typed

from .hosted import until


async def test_lines_of_a_pipe_come_in_order():
    """Each is one line without its end, also the last without one; then the end, as often as it is asked for."""
    ours, theirs = os.pipe()
    typed = Typed(ours)
    os.write(theirs, "one\ntwo\r\n\nä".encode())
    typed.forget()
    assert ["one", "two", ""] == [await typed.line() for _ in range(3)]
    last = asyncio.ensure_future(typed.line())
    await asyncio.sleep(0.02)
    assert not last.done()
    os.close(theirs)
    assert ("ä", None, None) == (await last, await typed.line(), await typed.line())
    assert (True, False) == (typed.ended, typed.terminal)
    os.close(ours)


async def test_who_stops_waiting_loses_no_line():
    """A line that comes after its reader was cancelled is the next reader's."""
    ours, theirs = os.pipe()
    typed = Typed(ours)
    first = asyncio.ensure_future(typed.line())
    await asyncio.sleep(0.02)
    first.cancel()
    os.write(theirs, b"late\n")
    assert "late" == await typed.line()
    os.close(theirs)
    assert await typed.line() is None
    os.close(ours)


async def test_a_file_and_a_closed_descriptor_end(tmp_path: Path):
    """A file is read like a pipe; what cannot be read has ended."""
    (tmp_path / "answers").write_bytes(b"one\nbad \xff byte\n")
    fd = os.open(tmp_path / "answers", os.O_RDONLY)
    typed = Typed(fd)
    assert ["one", "bad \ufffd byte", None] == [await typed.line() for _ in range(3)]
    os.close(fd)
    assert await Typed(fd).line() is None


async def test_an_endless_line_stays_bounded():
    """Of a line of any length a bounded part is kept, and the line after it is whole."""
    ours, theirs = os.pipe()
    typed = Typed(ours)

    def write() -> None:
        for _ in range(64):
            os.write(theirs, b"x" * 65536)
        os.write(theirs, b"\nnext\n")
        os.close(theirs)

    writing = asyncio.get_running_loop().run_in_executor(None, write)
    line = await typed.line()
    assert line is not None
    assert LINE_MAX_BYTES <= len(line) <= LINE_MAX_BYTES + 2 * 65536
    assert ["next", None] == [await typed.line(), await typed.line()]
    await writing
    os.close(ours)


async def test_a_terminal_forgets_what_was_typed_too_early():
    """What was typed before `forget` answers nothing, and the end that a person types is no end for ever."""
    ours, theirs = pty.openpty()
    tty.setcbreak(theirs)  # no waiting for whole lines: what is typed is there at once
    typed = Typed(theirs)
    assert typed.terminal
    os.write(ours, b"too early\n")
    await asyncio.sleep(0.05)
    typed.forget()
    line = asyncio.ensure_future(typed.line())
    await asyncio.sleep(0.05)
    os.write(ours, b"in time\n")
    assert "in time" == await line
    os.close(ours)
    assert (None, None, False) == (await typed.line(), await typed.line(), typed.ended)
    os.close(theirs)


async def test_reading_holds_nothing_up():
    """While a line is awaited the loop goes on, and one thread at most waits for it."""
    ours, theirs = os.pipe()
    typed, ticks = Typed(ours), list[int]()
    lines = [asyncio.ensure_future(typed.line()) for _ in range(3)]
    for tick in range(20):
        await asyncio.sleep(0)
        ticks.append(tick)
    assert (20, [False] * 3) == (len(ticks), [line.done() for line in lines])
    os.write(theirs, b"a\nb\nc\n")
    await until(lambda: all(line.done() for line in lines))
    assert ["a", "b", "c"] == sorted(str(line.result()) for line in lines)
    os.close(theirs)
    os.close(ours)
