"""Prompts inside one program: what is stale is not shown, what cannot be settled ends, lines stand above the prompt."""

import asyncio
import io
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
from rich.text import Text

from callboard.actors import Call, Reply
from callboard.actors.envelope import Envelope
from callboard.actors.facts import Option, QuestionAsked
from callboard.actors.testing import ScriptedModel
from callboard.plugins.ask import ask_plugin
from callboard.runtime import open_runtime
from callboard.runtime.doors.follow import Following
from callboard.runtime.doors.output import Output
from callboard.runtime.doors.prompting import Prompting
from callboard.runtime.doors.screen import CLEAR_LINE, MARK, Screen
from callboard.runtime.doors.typed import Typed

from .hosted import until

OPTIONS = [{"label": "red"}]
QUESTIONS = [{"id": id_, "header": "", "question": f"Which {id_}?", "options": OPTIONS} for id_ in ("a", "b")]
CALL = Call("request_user_input", {"questions": QUESTIONS}, "q")
ASKS = ScriptedModel(lambda prompt: Reply("", [CALL]) if prompt.step == 1 else Reply("done"))


class Shown:
    """A board that keeps what it shows."""

    width = 80

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.prompts = 0

    def lines(self, lines: Iterable[Text | str]) -> None:
        """Keep them."""
        self.shown += [str(line) for line in lines]

    def prompt(self) -> None:
        """One more place to type."""
        self.prompts += 1

    def prompted(self) -> None:
        """One less."""
        self.prompts -= 1


@attrs.frozen
class Desk:
    """A session whose questions are prompted; `write` is the other end of what is read."""

    session: Any
    prompting: Prompting
    board: Shown
    write: int


@asynccontextmanager
async def desk(plugin: Any = None, on_broken: Any = lambda: None) -> AsyncIterator[Desk]:
    """One for the length of a block."""
    ours, write = os.pipe()
    plugins = [plugin or ask_plugin(default_mode=True)]
    async with open_runtime(model=ASKS, plugins=plugins) as rt:
        session, board = await rt.create("s"), Shown()
        prompting = Prompting(rt, Typed(ours), board, on_broken)
        async with Following(rt, "s", prompting.taking(lambda item: None)), prompting:
            yield Desk(session, prompting, board, write)
            os.close(write)
    os.close(ours)


async def test_each_question_is_put_once_and_settled():
    """The first is shown alone, a line answers it, and nothing is open after the second."""
    async with desk() as at:
        running = asyncio.ensure_future(at.session.run("go"))
        await until(lambda: at.board.prompts)
        assert ["? Which a?", "  1. red"] == at.board.shown[:2]
        assert not any("Which b?" in line for line in at.board.shown)
        os.write(at.write, b"1\nsomething\n")
        assert "done" == (await running).last_message
        await at.prompting.settled()
        assert (1, 0) == (sum("Which b?" in line for line in at.board.shown), at.board.prompts)


async def test_what_is_over_is_not_shown():
    """A question that was settled before its turn came is dropped without a word, as is one of an unknown session."""
    options = (Option("red"),)
    async with desk() as at:
        for session in ("s", "nowhere"):
            stale = QuestionAsked("9.x", "x", 9, "ask", "", "Stale?", options)
            at.prompting.taking(lambda item: None)(Envelope(session, 7, 0, 9, stale))
        await asyncio.wait_for(at.prompting.settled(), 5)
        assert ([], 0) == (at.board.shown, at.board.prompts)


async def test_what_cannot_be_dismissed_ends_with_its_turn():
    """Where a plugin breaks over every answer and nobody is left to give one, the turn is interrupted: no hang."""

    def breaks(*_: Any) -> Any:
        raise RuntimeError("a bug of the plugin's")

    async with desk(attrs.evolve(ask_plugin(default_mode=True), answered=breaks)) as at:
        running = asyncio.ensure_future(at.session.run("go"))
        await until(lambda: at.board.prompts)
        os.write(at.write, b"1\n")
        await until(lambda: any("a bug of the plugin's" in line for line in at.board.shown))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, at.write)  # nobody writes any more
        os.close(null)
        assert "interrupted" == (await running).cause


async def test_nothing_is_put_after_leaving():
    """The prompt goes, and no other comes, while what was asked is still open."""
    async with desk() as at:
        await at.session.submit("go")
        await until(lambda: at.board.prompts)
        at.prompting.leave()
        await until(lambda: not at.board.prompts)
        await at.prompting.settled()
        assert 2 == len(at.session.state()["questions"])
        assert not any("Which b?" in line for line in at.board.shown)
        await at.session.interrupt()


async def test_a_bug_in_here_is_not_silent():
    """Where a board breaks, whoever runs the program is told, and the error is raised at the end."""
    told: list[bool] = []

    async def broken() -> None:
        async with desk(on_broken=lambda: told.append(True)) as at:
            at.board.prompt = lambda: 1 // 0  # type: ignore[method-assign,assignment]
            await at.session.submit("go")
            await until(lambda: told)

    with pytest.raises(ZeroDivisionError):
        await broken()


async def test_lines_stand_above_a_prompt():
    """While people type, lines take the prompt's place, and it stands below them again; without a terminal none is."""
    stream = io.StringIO()
    screen = Screen(Output(stream, moves=True, threaded=False))
    screen.prompt()
    screen.prompt()
    screen.lines(["news"])
    screen.prompted()
    screen.prompted()
    assert f"{MARK}{CLEAR_LINE}news\n{MARK}{CLEAR_LINE}" == stream.getvalue()
    plain = io.StringIO()
    quiet = Screen(Output(plain, threaded=False))
    quiet.prompt()
    quiet.lines(["news"])
    quiet.prompted()
    assert "news\n" == plain.getvalue()


async def test_the_picture_makes_room_for_a_prompt():
    """It is not drawn while people type, is back afterwards, and is gone for good after the stop."""
    stream, drawn = io.StringIO(), list[int]()
    screen = Screen(Output(stream, moves=True, threaded=False))

    def draw(width: int, height: int) -> Text:
        drawn.append(width)
        return Text("picture")

    screen.start(draw)
    await until(lambda: len(drawn) > 1)
    screen.prompt()
    before = len(drawn)
    await asyncio.sleep(0.25)
    assert before == len(drawn)
    screen.prompted()
    await until(lambda: len(drawn) > before)
    screen.prompt()
    screen.stop()
    after = len(drawn)
    await asyncio.sleep(0.25)
    assert after == len(drawn)
