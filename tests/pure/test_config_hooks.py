"""[hooks.NAME]: what a configuration may say of commands, and every mistake at once."""

from typing import Any

import pytest

from callboard.actors.errors import ConfigError
from callboard.actors.hook import Hook
from callboard.runtime.config import config_of
from callboard.runtime.hooks.commands import command_hooks
from callboard.runtime.hooks.events import MOMENTS
from callboard.runtime.settings import HookConfig

FINE: dict[str, Any] = {"event": "Stop", "command": "true"}


def test_a_table_is_a_hook_with_defaults():
    """Event and command are all that is needed."""
    config = config_of({"hooks": {"check": FINE}})
    assert config.hooks == {"check": HookConfig(event="Stop", command="true")}
    hook = config.hooks["check"]
    assert (hook.on_failure, hook.timeout_s, hook.matcher) == ("open", 60.0, None)


@pytest.mark.parametrize("event", MOMENTS)
def test_each_event_fills_its_slot(event):
    """And no other; name, time and mode are those of the table."""
    table = {**FINE, "event": event, "on_failure": "block", "timeout_s": 2}
    (hook,) = command_hooks(config_of({"hooks": {"check": table}}).hooks)
    assert (hook.name, hook.on_failure, hook.timeout_s) == ("check", "block", 2.0)
    filled = {slot for slot in MOMENTS.values() if getattr(hook, slot) is not None}
    assert (type(hook), filled) == (Hook, {MOMENTS[event]})


MISTAKES: list[tuple[Any, str]] = [
    ({"command": "true"}, "event"),
    ({"event": "Stop"}, "command"),
    ({**FINE, "event": "PreTool"}, "expected one of 'PreToolUse', "),
    ({**FINE, "command": " "}, "command must be a command line, got ' '"),
    ({**FINE, "command": "a\0b"}, "command must be a command line"),
    ({**FINE, "command": ["true"]}, "expected str, got list"),
    ({**FINE, "on_failure": "closed"}, "expected one of 'open', 'block', got 'closed'"),
    ({**FINE, "timeout_s": 0}, "timeout_s must be at least 0.001, got 0"),
    ({**FINE, "timeout_s": float("inf")}, "timeout_s must be at least 0.001, got inf"),
    ({**FINE, "timeout_s": "5"}, "expected float, got str"),
    ({**FINE, "matcher": "(*"}, "matcher '(*' is no regular expression: "),
    ({**FINE, "matcher": 5}, "expected str, got int"),
    ({**FINE, "timeout": 5}, "unknown key 'timeout'"),
    (5, "expected a table, got int"),
]


@pytest.mark.parametrize(("table", "mistake"), MISTAKES)
def test_mistakes_in_a_table_are_named_with_their_place(table, mistake):
    """Each says what is wrong, and where."""
    with pytest.raises(ConfigError) as raised:
        config_of({"hooks": {"check": table}})
    (found,) = raised.value.mistakes
    assert mistake in found
    assert "@ $.hooks['check']" in found
