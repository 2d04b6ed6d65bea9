"""What tests of subagents share: replies that start and wait for agents, and the model of a parent and its agents."""

import trio

from callboard.actors import (
    Assistant,
    Call,
    Prompt,
    Reply,
    Result,
)

from .hosted import events


def spawn(*names: str, message: str = "work") -> Reply:
    """A reply that starts these agents."""
    return Reply("", [Call("spawn_agent", {"task_name": name, "message": message}) for name in names])


def wait(**arguments) -> Reply:
    """A reply that waits for agents."""
    return Reply("", [Call("wait_agent", arguments)])


def is_child(prompt: Prompt) -> bool:
    """Whether a subagent asks."""
    return "." in prompt.session


def results(prompt: Prompt) -> list[str]:
    """The results that the model read last."""
    texts = []
    for message in reversed(prompt.messages):
        if isinstance(message, Assistant):
            break
        if isinstance(message, Result):
            texts.append(message.text)
    return texts[::-1]


class Parent:
    """A model: the replies of a root session, in order, and one function for all its subagents."""

    def __init__(self, *replies, child=lambda prompt: Reply(f"{prompt.session} did it")):
        self.replies, self.child, self.read = list(replies), child, []

    def __call__(self, prompt):
        if is_child(prompt):
            return self.child(prompt)
        self.read += results(prompt)
        return self.replies.pop(0) if self.replies else Reply("parent done")


async def lasting(prompt: Prompt) -> Reply:
    """A model request that takes for ever."""
    await trio.sleep(60)
    return Reply("late")


def of(kind, rt, session):
    """The events of one kind."""
    return [event for event in events(rt, session) if isinstance(event, kind)]
