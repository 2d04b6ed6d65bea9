"""One scripted turn, and a hand that does something at any of its steps: between any two await points there is one."""

from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import attrs
import trio

from callboard.actors.books import HISTORY, TURN
from callboard.actors.events import Call, Event, TurnEnded
from callboard.actors.fold import Projection
from callboard.actors.messages import Ask, Submit
from callboard.actors.model import Prompt, Reply
from callboard.actors.plugin import Enter, Hook, Message, Partial, Plugin, ToolCall, ToolResult, View
from callboard.actors.testing import Lab, LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .disks import Disk
from .strict import check_history, check_log

FLUSH_S = 0.01
Make: TypeAlias = Callable[[Callable[[Any], None]], Ask]  # a message, by who takes its answer


class Ticked(Event, frozen=True):
    """What the control tool of this file writes."""

    call: str


TICKS: Projection[int] = Projection("ticks", 0, lambda ticks, _: ticks + 1, on=(Ticked,))


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks while it is on, and calls `at` before each, with its number from 1."""

    def __init__(self, at: Callable[[int], None]) -> None:
        self._at, self.count, self.on = at, 0, False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """(Trio) A task runs next."""
        if self.on and "pump" not in task.name:
            self.count += 1
            self._at(self.count)


@attrs.define(eq=False)
class Played:
    """What came of one play."""

    session: LabSession
    records: Sequence[Event]
    ended: TurnEnded
    steps: int  # until its end is on the log
    all_steps: int  # until its end is on the disk and told
    answers: Sequence[Any]  # of the hands, in their order; None for one that came after the end


class Play:
    """A turn of three model requests: tools side by side, a tool alone, a control tool, a graceful one, hooks, a gate.

    Everything waits somewhere, and the disk takes 10 ms to confirm.
    """

    def __init__(self, *hands: tuple[int, Make]) -> None:
        """Each hand is the number of a step, and what is told to the session before it."""
        self._hands = hands
        self.running: list[str] = []  # foreign code that runs now
        self.answers: list[Any] = [None] * len(hands)
        self.steps = 0

    @asynccontextmanager
    async def _in(self, name: str) -> Any:
        self.running.append(name)
        try:
            yield
        finally:
            self.running.remove(name)

    def _tools(self) -> list[Any]:
        @tool(parallel=True)
        async def side(seconds: float) -> str:
            """Beside others; cleans up for 20 ms."""
            async with self._in("side"):
                try:
                    for _ in range(3):
                        await trio.sleep(seconds / 3)
                finally:
                    with trio.move_on_after(0.02, shield=True):
                        await trio.sleep_forever()
                return "side"

        @tool
        async def alone() -> str:
            """Alone."""
            async with self._in("alone"):
                await trio.sleep(0.02)
                return "alone"

        @tool(graceful=True)
        async def gentle(view: View) -> Any:
            """Returns what it has when it is told."""
            async with self._in("gentle"):
                with trio.move_on_after(0.03):
                    await view.interrupted.wait()
                    return Partial("a part")
                return "whole"

        @tool(control=True, effect="none")
        async def tick(view: View) -> str:
            """A control tool."""
            async with self._in("tick"):
                view.append(Ticked(view.call))
                await trio.sleep(0.005)
                return "ticked"

        return [side, alone, gentle, tick]

    def _reply(self, prompt: Prompt) -> Reply:
        if prompt.turn > 1:
            return Reply("and on")
        match prompt.step:
            case 1:
                sides = [Call("side", {"seconds": 0.01 * n}) for n in (1, 2, 3)]
                return Reply("let me look", [*sides, Call("tick")])
            case 2:
                return Reply("once more", [Call("alone"), Call("gentle")])
            case _:
                return Reply("it is done")

    async def _before_step(self, view: View, messages: tuple[Message, ...]) -> Enter:
        async with self._in("gate"):
            await trio.sleep(0.004)
            return Enter(messages)

    async def _before_tool(self, call: ToolCall) -> None:
        async with self._in("before"):
            await trio.sleep(0.003)

    async def _after_tool(self, call: ToolCall, result: ToolResult) -> None:
        async with self._in("after"):
            await trio.sleep(0.003)

    async def run(self) -> Played:
        """Play it to the end of the first turn, then one more turn, and check what must hold in any case."""
        disk, hook = Disk(), Hook("look", before_tool=self._before_tool, after_tool=self._after_tool)
        plugin = Plugin("gate", events=(Ticked,), projections=(TICKS,), before_step=self._before_step)
        model = ScriptedModel(self._reply, delay_s=0.03)
        async with open_lab(model, tools=self._tools(), plugins=[plugin], hooks=[hook], store=disk) as lab:
            session = await lab.session()
            steps = Steps(lambda number: self._hand(session, number))
            disk.stall()
            lab.stage.nursery.start_soon(self._pump, disk, name="pump")
            trio.lowlevel.add_instrument(steps)
            session.actor.log.watch(lambda: self._look(session, steps))
            steps.on = True
            session.actor.tell(Submit("go", "first"))
            ended = await session.wait(1)
            assert ended is not None
            trio.lowlevel.remove_instrument(steps)
            await session.wait_idle()
            played = await self._after(lab, session, ended, steps.count)
            disk.go()
        return played

    def _hand(self, session: LabSession, number: int) -> None:
        for place, (at, make) in enumerate(self._hands):
            if at == number:
                letter: Any = make(partial(self.answers.__setitem__, place))
                session.actor.tell(letter)

    def _look(self, session: LabSession, steps: Steps) -> None:
        """Its end is on the log: nothing of it may run, whatever the disk says."""
        if self.steps == 0 and session.state(TURN).number == 1 and not session.state(TURN).open:
            self.steps = steps.count
            assert not self.running, f"{self.running} still run"

    async def _pump(self, disk: Disk) -> None:
        while True:
            await trio.sleep(FLUSH_S)
            disk.go()
            disk.stall()

    async def _after(self, lab: Lab, session: LabSession, ended: TurnEnded, count: int) -> Played:
        check_log(lab.records())
        check_history(session.state(HISTORY).messages)
        assert not self.running, f"{self.running} still run"
        assert ended.abort_s is None or ended.abort_s <= 0.1 + 1e-6
        played = Played(session, lab.records(), ended, self.steps, count, self.answers)
        again = await session.run("more")
        assert (again.reason, again.last_message) == ("completed", "and on")
        check_history(session.state(HISTORY).messages)
        told = [at <= count for at, _ in self._hands]
        assert [answer is not None for answer in self.answers] == told, "a verb was never answered"
        return played
