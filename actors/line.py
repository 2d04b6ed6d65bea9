"""Line: the messages that wait, so that what is asked of them at every event does not look at all of them."""

from callboard.actors.events import Message


class Line(tuple[Message, ...]):  # noqa: SLOT001 - a tuple of any length has none
    """What is queued, so that neither of two questions looks at thousands of ends of agents that nobody has read.

    `quiet`: nothing in it starts a turn. `known` are the ids of all in it and maybe of others: versions share the set
    until something leaves the queue.
    """

    quiet: bool
    known: set[str]

    @classmethod
    def of(cls, messages: tuple[Message, ...]) -> "Line":
        """These messages, looked at once."""
        if isinstance(messages, cls):
            return messages
        line = cls(messages)
        line.quiet = not any(message.wake or message.task for message in line)
        line.known = {message.id for message in line}
        return line

    def grown(self, message: Message) -> "Line":
        """With one more at its end."""
        line = type(self)((*self, message))
        line.quiet = self.quiet and not (message.wake or message.task)
        line.known = self.known
        line.known.add(message.id)
        return line


def is_queued(queue: tuple[Message, ...], id_: str) -> bool:
    """Whether a message of that id waits."""
    if isinstance(queue, Line) and id_ not in queue.known:
        return False
    return any(message.id == id_ for message in queue)


def starts_nothing(queue: tuple[Message, ...]) -> bool:
    """Whether no message that waits could start a turn by itself."""
    return Line.of(queue).quiet
