"""What a server takes of a request: what nobody documents is learned from its refusals, once each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from callboard.runtime.models.refusals import Refusal

STATUSES: Final = (400, 404, 422, 501)


@attrs.frozen
class Option:
    """An option of a dialect, the words by which a refusal names it, and whether it is left out once or for good.

    `instead` is what the option is from then on, or makes that of the refusal's words.
    """

    name: str
    words: tuple[str, ...]
    once: bool = False
    unless: str = "\n"  # with these words in it, a refusal is about something else
    instead: bool | str | Callable[[str], Any] = False


@attrs.frozen
class Learned:
    """What is left out of a dialect from now on, or only this `once`."""

    gone: Mapping[str, Any]
    once: bool


def learned(options: Sequence[Option], refusal: Refusal, param: str, sent: frozenset[str]) -> Learned | None:
    """What to leave out after a refusal that names an option that was sent; None when it names none."""
    if refusal.status not in STATUSES:
        return None
    said = f"{refusal.code} {param!r} {refusal.message}".lower()
    for option in options:
        if option.name in sent and option.unless not in said and any(word in said for word in option.words):
            value = option.instead(said) if callable(option.instead) else option.instead
            return Learned({option.name: value}, option.once)
    return None
