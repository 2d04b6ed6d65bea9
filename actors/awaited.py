"""Awaited: what a call waits for on its session's log: anything appended, an answer of the user, an approval."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import trio

from callboard.actors.asked import ANSWERS, APPROVALS, QUESTIONS
from callboard.actors.books import TURN
from callboard.actors.errors import Dropped, LogError
from callboard.actors.eventlog import LOGGER, EventLog
from callboard.actors.events import Cause, Event
from callboard.actors.facts import ApprovalAsked, ApprovalDecided, QuestionAnswered, QuestionAsked
from callboard.actors.fold import Projection

Given: TypeAlias = dict[str, QuestionAnswered | ApprovalDecided]
End = TypeVar("End", QuestionAnswered, ApprovalDecided)

OPEN_CAUSES = ("shutdown",)  # ends of a turn after which its questions are asked again, as after a crash


def _no_others() -> Iterable[EventLog]:
    return ()


async def until(log: EventLog, met: Callable[[], bool], others: Callable[[], Iterable[EventLog]] = _no_others) -> None:
    """(Trio) Return once `met()` is true, asked again after each append to the log, and to what `others` there are."""
    if met():
        await trio.lowlevel.checkpoint()
        return
    appended, failures, watched = trio.Event(), list[BaseException](), {id(log): log}

    def look() -> None:
        try:
            if met():
                appended.set()
            else:
                follow()
        except (Exception, Dropped) as error:  # it is the waiter's, not the appender's
            failures.append(error)
            appended.set()

    def follow() -> None:
        for other in others():
            if watched.setdefault(id(other), other) is other and other is not log:
                other.unwatch(look)
                other.watch(look)

    log.watch(look)
    try:
        follow()
        await appended.wait()
    finally:
        for one in watched.values():
            one.unwatch(look)
    if failures:
        raise failures[0]


def given_before(log: EventLog) -> Given:
    """What the user has answered in this turn by now: for calls that a crash cut off, and that ask it again."""
    return {one.id: one for one in log[ANSWERS] if _said(one)}


def _said(end: QuestionAnswered | ApprovalDecided) -> bool:
    return (end.ending if isinstance(end, QuestionAnswered) else end.decision) not in ("cancelled", "unavailable")


async def answers_to(
    log: EventLog, asked: Sequence[QuestionAsked], stands: Callable[[], bool], given: Given
) -> tuple[QuestionAnswered, ...]:
    """(Trio) Ask questions in one write, durable first, and wait for the one end of each, in their order.

    Who stops waiting takes back those that are open, if the turn still `stands`. What is open already, since before a
    crash, is not asked twice; what was answered before it is taken from `given`.
    """
    ends = await _settled(log, asked, QUESTIONS, QuestionAnswered, stands, given)
    return tuple(ends[one.id] for one in asked)


async def decision_on(log: EventLog, asked: ApprovalAsked, stands: Callable[[], bool], given: Given) -> ApprovalDecided:
    """(Trio) Ask for an approval, durable first, and wait for its one end; who stops waiting takes it back."""
    ends = await _settled(log, (asked,), APPROVALS, ApprovalDecided, stands, given)
    return ends[asked.id]


async def _settled(
    log: EventLog,
    asked: Sequence[QuestionAsked | ApprovalAsked],
    waiting: Projection[Any],
    kind: type[End],
    stands: Callable[[], bool],
    given: Given,
) -> dict[str, End]:
    ids, before, open_ = {one.id for one in asked}, len(log[ANSWERS]), {one.id for one in log[waiting]}
    known: dict[str, End] = {}
    for id_ in ids - open_:
        end = given.pop(id_, None)
        if isinstance(end, kind):
            known[id_] = end

    def ends() -> dict[str, End]:
        """Of these, and no older ones: what was answered before they were asked is about something else."""
        now = {one.id: one for one in log[ANSWERS][before:] if isinstance(one, kind) and one.id in ids}
        return {**known, **now}

    if new := [one for one in asked if one.id not in open_ and one.id not in known]:
        log.append(*new)
    try:
        await log.flush()
        await until(log, lambda: len(ends()) == len(ids))
    finally:
        turn, left = log[TURN], [one.id for one in log[waiting] if one.id in ids]
        if left and turn.open and turn.cause is None and stands():  # else the turn's end says what becomes of them
            try:
                log.append(*(kind(id_, "cancelled") for id_ in left))
            except LogError as error:
                LOGGER.warning("session %s: a question is not taken back: %s", log.session, error)
    return ends()


def taken_back(log: EventLog, cause: Cause | None) -> tuple[Event, ...]:
    """At the end of a turn: the questions that it leaves open, cancelled; after a shutdown they stay."""
    if cause in OPEN_CAUSES:
        return ()
    number = log[TURN].number
    questions = (QuestionAnswered(one.id, "cancelled") for one in log[QUESTIONS] if one.turn == number)
    approvals = (ApprovalDecided(one.id, "cancelled") for one in log[APPROVALS] if one.turn == number)
    return (*questions, *approvals)
