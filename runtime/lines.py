"""Lines: what people type that begins with `/` or `!`, and which verb each is; all other text is a message."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

import attrs

from callboard.actors.checks import ID_MAX_CHARS
from callboard.actors.errors import UsageError
from callboard.actors.messages import ModeAnswer, Refused
from callboard.actors.plugin import Command

KNOWN = ("/compact", "/review WHAT", "/plan [off|MESSAGE]", "/fork [EVENT]", "/rewind [EVENT]", "!COMMAND")
NO_COMMANDS: Mapping[str, Command] = MappingProxyType({})
UNKNOWN = "there is no command {name}: known are {known}."
NO_ARGUMENT = "/{name} takes nothing behind it, got {rest!r:.80}."
NO_EVENT = "/{name} takes the number of an event, or nothing for the last point between turns, got {rest!r:.80}."
FORKED = "Forked: session {id} goes on from here; this one stays as it is."
REWOUND = "Rewound to event {at}: the session goes on from there, and its old log is read under {old}."
EVENT_MAX_CHARS = 18
NO_REVIEW = "/review needs a text: what should be reviewed, such as /review the last commit."
NO_COMMAND = "! needs a command, such as !ls."
MODE_ON: Final = {
    "committed": "Plan mode is on.",
    "queued": "Plan mode begins with the next step.",
    "cancelled": "Plan mode stays on.",
    "noop": "Plan mode is on already, or begins with the next step.",
}
MODE_OFF: Final = {
    "committed": "Plan mode is off.",
    "queued": "Plan mode ends with the next step.",
    "cancelled": "Plan mode does not begin: the switch was taken back.",
    "noop": "Plan mode is off already.",
}
COMMAND = re.compile(r"/([A-Za-z][\w-]*)(?:\s+(.*))?\s*", re.DOTALL)  # a path has another slash and is text


class Verbs(Protocol):
    """A session, as far as lines go."""

    async def submit(self, text: str, id: str | None = None) -> Any:
        """A message."""
        ...

    async def compact(self, *, id: str | None = None) -> Any:
        """A shorter history."""
        ...

    async def review(self, what: str, *, id: str | None = None) -> Any:
        """A review."""
        ...

    async def shell(self, command: str, *, id: str | None = None) -> Any:
        """A command of the user's own."""
        ...

    async def use(self, name: str, argument: Any = "", *, id: str | None = None) -> Any:
        """A plugin's command."""
        ...

    async def set_mode(self, mode: str, *, id: str | None = None) -> Any:
        """Plan mode, on or off."""
        ...

    async def fork(self, at: int | None = None) -> Any:
        """A new session that begins as this one does."""
        ...

    async def rewind(self, at: int | None = None) -> Any:
        """Go on from an earlier point."""
        ...

    async def submit_or_steer(self, text: str, *, id: str | None = None) -> Any:
        """A message, now or as soon as the running turn takes it."""
        ...


@attrs.frozen
class Line:
    """A verb and what it is given; `submit` for a line that is no command."""

    verb: str
    text: str = ""
    name: str = ""  # of a plugin's command

    async def do(self, session: Verbs, id_: str | None = None) -> Any:
        """Ask the session, and give back its answer."""
        match self.verb:
            case "compact":
                return await session.compact(id=id_)
            case "review":
                return await session.review(self.text, id=id_)
            case "use":
                return await session.use(self.name, self.text, id=id_)
            case "shell":
                return await session.shell(self.text, id=id_)
            case "set_mode":
                return await session.set_mode(self.text, id=id_)
            case "plan":
                return await self._plan(session, id_)
            case "fork" | "rewind":
                at = int(self.text) if self.text else None
                return await (session.fork(at) if self.verb == "fork" else session.rewind(at))
            case _:
                return await session.submit(self.text, id_)

    async def _plan(self, session: Verbs, id_: str | None) -> Any:
        """Plan mode first, so that already the message's first step is in it; each under an id of its own."""
        chosen = await session.set_mode("plan", id=None if id_ is None else f"plan:{id_}"[:ID_MAX_CHARS])
        if isinstance(chosen, Refused):
            return chosen
        return await session.submit_or_steer(self.text, id=id_)


def parse(line: Any, commands: Mapping[str, Command] = NO_COMMANDS) -> Line:
    """The verb of a line; a `UsageError` says in one sentence what is wrong with it. `commands`: of plugins."""
    if not isinstance(line, str):
        raise UsageError(f"command takes a line of text, got {type(line).__name__}.")
    if line.startswith("!"):
        if not line[1:].strip():
            raise UsageError(NO_COMMAND)
        return Line("shell", line[1:].strip())
    found = COMMAND.fullmatch(line)
    if found is None:
        return Line("submit", line)
    return _slash(found[1].lower(), (found[2] or "").strip(), commands)


def _slash(name: str, rest: str, commands: Mapping[str, Command]) -> Line:
    match name:
        case "compact":
            if rest:
                raise UsageError(NO_ARGUMENT.format(name=name, rest=rest))
            return Line("compact")
        case "review":
            if not rest:
                raise UsageError(NO_REVIEW)
            return Line("review", rest)
        case "fork" | "rewind":
            if rest and not (rest.isascii() and rest.isdigit() and len(rest) <= EVENT_MAX_CHARS):
                raise UsageError(NO_EVENT.format(name=name, rest=rest))
            return Line(name, rest)
        case "plan":
            if rest == "off":
                return Line("set_mode", "default")
            return Line("set_mode", "plan") if rest in ("", "on") else Line("plan", rest)
    command = commands.get(name)
    if command is not None and not command.hidden:
        return Line("use", rest, name)
    shown = (f"/{one.name} {one.hint}".strip() for one in commands.values() if not one.hidden)
    raise UsageError(UNKNOWN.format(name=f"/{name}", known=", ".join((*KNOWN, *shown))))


def mode_text(answer: ModeAnswer, *, on: bool, active: bool) -> str:
    """What people read of an answer to `set_mode`; `active` is what the log says of the mode now."""
    if on:
        return MODE_ON[answer.result]
    return MODE_OFF["queued" if answer.result == "noop" and active else answer.result]
