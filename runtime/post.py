"""Post: mail between the sessions of one tree, by path or by session id."""

from typing import Any, Protocol

from callboard.actors.checks import check_id, check_submit
from callboard.actors.errors import CallboardError, SessionClosed, UsageError
from callboard.actors.events import SessionOpened
from callboard.actors.messages import Accepted, Mail, Refused
from callboard.actors.seen import SEEN
from callboard.runtime.registry import Registry, opened_of, root_of
from callboard.runtime.spawn import Spawner
from callboard.runtime.waiting import Pending

STRANGER = "mail goes to an agent of the same tree: a path like /root/name, or its session id; got {to!r:.80}."


class Sessions(Protocol):
    """The sessions of the runtime, as the Post needs them."""

    registry: Registry
    spawner: Spawner

    async def open(self, session_id: str) -> object:
        """Open a session of the store."""
        ...


class Post:
    """Carries mail to the receiver's mailbox, from either loop; a receiver that is not open is opened for it.

    A full mailbox is the sender's news at once, and so is a tree that has no slot for the turn that mail would start.
    What was told is done, also when the sender waits no longer.
    """

    def __init__(self, sessions: Sessions, text_max_chars: int) -> None:
        self._registry, self._open, self._spawner = sessions.registry, sessions.open, sessions.spawner
        self._trees = sessions.spawner.trees
        self._text_max_chars = text_max_chars

    async def send(
        self, sender: str, to: str, text: str, *, trigger: bool = True, id: str | None = None
    ) -> Accepted | Refused:
        """Mail in the name of session `sender`; Accepted once it is durable at the receiver, once for each `id`.

        `Refused("limit_reached")` names the limit of the tree that an agent's turn would exceed; nothing was sent.
        `UsageError` for a receiver outside the tree and for what no log can keep, `SessionNotFound` for a receiver
        that does not exist, `SessionClosed` for an agent that was ended for good.
        """
        check_id(id)
        text = check_submit(text, None, self._text_max_chars, "mail")
        if not isinstance(trigger, bool):
            raise UsageError(f"mail takes trigger=True or False, got {trigger!r:.80}.")
        author = self._opened(sender)
        receiver = address(author.root or sender, to)
        if receiver not in self._registry:
            await self._bring(receiver)
        if root_of(self._opened(receiver), receiver) != root_of(author, sender):
            raise UsageError(STRANGER.format(to=to))
        pending = Pending()

        def answered(answer: Any) -> None:
            self._trees.unused(receiver)
            pending.reply(answer)

        letter = Mail.signed(author.path, text, id, trigger=trigger, reply=answered)
        refusal = self._trees.again(receiver) if trigger and not self._has(receiver, letter.id) else None
        if refusal is not None:
            return Refused("limit_reached", refusal.reason.removesuffix("."))
        try:
            self._registry.tell(receiver, letter)
        except CallboardError:
            self._trees.unused(receiver)
            raise
        answer: Accepted | Refused = await pending.get()
        return answer

    async def _bring(self, receiver: str) -> None:
        """Open the receiver, unless it was ended for good."""
        if await self._spawner.is_closed(receiver):
            raise SessionClosed(f"agent {receiver!r} was closed: it takes no messages.")
        await self._open(receiver)

    def _has(self, receiver: str, id: str | None) -> bool:
        """Whether the receiver took this mail before, as far as is in memory."""
        actor = self._registry.get(receiver)
        return id is not None and actor is not None and id in actor.log[SEEN].ids

    def _opened(self, session_id: str) -> SessionOpened:
        kept = self._registry.kept(session_id)
        return opened_of(self._registry.actor(session_id)) if kept is None else kept.opened(session_id)


def address(root: str, to: object) -> str:
    """The session id of a path or an id in the tree below `root`; `UsageError` for anything else."""
    if isinstance(to, str) and (to == "/root" or to.startswith("/root/")):
        return root + to.removeprefix("/root").replace("/", ".")
    if isinstance(to, str) and (to == root or to.startswith(f"{root}.")):
        return to
    raise UsageError(STRANGER.format(to=to))
