"""Which calls need an approval: pure decisions over policies, grants, rules and the levels of a tree."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.asked import Permissions
from callboard.actors.errors import UsageError
from callboard.actors.facts import ApprovalDecided
from callboard.actors.tool import tool
from callboard.plugins.approvals import (
    MEANINGS,
    POLICIES,
    STRICTNESS,
    needs_approval,
    policies_of,
    refusal,
    ruling,
)
from callboard.plugins.ask import ask_plugin

RULES: Any = {"shell": "deny", "write": "allow", "*": "ask"}
FRESH, GRANTED, ONCE = Permissions(), Permissions(tools=("t",)), Permissions(once=("t:1",))
LEVELS = st.lists(
    st.builds(
        Permissions,
        policy=st.sampled_from([None, *POLICIES]),
        tools=st.sampled_from([(), ("t",)]),
        once=st.sampled_from([(), ("t:1",)]),
    ),
    min_size=1,
    max_size=4,
)

TABLE: tuple[tuple[tuple[Permissions, ...], Any, str], ...] = (
    ((FRESH,), "off", "allow"),
    ((FRESH,), "ask", "ask"),
    ((FRESH,), "never", "never"),
    ((GRANTED,), "ask", "allow"),
    ((GRANTED,), "never", "allow"),
    ((ONCE,), "ask", "allow"),
    ((Permissions("off"),), "ask", "allow"),
    ((Permissions("ask"),), "off", "ask"),
    ((FRESH, FRESH), "ask", "ask"),
    ((FRESH, Permissions("off")), "ask", "allow"),
    ((FRESH, GRANTED), "ask", "allow"),
    ((FRESH, ONCE), "ask", "ask"),
    ((Permissions("off"), FRESH), "ask", "ask"),
    ((Permissions("off"), Permissions("never")), "ask", "never"),
    ((Permissions("ask"), FRESH), "off", "ask"),
    ((Permissions("never"), GRANTED), "ask", "never"),
    ((Permissions("ask"), GRANTED), "ask", "allow"),
    ((GRANTED, FRESH), "ask", "ask"),
)


@pytest.mark.parametrize(("levels", "policy", "expected"), TABLE)
def test_the_policies_of_a_tree_and_its_grants_decide(levels, policy, expected):
    """The root's policy is the configured one until another is set; grants hold below, a child is only stricter."""
    assert expected == ruling("t", "t:1", levels, policies_of(levels, policy))


@pytest.mark.parametrize(
    ("name", "granted", "expected"),
    [
        ("shell", ("shell",), "deny"),
        ("write", (), "allow"),
        ("edit", (), "ask"),
        ("edit", ("edit",), "allow"),
    ],
)
def test_rules_decide_by_the_name_of_the_tool(name, granted, expected):
    """A rule of the name's own, else the one for all; no grant stands against a rule that denies."""
    levels = (Permissions(tools=granted),)
    assert expected == ruling(name, f"{name}:1", levels, ("rules",), RULES)


def test_without_a_rule_a_call_is_asked_for():
    """A policy of rules that says nothing about a tool lets nothing through."""
    assert "ask" == ruling("t", "t:1", (FRESH,), ("rules",), {})


@given(levels=LEVELS, policy=st.sampled_from(POLICIES), own=st.sampled_from(POLICIES))
def test_a_child_is_never_less_strict_than_what_is_above_it(levels, policy, own):
    """Whatever is set for a child, its calls are allowed only where those of its parent would be."""
    child = (Permissions(own), *levels)
    above: Any = ruling("t", "t:1", levels, policies_of(levels, policy), RULES)
    below: Any = ruling("t", "t:1", child, policies_of(child, policy), RULES)
    assert STRICTNESS.index(below) >= STRICTNESS.index(above)


def test_only_what_changes_something_needs_an_approval():
    """A tool without effects needs none, and a control tool never does."""

    @tool
    async def writes() -> None:
        """Change."""

    @tool(effect="none")
    async def reads() -> None:
        """Look."""

    @tool(control=True, effect="idempotent", mutates=True)
    async def steers() -> None:
        """Steer."""

    assert [True, False, False] == [needs_approval(one) for one in (writes, reads, steers)]


def test_each_end_of_a_request_has_its_own_words():
    """An allowed call is not refused; the others each say why, and a denial quotes what the user said."""
    decisions: tuple[Any, ...] = ("allow_once", "allow_session", "deny", "cancelled", "unavailable")
    texts = [refusal("rm", ApprovalDecided("a", decision)) for decision in decisions]
    assert [None, None] == texts[:2]
    cancelled = "rm needs the user's approval, and the request for it was cancelled before the user decided."
    assert [
        "The user did not allow this call of rm.",
        f"{cancelled} The call did not run.",
        "rm needs the user's approval, and nobody is there to give it (unavailable). The call did not run.",
    ] == texts[2:]
    quoted = 'The user did not allow this call of rm and says: "no {tool} %s"'
    assert quoted == refusal("rm", ApprovalDecided("a", "deny", " no {tool} %s\n"))
    assert texts[2] == refusal("rm", ApprovalDecided("a", "deny", "  "))


WRONG: tuple[dict[str, Any], ...] = (
    {"policy": "always"},
    {"policy": None},
    {"policy": ["ask"]},
    {"rules": [("shell", "ask")]},
    {"rules": {"shell": "never"}},
    {"rules": {1: "ask"}},
    {"rules": {"shell": {}}},
    {"default_mode": "no"},
    {"children": 0},
)


@pytest.mark.parametrize("settings", WRONG, ids=repr)
def test_settings_that_do_not_exist_are_refused(settings):
    """A policy or rule that nobody knows is an error when the plugin is made, not a call that gets through."""
    with pytest.raises(UsageError, match="ask_plugin"):
        ask_plugin(**settings)


def test_every_policy_has_a_meaning():
    """What `/approvals` says exists for each policy there is."""
    assert sorted(POLICIES) == sorted(MEANINGS)
