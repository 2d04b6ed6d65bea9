"""What a compaction keeps, how full the model's window is, and when that is too full: pure decisions over a history."""

from collections.abc import Iterable, Sequence

import msgspec

from callboard.actors.codec import plain
from callboard.actors.events import UserText
from callboard.actors.model import Assistant, Prompt, PromptMessage, Result, User

TOKEN_CHARS = 4  # characters of a token, where nobody has counted: English text and code have three to five
KEPT_MAX_TOKENS = 20_000  # of what the user said; as much as codex keeps
WINDOW_RATIO = 0.9  # how much of its window a model may have to read; the rest is for its answer
MESSAGE_TOKENS = 4  # of what stands around a message

REQUEST = """\
The conversation is about to outgrow what you can read at once. All of it but the recent words of the user will be \
replaced by what you write now, and another model goes on from there with nothing else in its hands.
Write its briefing. Say:
- what the user wants, with every constraint and preference that was stated;
- what is done, what was decided and why, and what turned out not to work;
- what is in progress and what is left, as the next concrete steps;
- the names, paths, commands, numbers and quotations that are needed to go on.
Be brief and exact, claim nothing that was not checked, and call no tool.\
"""
PREFIX = """\
The conversation up to here was too long to be kept. What the user said lately stands above; the rest is only in this \
briefing, written by the model that did the work. Build on it and do not do again what is done.

"""
NO_SUMMARY = "(no summary available)"
CUT = "\n[... the rest of this message was cut ...]"
PLAN_MODE = "Plan mode is still on: look and plan, change nothing."


def limit_tokens(configured: int | None, window: int | None) -> int | None:
    """From how many tokens on a prompt is too large: the smaller of what is configured and 90 % of the window."""
    limits = [] if window is None else [int(window * WINDOW_RATIO)]
    if configured is not None:
        limits.append(configured)
    return min(limits, default=None)


def window_of(model: object, configured: int | None) -> int | None:
    """The window of a model in tokens: what is configured, else what the model says of itself; None when unknown."""
    window = configured if configured is not None else getattr(model, "context_window", None)
    return window if type(window) is int and window > 0 else None


def tokens_of_text(text: str) -> int:
    """An estimate."""
    return -(-len(text) // TOKEN_CHARS)


def tokens_of(message: PromptMessage) -> int:
    """An estimate for one message, with the arguments of its calls."""
    tokens = MESSAGE_TOKENS + tokens_of_text(message.text)
    if isinstance(message, Assistant):
        if message.thoughts:
            tokens += len(msgspec.json.encode(message.thoughts, enc_hook=plain)) // TOKEN_CHARS
        for call in message.calls:
            arguments = call.arguments
            text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments, enc_hook=plain).decode()
            tokens += MESSAGE_TOKENS + tokens_of_text(call.name) + tokens_of_text(text)
    return tokens


def filled(prompt: Prompt, counted: int) -> int:
    """How many tokens a prompt has.

    `counted` is what the provider counted up to the last answer, to which the estimate of what came since is added;
    0 when it has not counted, and then all of it is an estimate.
    """
    messages = prompt.messages
    if not counted:
        tools = len(msgspec.json.encode(prompt.tools)) // TOKEN_CHARS
        return tokens_of_text(prompt.system) + tools + sum(map(tokens_of, messages))
    tokens = counted
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if isinstance(message, Assistant) and not message.interrupted:
            break
        tokens += tokens_of(message)
    return tokens


def request(messages: Iterable[PromptMessage]) -> tuple[PromptMessage, ...]:
    """What the model reads when it is to summarise."""
    return (*messages, User(REQUEST, "notice"))


def without_oldest(messages: Sequence[PromptMessage], count: int) -> tuple[PromptMessage, ...]:
    """The same without the `count` oldest, and without results whose calls went with them; the last one stays."""
    at, last = min(count, len(messages) - 1), len(messages) - 1
    while at < last and isinstance(messages[at], Result):
        at += 1
    return tuple(messages[at:])


def recent(
    messages: Sequence[PromptMessage], path: str = "/root", most_tokens: int = KEPT_MAX_TOKENS
) -> tuple[UserText, ...]:
    """What the user said lately, in order: at most `most_tokens` by estimate, the oldest of it cut where it must be.

    To a subagent its parent is the user too. What the runtime, plugins, other agents and earlier compactions said
    counts as nobody's word.
    """
    sources = ("user", "steer") if path == "/root" else ("user", "steer", f"agent:{path.rpartition('/')[0]}")
    kept: list[UserText] = []
    room = most_tokens
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if not isinstance(message, User) or message.source not in sources:
            continue
        tokens = tokens_of_text(message.text)
        if tokens > room:
            head = room * TOKEN_CHARS - len(CUT)
            if head > 0:
                kept.append(UserText(message.text[:head] + CUT, message.source))
            break
        room -= tokens
        kept.append(UserText(message.text, message.source))
    return tuple(reversed(kept))
