"""A lab whose sessions are told things through a registry, so that they can leave memory and come back."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from callboard.actors.events import TurnEnded
from callboard.actors.messages import Accepted, Ask, Submit, Wake
from callboard.actors.plugin import Plugin
from callboard.actors.session import Session
from callboard.actors.testing import Lab, LabSession, ScriptedModel, open_lab
from callboard.runtime.registry import Registry
from callboard.runtime.waiting import Pending

from .disks import Disk
from .strict import until


class House:
    """A registry over a lab; `loads` are the ids that came back, in order, `held` those that may not leave."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.loads: list[str] = []
        self.held: set[str] = set()
        self.gone: list[str] = []
        self.registry = Registry(
            lab.stage,
            lab.notices.append,
            begin=self._begin,
            holds=lambda actor: actor.id in self.held,
            left=lambda actor: self.gone.append(actor.id),
        )

    def _begin(self, actor: Session) -> None:
        self.loads.append(actor.id)
        self.registry.add(actor)
        self.lab.sessions[actor.id] = LabSession(actor)
        self.lab.stage.nursery.start_soon(actor.run)

    async def session(self, id: str = "s") -> Session:
        """A new session, live."""
        session = await self.lab.session(id)
        await session.wait_idle()
        await session.log.flush()
        self.registry.add(session.actor)
        return session.actor

    def tell(self, id: str, make: Callable[[Callable[[Any], None]], Any]) -> Pending:
        """Tell the message that `make(reply)` returns; what is pending is its answer."""
        pending = Pending()
        self.registry.tell(id, make(pending.reply))
        return pending

    async def ask(self, id: str, make: Callable[[Callable[[Any], None]], Ask]) -> Any:
        """Tell it and wait for the answer."""
        return await self.tell(id, make).get()

    async def submit(self, id: str, text: str, message: str | None = None) -> Accepted:
        """Queue a message."""
        answer: Accepted = await self.ask(id, lambda reply: Submit(text, message, reply=reply))
        return answer

    async def run(self, id: str, text: str) -> TurnEnded:
        """A whole turn."""
        ended: TurnEnded = await self.ask(id, lambda reply: Submit(text, ended=reply))
        return ended

    async def evicted(self, id: str) -> None:
        """Ask it to leave, and return when it has left."""
        self.registry.evict(self.registry.actor(id))
        await until(lambda: self.registry.state(id) == "cold")

    def ring(self, id: str) -> None:
        """What the runtime's alarm does."""
        self.registry.tell(id, Wake())


@asynccontextmanager
async def open_house(
    model: Any = None, *, disk: Disk | None = None, plugins: Sequence[Plugin] = (), **rest: Any
) -> AsyncIterator[House]:
    """A house for the length of the block."""
    async with open_lab(model or ScriptedModel(), store=disk or Disk(), plugins=plugins, **rest) as lab:
        yield House(lab)
