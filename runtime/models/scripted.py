"""The scripts behind scripted:NAME: whole stories that need no key and no network."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from callboard.actors.model import Prompt, Reply


def _demo(prompt: Prompt) -> Reply:
    return Reply("Hello from the script.")


SCRIPTS: Mapping[str, Callable[[Prompt], Reply]] = MappingProxyType({"demo": _demo})
