"""A program that ends between any two writes of a review: the plan is carried out once, or the question is open."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio.testing

from callboard.actors.asked import QUESTIONS
from callboard.actors.books import HISTORY, PARKED, QUEUE
from callboard.actors.events import ControlCallEnded, MessageQueued, MessagesClaimed
from callboard.actors.facts import PlanApproved, PlanHandedOver, PlanModeSet, QuestionAnswered
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import HandedOver
from callboard.actors.mode import MODE, Mode
from callboard.actors.store import Due, Header, Record
from callboard.actors.testing import Lab, LabSession, open_lab
from callboard.plugins.handovers import HAND_OVER, HANDOVERS
from callboard.plugins.plan_mode import plan_mode_plugin

from .planning import PLAN, answer, plans, presented
from .strict import check_history, check_log, of_kind

ID = "1.t1s1c1.plan-review"
MESSAGE = HAND_OVER.format(plan=PLAN)


class Written(MemoryStore):
    """A memory store that knows what was written together."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[Sequence[Record], Header | None]] = []

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        """Remember it."""
        super().append(session, records, header, due)
        self.writes.append((tuple(records), header))


def heir(writes: Sequence[tuple[Sequence[Record], Header | None]]) -> MemoryStore:
    """A store that has these writes."""
    store = MemoryStore()
    store.open(lambda fn: fn())
    for records, header in writes:
        store.append("s", records, header)
    return store


def hands_over(lab: Lab, taken: list[str]) -> None:
    """Stands for the runtime: it opens the new session, and says so."""

    def hand_over(session: str, plan: str, text: str) -> None:
        if plan not in taken:
            taken.append(plan)
            lab.sessions[session].actor.tell(HandedOver(plan, "new"))

    lab.stage.hand_over = hand_over


async def whole(execution: Any) -> list[tuple[Sequence[Record], Header | None]]:
    """The writes of a review that nothing cuts."""
    store = Written()
    async with open_lab(plans(), plugins=[plan_mode_plugin(execution=execution)], store=store) as lab:
        hands_over(lab, [])
        session = await presented(lab)
        await answer(session, "Approve")
        await session.wait_idle()
        await trio.testing.wait_all_tasks_blocked()
    return store.writes


async def finish(session: LabSession) -> None:
    """What the user does who comes back: answer what is asked, and let go on what waits."""
    if session.state(QUESTIONS):
        await answer(session, "Approve")
    await session.resume_queue()
    await session.wait_idle()
    await trio.testing.wait_all_tasks_blocked()
    await session.wait_idle()


@pytest.mark.parametrize("execution", ["keep", "compact", "clear"])
async def test_a_cut_between_any_two_writes(execution):
    """Opened again, the log has all of an approval or nothing of it, and the plan is carried out exactly once."""
    writes = await whole(execution)
    first = next(n for n in range(len(writes)) if any(b"question_asked" in one.body for one in writes[n][0]))
    assert len(writes) - first > 4
    for cut in range(first + 1, len(writes) + 1):
        taken: list[str] = []
        store = heir(writes[:cut])
        async with open_lab(plans(), plugins=[plan_mode_plugin(execution=execution)], store=store) as lab:
            hands_over(lab, taken)
            session = await lab.session(fresh=False)
            before = lab.records()
            approved, answered = of_kind(before, PlanApproved), of_kind(before, QuestionAnswered)
            assert (cut, len(approved)) == (cut, len(answered))
            assert bool(session.state(QUESTIONS)) is not bool(answered)
            await finish(session)
            check_whole(lab, session, execution)


def check_whole(lab: Lab, session: LabSession, execution: Any) -> None:
    """Approved once, carried out once, out of Plan mode, and nothing left over."""
    events = lab.records()
    assert [PlanApproved(ID, execution, PLAN)] == of_kind(events, PlanApproved)
    assert [PlanModeSet(active=True), PlanModeSet(active=False)] == of_kind(events, PlanModeSet)
    assert Mode() == session.state(MODE)
    assert ((), False, ()) == (session.state(QUEUE), session.state(PARKED), session.state(HANDOVERS))
    queued = [event.text for event in of_kind(events, MessageQueued) if event.source == "plan" and not event.task]
    assert ([] if execution == "clear" else [MESSAGE]) == queued
    claimed = [id_ for event in of_kind(events, MessagesClaimed) for id_ in event.ids]
    assert (execution != "clear") is (f"handover:{ID}" in claimed)
    assert (1 if execution == "clear" else 0) == len(of_kind(events, PlanHandedOver))
    assert 1 == len([event for event in of_kind(events, ControlCallEnded) if event.tool == "exit_plan_mode"])
    check_log(events)
    check_history(session.state(HISTORY).messages)
