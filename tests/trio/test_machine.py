"""The whole machine at random: whatever meets whatever, every promise holds afterwards; and what that has found.

The seeds here take some seconds; `python -m tests.trio.machine --runs 10000` takes longer.
"""

from collections.abc import Sequence

import pytest
import trio

from callboard.actors.books import HISTORY
from callboard.actors.codec import Codec
from callboard.actors.errors import LogError
from callboard.actors.events import Call, ToolReturned
from callboard.actors.messages import Stopped
from callboard.actors.model import Reply, Result
from callboard.actors.phase import Phase
from callboard.actors.store import Due, Header, Record
from callboard.actors.testing import ScriptedModel, open_lab, seeded_run
from callboard.actors.tool import tool

from .disks import Disk
from .machine import machine
from .strict import check_history, check_log, of_kind

SEEDS_MAX = 240
BLOCKS = 4


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_promise_holds_whatever_meets_whatever(block):
    """Turns end once, calls have one result, messages one fate, verbs an answer; replay and metrics say the same."""
    seeds = range(block, SEEDS_MAX, BLOCKS)
    assert seeded_run(machine, seeds) == len(seeds)


class Refusing(Disk):
    """Refuses the first write that holds a result."""

    refused = False

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        """Take records, or not."""
        if not self.refused and any(type(Codec().decode(record.body)) is ToolReturned for record in records):
            self.refused = True
            raise LogError("the disk is full")
        super().append(session, records, header, due)


@tool(parallel=True)
async def wait(seconds: float) -> str:
    """Waits."""
    await trio.sleep(seconds)
    return f"waited {seconds:g}"


@pytest.mark.parametrize("longest", [0, 1, 2])
async def test_a_result_that_the_store_refused_keeps_its_place(longest):
    """It is owed until it is written: first the refused one, then those behind it, each once and in the order asked."""
    calls = [Call("wait", {"seconds": 2.0 if at == longest else 1.0}, f"c{at}") for at in range(3)]
    async with open_lab(ScriptedModel([Reply("", calls), Reply("on")]), tools=[wait], store=Refusing()) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.reason, ended.error) == ("completed", "the store refused: the disk is full")
        results = [m for m in session.state(HISTORY).messages if isinstance(m, Result)]
        assert ["c0", "c1", "c2"] == [result.call for result in results]
        assert "waited" in results[0].text
        assert (await session.run("more")).last_message == "on"
        check_history(session.state(HISTORY).messages)
        check_log(lab.records())
        assert len(of_kind(lab.records(), ToolReturned)) == 3


class Full(Disk):
    """Refuses everything while it is told to, a number of times."""

    refusals = 0

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        """Take records, or not."""
        if self.refusals:
            self.refusals -= 1
            raise LogError("the disk is full")
        super().append(session, records, header, due)


@pytest.mark.parametrize("turns", [True, False])
async def test_a_stop_outlives_a_crash(turns):
    """A session that was asked to stop, and whose actor then crashed over its books, stops once it runs again."""
    disk = Full()
    calls = [Reply("", [Call("wait", {"seconds": 100})])] if turns else []
    async with open_lab(ScriptedModel(calls), tools=[wait], store=disk) as lab:
        session = await lab.session(restarts_max=3)
        if turns:
            await session.submit("go")
            await trio.sleep(1)
        disk.refusals = 2
        with trio.fail_after(60):
            assert isinstance(await session.stop(), Stopped)
        assert session.actor.phase is Phase.STOPPED
        assert bool(session.crashes) == turns
        disk.refusals = 0
        check_log(lab.records())
