"""Roles of agents in a configuration: read whole, and every mistake told with its place."""

import tomllib
from typing import Any

import pytest

from callboard.actors.errors import ConfigError, UsageError
from callboard.plugins import DEFAULT
from callboard.runtime.assembly import assemble
from callboard.runtime.config import RuntimeConfig, config_of
from callboard.runtime.settings import Agents, RoleConfig

GOOD = """
[agents]
detach = true
[agents.roles.scout]
instructions = "Look."
model = "scripted:demo"
tools = ["update_plan"]
[agents.roles.plain]
"""


def test_roles_are_read():
    """A role has instructions, a model and tools, or none of them."""
    roles = {
        "scout": RoleConfig(instructions="Look.", model="scripted:demo", tools=("update_plan",)),
        "plain": RoleConfig(),
    }
    assert Agents(detach=True, roles=roles) == config_of(tomllib.loads(GOOD)).agents


@pytest.mark.parametrize(
    ("role", "mistake"),
    [
        ({"r": 5}, "expected a table, got int @ $.agents.roles['r']"),
        ({"r": {"tool": ["x"]}}, "unknown key 'tool' @ $.agents.roles['r']"),
        ({"r": {"tools": "x"}}, "expected a list of texts, got 'x' @ $.agents.roles['r'].tools"),
        ({"r": {"tools": [1]}}, "expected a list of texts, got [1] @ $.agents.roles['r'].tools"),
        ({"r": {"tools": ["a b"]}}, "tools must be names of tools, got 'a b' @ $.agents.roles['r'].tools"),
        (
            {"r": {"instructions": " "}},
            "instructions must say something, or be left out, got ' ' @ $.agents.roles['r'].instructions",
        ),
        ({"r": {"model": 1}}, "expected str, got int @ $.agents.roles['r'].model"),
        ({"A b": {}}, "a role is named with 1 to 64 of a-z, 0-9, _ and -, got 'A b' @ $.agents.roles"),
        ({"r" * 65: {}}, f"a role is named with 1 to 64 of a-z, 0-9, _ and -, got '{'r' * 65}' @ $.agents.roles"),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_mistakes(role: Any, mistake: str):
    """What is no role says what is wrong, and where."""
    with pytest.raises(ConfigError) as raised:
        config_of({"agents": {"roles": role}})
    assert (mistake,) == raised.value.mistakes


def test_role_with_a_tool_that_is_not_there():
    """A role can only leave tools that exist."""
    config = RuntimeConfig(agents=Agents(roles={"scout": RoleConfig(tools=("update_plan", "lokk"))}))
    with pytest.raises(UsageError, match=r"\[agents.roles.scout\] names the tool 'lokk': there are close_agent, "):
        assemble(config, DEFAULT, (), ())
