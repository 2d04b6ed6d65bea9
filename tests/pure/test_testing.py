"""What the kit for tests refuses, and what it takes."""

from typing import Any

import pytest

from callboard.actors import Reply, UsageError
from callboard.actors.model import Prompt
from callboard.actors.testing import ScriptedModel

SCRIPTS: tuple[Any, ...] = (None, 5, "text", [Reply(), "text"], Reply())


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_no_script(script):
    """What is neither replies nor a function is refused when the model is made."""
    with pytest.raises(UsageError, match="ScriptedModel takes a list of Reply, or a function"):
        ScriptedModel(script)


def test_replies_that_can_be_read_only_once():
    """A generator of replies is a script like a list: checking it uses nothing up."""
    once: Any = (Reply(word) for word in ("one", "two"))
    model = ScriptedModel(once)
    told = []
    for step in (1, 2, 3):
        coroutine = model._next(Prompt("s", 1, step, "", (), ()))
        with pytest.raises(StopIteration) as stopped:
            coroutine.send(None)
        told.append(stopped.value.value.text)
    assert told == ["one", "two", ""]
