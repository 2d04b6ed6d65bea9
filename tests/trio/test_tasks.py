"""Replace, edit, and tasks by their name, in every phase of a session."""

from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY, PARKED, QUEUE, TURN
from callboard.actors.errors import SessionClosed
from callboard.actors.events import MessageQueued
from callboard.actors.messages import (
    Accepted,
    Compact,
    Edit,
    Edited,
    Replace,
    ResumeQueue,
    Review,
    SetMode,
    Shell,
    Submit,
    Withdraw,
)
from callboard.actors.model import Reply
from callboard.actors.phase import Phase
from callboard.actors.plugin import Enter, Message, Plugin, View
from callboard.actors.stage import Limits
from callboard.actors.testing import LabSession, ScriptedModel, open_lab, seeded_run

from .disks import Disk
from .strict import check_history, check_log, of_kind, until
from .tasked import ask, ends, nap, napping, said

# -- replace


async def test_replace_in_each_phase():
    """Idle it starts; running it ends the turn as replaced and is the next; while one ends it is the next as well."""
    async with open_lab(napping(), tools=[nap]) as lab:
        session = await lab.session()
        assert Accepted(1, 1) == await ask(session, Replace, "idle")
        await trio.sleep(1)
        await session.submit("queued")
        first = await ask(session, Replace, "running")
        assert (2, Phase.ABORTING) == (first.turn, session.actor.phase)
        second = await ask(session, Replace, "aborting")
        assert 2 == second.turn
        await session.wait_idle()
        assert ["idle", "running", "aborting", "queued"] == said(session)
        assert [(1, "aborted", "replaced"), (2, "completed", None), (3, "completed", None)] == ends(session, lab)
        assert (False, ()) == (session.state(PARKED), session.state(QUEUE))
        check_history(session.state(HISTORY).messages)
        await session.stop()
        with pytest.raises(SessionClosed):
            await ask(session, Replace, "stopped")
        check_log(lab.records())


async def test_replace_while_the_end_is_flushed():
    """A turn that waits only for the disk is over: nothing is aborted, and the text starts the next turn."""
    disk = Disk()
    async with open_lab(napping(1), tools=[nap], store=disk, limits=Limits(flush_stall_s=1.0)) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(0.5)
        disk.stalled = True
        await until(lambda: not session.state(TURN).open)
        answers: list[Any] = []
        session.actor.tell(Replace("next", reply=answers.append))
        await trio.sleep(2)
        assert Phase.RUNNING is session.actor.phase
        late: tuple[tuple[type[Any], tuple[Any, ...]], ...] = (
            *((Replace, ("late",)), (Shell, ("late",)), (Withdraw, ("x",)), (Edit, ("x", "y"))),
            *((ResumeQueue, ()), (SetMode, (True,))),
        )
        for letter, given in late:
            assert "store_stalled" == (await ask(session, letter, *given)).reason
        disk.stalled = False
        disk.go()
        await session.wait_idle()
        assert [2] == [answer.turn for answer in answers]
        assert [(1, "completed", None), (2, "completed", None)] == ends(session, lab)


async def test_a_storm_of_replaces_is_one_turn():
    """Many at once end the turn once; all their texts enter the next one in order, and each has its turn's number."""
    async with open_lab(napping(), tools=[nap]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        answers: list[Any] = []
        for n in range(20):
            session.actor.tell(Replace(f"r{n}", reply=answers.append))
        await session.wait_idle()
        assert {2} == {answer.turn for answer in answers}
        assert ["go", *(f"r{n}" for n in range(20))] == said(session)
        assert [(1, "aborted", "replaced"), (2, "completed", None)] == ends(session, lab)


async def test_replace_comes_before_what_is_parked():
    """After an interrupt the queue waits; a text that replaces goes first, and then what was parked follows."""
    async with open_lab(napping(1), tools=[nap]) as lab:
        session = await lab.session()
        await session.submit("go")
        await session.submit("later")
        await trio.sleep(0.5)
        await session.interrupt()
        await session.wait_idle()
        assert session.state(PARKED)
        assert 2 == (await ask(session, Replace, "first")).turn
        await session.wait_idle()
        assert (["go", "first", "later"], False) == (said(session), session.state(PARKED))


async def test_submit_never_replaces():
    """The turn that runs goes on whatever is submitted, and so does an automatic start: it waits for its end."""
    async with open_lab(napping(1), tools=[nap]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(0.5)
        await session.submit("more")
        await session.submit("mail", source="agent:/root/a")
        await session.wait_idle()
        assert {"completed"} == {reason for _, reason, _ in ends(session, lab)}


SEEDS_MAX = 40


def test_replaces_at_any_moment_lose_nothing():
    """Replaces, interrupts and submits in any order: every text is in history or queued, once, and every turn ends."""

    async def story() -> None:
        async with open_lab(napping(0.05), tools=[nap]) as lab:
            session = await lab.session()
            accepted: list[str] = []
            async with trio.open_nursery() as nursery:
                for n in range(9):
                    nursery.start_soon(one, session, n, accepted)
            await session.resume_queue()
            await session.wait_idle()
            assert sorted(accepted) == sorted([*said(session), *(m.text for m in session.state(QUEUE))])
            check_log(lab.records())
            check_history(session.state(HISTORY).messages)

    async def one(session: LabSession, n: int, accepted: list[str]) -> None:
        await trio.sleep(0.021 * n)
        if n % 3 == 2:
            await session.interrupt()
            return
        answer = await ask(session, Replace if n % 3 else Submit, f"t{n}")
        assert isinstance(answer, Accepted)
        accepted.append(f"t{n}")

    assert SEEDS_MAX == seeded_run(story, range(SEEDS_MAX))


# -- edit


async def test_edit_in_each_phase():
    """What waits reads differently, in its old place; what a turn has claimed, or nobody sent, is not changed."""
    async with open_lab(napping(), tools=[nap]) as lab:
        session = await lab.session()
        claimed = "already_claimed"
        assert claimed == (await ask(session, Edit, "no", "x")).reason
        await session.inject("idle", id="i")
        assert Edited() == await ask(session, Edit, "i", "idle 2")
        assert Phase.IDLE is session.actor.phase
        await session.submit("go", id="g")
        await trio.sleep(1)
        assert claimed == (await ask(session, Edit, "g", "x")).reason
        for name in ("a", "b"):
            await session.submit(name, id=name)
        assert Edited() == await ask(session, Edit, "a", "a 2")
        await session.interrupt()
        assert Edited() == await ask(session, Edit, "b", "b 2")
        assert ["a 2", "b 2"] == [m.text for m in session.state(QUEUE)]
        await session.wait_idle()
        assert Edited() == await ask(session, Edit, "a", "a 3")
        await session.resume_queue()
        await session.wait_idle()
        assert ["idle 2", "go", "a 3", "b 2"] == said(session)
        await session.stop()
        with pytest.raises(SessionClosed):
            await ask(session, Edit, "a", "x")


async def test_edit_while_a_plugin_looks_at_the_message():
    """A message that is edited while it is about to be claimed enters as it reads then."""

    async def thinks(view: View, messages: tuple[Message, ...]) -> Enter:
        await trio.sleep(1)
        return Enter(messages)

    async with open_lab(ScriptedModel([Reply("ok")]), plugins=[Plugin("gate", before_step=thinks)]) as lab:
        session = await lab.session()
        await session.submit("old", id="a")
        await trio.sleep(0.5)
        assert Edited() == await ask(session, Edit, "a", "new")
        await session.wait_idle()
        assert (["new"], ["completed"]) == (said(session), [reason for _, reason, _ in ends(session, lab)])


# -- tasks that this runtime does not have


@pytest.mark.parametrize(("letter", "given"), [(Compact, ""), (Review, "x"), (Shell, "ls")])
async def test_a_task_that_is_not_there_is_refused(letter, given, monkeypatch):
    """It is refused before anything happens: the turn that runs goes on, and nothing is queued."""
    monkeypatch.setattr("callboard.actors.starts.TASKS", {"": None})
    async with open_lab(napping(1), tools=[nap]) as lab:
        session = await lab.session()
        assert "unsupported" == (await ask(session, letter, given)).reason
        monkeypatch.undo()
        await session.submit("go")
        await trio.sleep(0.5)
        monkeypatch.setattr("callboard.actors.starts.TASKS", {"": None})
        assert "unsupported" == (await ask(session, letter, given)).reason
        monkeypatch.undo()
        await session.wait_idle()
        assert ([(1, "completed", None)], 1) == (ends(session, lab), len(of_kind(lab.records(), MessageQueued)))
