"""What tests of reminders share: a model that makes the calls it is told to, and what came of them."""

import json
from typing import Any

from callboard.actors.events import Call, Event, MessageQueued, ToolReturned
from callboard.actors.facts import Reminder, ReminderFired, ReminderSet
from callboard.actors.model import Prompt, Reply
from callboard.actors.testing import LabSession, ScriptedModel
from callboard.plugins.reminders import SCHEDULE

from .strict import of_kind

HOUR_S = 3600


class Asked:
    """A model whose next turn makes the calls in `next`; else it says `ok`."""

    def __init__(self) -> None:
        self.next: list[Call] = []
        self.model = ScriptedModel(self._reply)

    def _reply(self, prompt: Prompt) -> Reply:
        calls, self.next = self.next, []
        return Reply("ok", calls)

    async def use(self, session: LabSession, name: str, arguments: Any = None) -> Any:
        """Have the tool called in a turn; what the model reads, decoded where it is JSON."""
        (text,) = await self.use_all(session, Call(name, arguments or {}))
        return text

    async def use_all(self, session: LabSession, *calls: Call) -> list[Any]:
        """The same for several calls of one answer."""
        self.next = list(calls)
        before = len(of_kind(records(session), ToolReturned))
        await session.run("go on")
        texts = [one.text for one in of_kind(records(session), ToolReturned)[before:]]
        return [json.loads(text) if text[:1] in "{[" else text for text in texts]


def records(session: LabSession) -> list[Event]:
    """All that is in the store of a session."""
    stage = session.actor.stage
    return [stage.codec.decode(record.body) for record in stage.store.read(session.actor.id, -1, 100_000)]


def told(session: LabSession) -> list[str]:
    """The ids of the reminders that were queued as messages."""
    return [one.id for one in of_kind(records(session), MessageQueued) if one.source == "schedule"]


def fired(session: LabSession) -> list[tuple[str, int]]:
    """The ids and occurrences of what was fired."""
    return [(one.id, one.at_ms) for one in of_kind(records(session), ReminderFired)]


def active(session: LabSession) -> list[str]:
    """The ids of what is active."""
    return [one.id for one in session.state(SCHEDULE).active]


def once(number: int, due_ms: int, created_ms: int = 0) -> ReminderSet:
    """A one-shot."""
    return ReminderSet(Reminder(f"schedule-{number}", "after", f"once {number}", "60", due_ms, created_ms))


def hourly(number: int, due_ms: int, created_ms: int = 0) -> ReminderSet:
    """One that is due each hour."""
    return ReminderSet(Reminder(f"schedule-{number}", "every", f"hourly {number}", "3600", due_ms, created_ms))
