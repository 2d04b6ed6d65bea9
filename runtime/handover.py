"""HandOvers: an approved plan becomes the first message of a new session, once, whatever ends in between."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from callboard.actors.asked import PERMISSIONS
from callboard.actors.books import OPENED, PARKED, QUEUE
from callboard.actors.errors import LogError, UsageError
from callboard.actors.events import SessionOpened
from callboard.actors.messages import HandedOver, Refused, ResumeQueue, Submit, UseCommand
from callboard.plugins.handovers import message_id, session_of
from callboard.runtime.registry import Registry
from callboard.runtime.waiting import Pending

LOGGER = logging.getLogger("callboard")
TITLE = "Plan: "
TITLE_MAX_CHARS = 200


class Sessions(Protocol):
    """The sessions of the runtime, as a hand-over needs them."""

    registry: Registry

    async def exists(self, session_id: str) -> bool:
        """Whether the id is taken, here or in the store."""
        ...

    async def create(self, session_id: str, opening: SessionOpened, *, chosen: bool) -> object:
        """A new session, durable."""
        ...

    async def open(self, session_id: str) -> object:
        """The session of that id, live or from the store."""
        ...


class HandOvers:
    """Opens the sessions that carry out plans, beside everything else.

    A plan has one session, by its id, and in it one message, by its id: what a crash cut in two is done again and comes
    to the same. What cannot be done now stays due, and is asked for again when its session rests or is opened.
    """

    def __init__(self, sessions: Sessions, spawn: Callable[..., object]) -> None:
        """`spawn(work, over, name=)` runs async work on Trio, and calls `over(outcome)` at its end."""
        self._sessions, self._spawn = sessions, spawn
        self._under_way: set[tuple[str, str]] = set()

    def begin(self, source: str, plan: str, text: str) -> None:
        """(Trio) Hand a plan of session `source` over, unless that is being done."""
        key = (source, plan)
        if key in self._under_way:
            return
        self._under_way.add(key)

        def over(outcome: Any) -> None:
            self._under_way.discard(key)
            if outcome.error is not None:
                LOGGER.warning("session %s: plan %r is not handed over yet: %s", source, plan, outcome.error)

        self._spawn(partial(self._carry, source, plan, text), over, name=f"hand-over of {source}")

    async def _carry(self, source: str, plan: str, text: str) -> None:
        """(Trio) The session, its message, then the news; each only when the one before is durable."""
        registry, target = self._sessions.registry, session_of(source, plan)
        try:
            await self._there(source, target)
        except UsageError as error:
            LOGGER.error("session %s carries plan %r out itself: %s", source, plan, error)  # noqa: TRY400 - no bug of ours
            await self._told(source, partial(HandedOver, plan, ""))
            return
        await self._permit(source, target, plan)
        await self._told(target, partial(Submit, text, message_id(plan), "plan"))
        log, _ = registry.log(target)
        if log[PARKED] and any(message.id == message_id(plan) for message in log[QUEUE]):
            await self._told(target, ResumeQueue)  # it came from the store, where what is queued waits for its user
        await self._told(source, partial(HandedOver, plan, target))

    async def _there(self, source: str, target: str) -> None:
        """(Trio) Have the session open; a `UsageError` when it can never be."""
        if await self._sessions.exists(target):
            await self._sessions.open(target)
            return
        log, _ = self._sessions.registry.log(source)
        opened = log[OPENED]
        assert opened is not None, "a session that approved a plan is open"
        title = None
        if opened.title is not None:
            title = f"{TITLE}{opened.title.removeprefix(TITLE)}"[:TITLE_MAX_CHARS]
        opening = SessionOpened(root=target, system=opened.system, model=opened.model, title=title)
        await self._sessions.create(target, opening, chosen=True)

    async def _permit(self, source: str, target: str, plan: str) -> None:
        """(Trio) Which calls need an approval there is what it is here, where anybody said so: before any call."""
        log, _ = self._sessions.registry.log(source)
        opened = log[OPENED]
        above = [] if opened is None or opened.parent is None else self._sessions.registry.above(source)
        policy = next((one[PERMISSIONS].policy for one in (log, *above) if one[PERMISSIONS].policy is not None), None)
        if policy is not None:
            await self._told(target, partial(UseCommand, "approvals", policy, f"policy:{plan}"))

    async def _told(self, session_id: str, letter: Callable[..., Any]) -> None:
        """(Trio) Tell a session something, and return once that is durable."""
        pending = Pending()
        self._sessions.registry.tell(session_id, letter(reply=pending.reply))
        answer = await pending.get()
        if isinstance(answer, Refused) and answer.reason != "unsupported":  # without approvals none is asked for
            raise LogError(f"session {session_id!r} refused it: {answer.reason}: {answer.detail}")
