"""Awaited: what a call waits for on its session's log: anything appended, an answer of the user, an approval."""

from collections.abc import Callable
from typing import Any

import trio

from callboard.actors.asked import ANSWERS, APPROVALS, QUESTIONS
from callboard.actors.books import TURN
from callboard.actors.errors import LogError
from callboard.actors.eventlog import LOGGER, EventLog
from callboard.actors.events import Cause, Event
from callboard.actors.facts import ApprovalAsked, ApprovalDecided, QuestionAnswered, QuestionAsked
from callboard.actors.fold import Projection

OPEN_CAUSES = ("shutdown",)  # ends of a turn after which its questions are asked again, as after a crash


async def until(log: EventLog, met: Callable[[], bool]) -> None:
    """(Trio) Return once `met()` is true, asked again after each append to the log."""
    if met():
        await trio.lowlevel.checkpoint()
        return
    appended, failures = trio.Event(), []

    def look() -> None:
        try:
            if met():
                appended.set()
        except Exception as error:  # it is the waiter's, not the appender's
            failures.append(error)
            appended.set()

    log.watch(look)
    try:
        await appended.wait()
    finally:
        log.unwatch(look)
    if failures:
        raise failures[0]


async def answer_to(log: EventLog, asked: QuestionAsked) -> QuestionAnswered:
    """(Trio) Ask a question, durable first, and wait for its one end; who stops waiting takes it back."""
    end = await _settled(log, asked, QUESTIONS, QuestionAnswered(asked.id, "cancelled"))
    assert isinstance(end, QuestionAnswered)
    return end


async def decision_on(log: EventLog, asked: ApprovalAsked) -> ApprovalDecided:
    """(Trio) Ask for an approval, durable first, and wait for its one end; who stops waiting takes it back."""
    end = await _settled(log, asked, APPROVALS, ApprovalDecided(asked.id, "cancelled"))
    assert isinstance(end, ApprovalDecided)
    return end


async def _settled(
    log: EventLog, asked: QuestionAsked | ApprovalAsked, waiting: Projection[Any], back: Event
) -> QuestionAnswered | ApprovalDecided:
    def end() -> QuestionAnswered | ApprovalDecided | None:
        return next((one for one in log[ANSWERS] if one.id == asked.id), None)

    if end() is None and not any(one.id == asked.id for one in log[waiting]):
        log.append(asked)
    try:
        await log.flush()
        await until(log, lambda: end() is not None)
    finally:
        turn = log[TURN]
        if end() is None and turn.open and turn.cause is None:  # in an abort the turn's end says what becomes of it
            try:
                log.append(back)
            except LogError as error:
                LOGGER.warning("session %s: a question is not taken back: %s", log.session, error)
    settled = end()
    assert settled is not None
    return settled


def taken_back(log: EventLog, cause: Cause | None) -> tuple[Event, ...]:
    """At the end of a turn: the questions that it leaves open, cancelled; after a shutdown they stay."""
    if cause in OPEN_CAUSES:
        return ()
    number = log[TURN].number
    questions = (QuestionAnswered(one.id, "cancelled") for one in log[QUESTIONS] if one.turn == number)
    approvals = (ApprovalDecided(one.id, "cancelled") for one in log[APPROVALS] if one.turn == number)
    return (*questions, *approvals)
