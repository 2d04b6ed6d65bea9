"""Verbs that plugins take part in: answers, approvals, commands, hand-overs; what each writes and answers."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from callboard.actors.answered import answered, record
from callboard.actors.asked import APPROVALS, QUESTIONS, flaw_of
from callboard.actors.books import PARKED, TURN
from callboard.actors.claim import STARTS_AS_USER
from callboard.actors.dues import new_input
from callboard.actors.eventlog import LOGGER, EventLog
from callboard.actors.events import Event, MessageQueued, QueueParked
from callboard.actors.facts import AnswerEnding, ApprovalDecided, PlanHandedOver, QuestionAnswered, QuestionAsked
from callboard.actors.messages import (
    Accepted,
    Answer,
    AnswerQuestion,
    Approve,
    HandedOver,
    Plugged,
    Refused,
    Told,
    UseCommand,
)
from callboard.actors.receipts import clean_text
from callboard.actors.results import describe
from callboard.actors.seen import SEEN
from callboard.actors.view import CallView, Scene

Decision: TypeAlias = tuple[tuple[Event, ...], Answer]

GONE = "question {id!r:.200} is not open: it was settled, or never asked"
NO_REQUEST = "no call {id!r:.200} waits for approval: it was settled, or never asked"
NO_COMMAND = "this runtime has no command /{name:.80}"


def decide(scene: Scene, letter: Plugged) -> Decision:
    """What it writes and answers; an id that was answered before writes nothing and is answered the same."""
    log = scene.log
    again = answered(log[SEEN], letter)
    if again is not None:
        return (), again
    match letter:
        case AnswerQuestion():
            events, answer = _answer(scene, letter)
        case Approve():
            events, answer = _approve(scene, letter)
        case UseCommand():
            events, answer = _command(scene, letter)
        case HandedOver():
            events, answer = (PlanHandedOver(letter.plan, letter.session),), Accepted(log.seq)
    return (*events, *record(letter, answer)), answer


def _answer(scene: Scene, letter: AnswerQuestion) -> Decision:
    log = scene.log
    asked = next((one for one in log[QUESTIONS] if one.id == letter.question), None)
    if asked is None or _ending(log, asked.turn):
        return (), Refused("not_pending", GONE.format(id=letter.question))
    flaw = flaw_of(asked, letter.choices, letter.text)
    if flaw is not None:
        return (), Refused("invalid_answer", f"question {asked.id!r} stays open: {clean_text(flaw)}")
    text = None if letter.text is None else clean_text(letter.text)
    ending: AnswerEnding = "answered" if letter.choices or text is not None else "dismissed"
    settled = QuestionAnswered(asked.id, ending, letter.choices, text)
    try:
        return _written(log, (settled, *_brought(scene, asked, settled)))
    except Exception as error:  # a plugin's bug must not take the session down with it
        LOGGER.exception("session %s: plugin %s failed over an answer", log.session, asked.by)
        return (), Refused("invalid_answer", f"question {asked.id!r} stays open: {clean_text(describe(error))}")


def _brought(scene: Scene, asked: QuestionAsked, settled: QuestionAnswered) -> Sequence[Event]:
    """What the plugin that asked makes of the answer."""
    for plugin in scene.stage.plugins:
        if plugin.name == asked.by and plugin.answered is not None:
            with CallView(scene) as view:
                return tuple(plugin.answered(view, asked, settled))
    return ()


def _approve(scene: Scene, letter: Approve) -> Decision:
    log, waiting = scene.log, scene.log[APPROVALS]
    asked = next((one for one in waiting if one.id == letter.call), None) or next(
        (one for one in waiting if one.call == letter.call), None
    )
    if asked is None or _ending(log, asked.turn):
        return (), Refused("not_pending", NO_REQUEST.format(id=letter.call))
    feedback = None if letter.feedback is None else clean_text(letter.feedback)
    decided = ApprovalDecided(asked.id, letter.decision, feedback)
    try:
        with CallView(scene) as view:
            told = [one.approved(view, asked, decided) for one in scene.stage.plugins if one.approved is not None]
        return _written(log, (decided, *(event for events in told for event in events)))
    except Exception as error:  # a plugin's bug must not take the session down with it
        LOGGER.exception("session %s: a plugin failed over an approval", log.session)
        return (), Refused("invalid_answer", f"approval {asked.id!r} stays open: {clean_text(describe(error))}")


def _ending(log: EventLog, turn: int) -> bool:
    """Whether the turn that asked is being cut off: what it asked is settled by its end."""
    return log[TURN].open and log[TURN].number == turn and log[TURN].cause is not None


def _command(scene: Scene, letter: UseCommand) -> Decision:
    command = scene.stage.commands.get(letter.name)
    if command is None:
        return (), Refused("unsupported", NO_COMMAND.format(name=letter.name))
    try:
        with CallView(scene) as view:
            done = command.run(view, letter.argument)
        if isinstance(done, Refused):
            return (), done
        events, accepted = _written(scene.log, done.events)
    except Exception as error:  # a plugin's bug must not take the session down with it
        LOGGER.exception("session %s: command %s failed", scene.log.session, command.name)
        return (), Refused("invalid_command", f"/{command.name} failed: {clean_text(describe(error))}")
    answer = Told(clean_text(done.answer)) if isinstance(done.answer, str) else done.answer
    return events, accepted if answer is None else answer


def _written(log: EventLog, events: Sequence[Event]) -> Decision:
    """The events, their messages numbered; behind the release of a parked queue where the user speaks with them."""
    speaks = any(isinstance(event, MessageQueued) and event.source in STARTS_AS_USER for event in events)
    release = (QueueParked(parked=False),) if speaks and log[PARKED] else ()
    written = tuple(_placed(log, len(release), events))
    log.rehearse((*release, *written))  # what cannot be written is found here, where its author is told
    return (*release, *written), Accepted(log.seq - 1 + len(release) + len(written))


def _placed(log: EventLog, after: int, events: Sequence[Event]) -> Iterator[Event]:
    for event in new_input(log, events):
        yield msgspec.structs.replace(event, seq=event.seq + after) if isinstance(event, MessageQueued) else event
