"""What tests of hooks share: hooks that answer at once or later, and what became of them."""

from typing import Any

import trio

from callboard.actors.events import HookFailed
from callboard.actors.notices import HookRan
from callboard.actors.testing import Lab

from .strict import of_kind

WINDOW_S = 0.1


def statuses(lab: Lab) -> list[tuple[str, str]]:
    """How the hooks ended, in that order."""
    return [(notice.hook, notice.status) for notice in lab.notices if isinstance(notice, HookRan)]


def failures(lab: Lab) -> list[HookFailed]:
    """What broke."""
    return of_kind(lab.records(), HookFailed)


def later(answer: Any, seconds: float = 1.0) -> Any:
    """An async hook of any slot that answers after a while."""

    async def hook(*_: Any) -> Any:
        await trio.sleep(seconds)
        return answer

    return hook


def at_once(answer: Any) -> Any:
    """The plain form."""
    return lambda *_: answer
