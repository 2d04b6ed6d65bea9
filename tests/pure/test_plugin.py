"""Plugins and hooks as values: mistakes in them are named when they are made, not when they are used."""

from typing import Any

import pytest

from callboard.actors.errors import UsageError
from callboard.actors.plugin import Hook, Plugin, check_plugins

MISTAKES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a plugin without a name": (Plugin, {"name": ""}, "a plugin has a name of printable characters, got ''."),
    "a plugin named by a number": (Plugin, {"name": 5}, "a plugin has a name of printable characters, got 5."),
    "a hook without a name": (Hook, {"name": None}, "a hook has a name of printable characters, got None."),
    "a hook with a newline": (Hook, {"name": "a\n"}, "a hook has a name of printable characters, got 'a\\n'."),
    "a hook that fails oddly": (
        Hook,
        {"name": "a", "on_failure": "closed"},
        "hook a: on_failure must be open or block, got 'closed'.",
    ),
    "a hook without time": (Hook, {"name": "a", "timeout_s": 0}, "hook a: timeout_s must be above 0, got 0."),
}


@pytest.mark.parametrize(("kind", "fields", "text"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_when_it_is_made(kind, fields, text):
    """What could only fail later, in the middle of a turn, is the author's mistake now."""
    with pytest.raises(UsageError) as refused:
        kind(**fields)
    assert text == str(refused.value)


def test_plugins_by_name():
    """Plugins are found by their names, and the same one may be listed twice."""
    one, two = Plugin("one"), Plugin("two")
    assert {"one": one, "two": two} == check_plugins([one, two, one])


CLASHES: tuple[tuple[list[Any], str], ...] = (
    ([Plugin("a"), Plugin("a", open_steps=lambda view: 1)], "two plugins are named 'a': rename or remove one."),
    (["plan"], "plugins must be Plugin values, got 'plan'."),
    ([Plugin], "plugins must be Plugin values, got <class 'callboard.actors.plugin.Plugin'>."),
)


@pytest.mark.parametrize(("plugins", "text"), CLASHES)
def test_plugins_that_cannot_live_together(plugins, text):
    """A name used twice and something that is no plugin are named."""
    with pytest.raises(UsageError) as refused:
        check_plugins(plugins)
    assert text == str(refused.value)


def test_a_before_step_that_cannot_be_awaited_is_refused():
    """A plain function as `before_step` is a mistake when the plugin is made, not a crash in the first turn."""
    with pytest.raises(UsageError, match="plugin p: before_step must be an async def"):
        Plugin("p", before_step=lambda view, messages: None)  # type: ignore[arg-type,return-value]
