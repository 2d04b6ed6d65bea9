"""Post: mail between the sessions of one tree, by path or by session id."""

from collections.abc import Awaitable, Callable

from callboard.actors.checks import check_id, check_submit
from callboard.actors.errors import UsageError
from callboard.actors.events import SessionOpened
from callboard.actors.messages import Accepted, Mail, Refused
from callboard.runtime.registry import Registry, opened_of
from callboard.runtime.waiting import Pending


class Post:
    """Carries mail to the receiver's mailbox, from either loop; a receiver that is not open is opened for it.

    A full mailbox is the sender's news at once. What was told is done, also when the sender waits no longer.
    """

    def __init__(
        self, registry: Registry, open_session: Callable[[str], Awaitable[object]], text_max_chars: int
    ) -> None:
        self._registry, self._open, self._text_max_chars = registry, open_session, text_max_chars

    async def send(
        self, sender: str, to: str, text: str, *, trigger: bool = True, id: str | None = None
    ) -> Accepted | Refused:
        """Mail in the name of session `sender`; Accepted once it is durable at the receiver, once for each `id`.

        `UsageError` for a receiver outside the tree and for what no log can keep, `SessionNotFound` for a receiver
        that does not exist.
        """
        check_id(id)
        text = check_submit(text, None, self._text_max_chars, "mail")
        if not isinstance(trigger, bool):
            raise UsageError(f"mail takes trigger=True or False, got {trigger!r:.80}.")
        author = self._opened(sender)
        receiver = address(author.root or sender, to)
        if receiver not in self._registry:
            await self._open(receiver)
        pending = Pending()
        self._registry.tell(receiver, Mail.signed(author.path, text, id, trigger=trigger, reply=pending.reply))
        answer: Accepted | Refused = await pending.get()
        return answer

    def _opened(self, session_id: str) -> SessionOpened:
        kept = self._registry.kept(session_id)
        return opened_of(self._registry.actor(session_id)) if kept is None else kept.opened(session_id)


def address(root: str, to: object) -> str:
    """The session id of a path or an id in the tree below `root`; `UsageError` for anything else."""
    if isinstance(to, str) and (to == "/root" or to.startswith("/root/")):
        return root + to.removeprefix("/root").replace("/", ".")
    if isinstance(to, str) and (to == root or to.startswith(f"{root}.")):
        return to
    raise UsageError(
        f"mail goes to an agent of the same tree: a path like /root/name, or its session id; got {to!r:.80}."
    )
