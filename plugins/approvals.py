"""approvals: which calls need the user's approval, and what becomes of them; `/approvals` chooses a policy."""

import typing
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec

from callboard.actors.asked import APPROVALS, PERMISSIONS, Permissions, key_of
from callboard.actors.books import TURN
from callboard.actors.errors import ToolError, UsageError
from callboard.actors.events import Event, MessageQueued
from callboard.actors.facts import ApprovalAsked, ApprovalDecided, ApprovalPolicy, ApprovalPolicySet, QuestionAsked
from callboard.actors.messages import Refused
from callboard.actors.plugin import Command, Did, Guard, ToolCall, View
from callboard.actors.tool import Tool

NEEDS = "{tool} needs the user's approval"
DENIED = "The user did not allow this call of {tool}."
DENIED_WITH = 'The user did not allow this call of {tool} and says: "{feedback}"'
REQUEST_CANCELLED = f"{NEEDS}, and the request for it was cancelled before the user decided. The call did not run."
NOBODY = f"{NEEDS}, and nobody is there to give it (unavailable). The call did not run."
NEVER = f"{NEEDS}, and this session asks for none (policy never). The call did not run: find a way without it."
RULED_OUT = "The rules of this runtime do not allow {tool}. The call did not run: find a way without it."
NO_CHILD = (
    f"{NEEDS}, and subagents may not ask for it. The call did not run: report what you need, so that the root agent "
    "can do it."
)
LATE_APPROVAL = """\
Before the program stopped you wanted to call {tool} with {arguments}, and the user was asked to approve it.
The user has now allowed {what}. That call did not run: make it now if it is still right.\
"""
THIS_CALL = "this one call, with exactly these arguments"
THIS_TOOL = "every call of {tool} in this session"
HINT = "off|ask|never|rules"
POLICY_IS = "approvals: {policy} - {meaning}"
POLICY_SET = "approvals are now: {policy} - {meaning}"
HOLDS_TOO = "; above it holds {policies}, which holds here too"
NO_POLICY = "/approvals takes off, ask, never or rules, got {rest!r:.80}"
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "off": "no call needs one",
        "ask": "you are asked before a call that changes something",
        "never": "a call that would need one is refused",
        "rules": "the rules of the configuration say it for each tool",
    }
)
ARGUMENTS_MAX_CHARS = 2_000  # of a call that a late approval quotes; the history holds all of them

Rule: TypeAlias = Literal["ask", "allow", "deny"]
Ruling: TypeAlias = Literal["allow", "ask", "never", "deny"]
STRICTNESS: tuple[Ruling, ...] = ("allow", "ask", "never", "deny")
POLICIES: tuple[str, ...] = typing.get_args(ApprovalPolicy)
RULES: tuple[str, ...] = typing.get_args(Rule)
NO_RULES: Mapping[str, Rule] = MappingProxyType({})


def policies_of(levels: Sequence[Permissions], policy: ApprovalPolicy) -> tuple[ApprovalPolicy, ...]:
    """The policy of each level of a tree, a session's own first and its root's last.

    The root has the configured `policy` until another is set; one below it says nothing of its own until then.
    """
    below = tuple(one.policy or "off" for one in levels[:-1])
    return (*below, levels[-1].policy or policy)


def ruling(
    tool_name: str,
    key: str,
    levels: Sequence[Permissions],
    policies: Sequence[ApprovalPolicy],
    rules: Mapping[str, Rule] = NO_RULES,
) -> Ruling:
    """Whether a call may run, needs an approval, or may not run: the strictest of what each level of a tree says.

    `levels` are the permissions of the session and of those above it, `key` is that of the call. What the user allowed
    at a level holds for all below it, but for one that was told `never` itself, and against no rule that denies.
    """
    said = [_said_at(tool_name, key, levels, at, chosen, rules) for at, chosen in enumerate(policies)]
    return max(said, key=STRICTNESS.index)


def _said_at(
    tool_name: str, key: str, levels: Sequence[Permissions], at: int, chosen: ApprovalPolicy, rules: Mapping[str, Rule]
) -> Ruling:
    match chosen:
        case "off":
            wanted: Ruling = "allow"
        case "ask" | "never":
            wanted = chosen
        case "rules":
            wanted = rule_of(tool_name, rules)
    if wanted in ("allow", "deny"):
        return wanted
    granting = levels[at:] if wanted == "ask" else levels[at : at + 1]
    granted = key in levels[0].once or any(tool_name in one.tools for one in granting)
    return "allow" if granted else wanted


def rule_of(tool_name: str, rules: Mapping[str, Rule]) -> Rule:
    """The rule for a tool: by its name, else by the longest beginning with a `*` behind it, else to ask."""
    exact = rules.get(tool_name)
    if exact is not None:
        return exact
    fitting = (name for name in rules if name.endswith("*") and tool_name.startswith(name[:-1]))
    return rules.get(max(fitting, key=len, default=""), "ask")


def needs_approval(one: Tool) -> bool:
    """Whether calls of a tool may need one at all: it changes something, and is no control tool."""
    return one.mutates and not one.control


def refusal(tool_name: str, decided: ApprovalDecided) -> str | None:
    """What the model reads of a call that was not approved; None for one that was."""
    match decided.decision:
        case "allow_once" | "allow_session":
            return None
        case "deny" if decided.feedback and decided.feedback.strip():
            return DENIED_WITH.format(tool=tool_name, feedback=decided.feedback.strip())
        case "deny":
            return DENIED.format(tool=tool_name)
        case "cancelled":
            return REQUEST_CANCELLED.format(tool=tool_name)
    return NOBODY.format(tool=tool_name)


def waits(view: View, asked: QuestionAsked | ApprovalAsked) -> bool:
    """Whether the call that asked still waits; after a restart it does not."""
    turn = view[TURN]
    return turn.open and turn.number == asked.turn and turn.calls.is_open(asked.call)


def late_approval(view: View, asked: ApprovalAsked, decided: ApprovalDecided) -> Sequence[Event]:
    """What an approval brings: with a tool allowed, all its other requests are; to a late one, word for the model.

    The word joins a turn that runs, so that a permission for one call is still there when the model reads of it.
    """
    if decided.decision not in ("allow_once", "allow_session"):
        return ()
    others: list[ApprovalAsked] = []
    if decided.decision == "allow_session":
        others = [one for one in view[APPROVALS] if one.tool == asked.tool and one.id != asked.id]
    source = "steer" if view[TURN].open else "user"
    what = THIS_CALL if decided.decision == "allow_once" else THIS_TOOL.format(tool=asked.tool)
    words = [
        MessageQueued(f"approved:{one.id}", _late_text(one, what), source)
        for one in (asked, *others)
        if not waits(view, one)
    ]
    return (*(ApprovalDecided(one.id, "allow_session") for one in others), *words)


def _late_text(asked: ApprovalAsked, what: str) -> str:
    arguments = asked.arguments if isinstance(asked.arguments, str) else msgspec.json.encode(asked.arguments).decode()
    if len(arguments) > ARGUMENTS_MAX_CHARS:
        arguments = arguments[:ARGUMENTS_MAX_CHARS] + "..."
    return LATE_APPROVAL.format(tool=asked.tool, arguments=arguments, what=what)


def check_settings(policy: Any, rules: Any) -> Mapping[str, Rule]:
    """The rules as they are kept; `UsageError` for a policy or a rule that does not exist."""
    if policy not in POLICIES:
        raise UsageError(f"the policy of ask_plugin is one of {', '.join(POLICIES)}; got {policy!r:.80}.")
    if not isinstance(rules, Mapping):
        raise UsageError(f"the rules of ask_plugin map names of tools to {', '.join(RULES)}; got {rules!r:.80}.")
    for name, rule in rules.items():
        if not isinstance(name, str) or rule not in RULES:
            raise UsageError(f"the rule of ask_plugin for {name!r:.80} is one of {', '.join(RULES)}; got {rule!r:.80}.")
    return MappingProxyType(dict(rules))


def command_of(policy: ApprovalPolicy) -> Command:
    """`/approvals`: says which policy holds in a session, or sets another; `policy` is the configured one."""

    def run(view: View, rest: Any) -> Did | Refused:
        chosen: Any = rest.strip().lower() if isinstance(rest, str) else rest
        levels = view.lineage(PERMISSIONS)
        if chosen == "":
            now = next((one.policy for one in levels if one.policy is not None), policy)
            return Did((), POLICY_IS.format(policy=now, meaning=_meaning(now, levels, policy)))
        if chosen not in POLICIES:
            return Refused("invalid_command", NO_POLICY.format(rest=rest))
        meaning = _meaning(chosen, levels, policy)
        return Did((ApprovalPolicySet(chosen),), POLICY_SET.format(policy=chosen, meaning=meaning))

    return Command("approvals", run, HINT)


def _meaning(now: ApprovalPolicy, levels: Sequence[Permissions], policy: ApprovalPolicy) -> str:
    """What a policy comes to: those of the levels above hold beside it."""
    above = dict.fromkeys(one for one in policies_of(levels, policy)[1:] if one not in ("off", now))
    return MEANINGS[now] + (HOLDS_TOO.format(policies=" and ".join(above)) if above else "")


def guard_of(policy: ApprovalPolicy, rules: Mapping[str, Rule]) -> Guard:
    """Asked before each call: None for one that may run, else why it may not; the user is asked where that is due."""

    async def guard(view: View, call: ToolCall, one: Tool) -> str | None:
        if not needs_approval(one):
            return None
        levels = view.lineage(PERMISSIONS)
        policies = policies_of(levels, policy)
        if all(chosen == "off" for chosen in policies):
            return None
        match ruling(call.name, key_of(call.name, call.arguments), levels, policies, rules):
            case "allow":
                return None
            case "deny":
                return RULED_OUT.format(tool=call.name)
            case "never":
                return NEVER.format(tool=call.name)
        if view.depth > 0:
            return NO_CHILD.format(tool=call.name)
        try:
            one.parse(call.arguments)
        except ToolError:
            return None  # it cannot run, and says so itself: nobody need decide
        return refusal(call.name, await view.ask_approval(call))

    return guard
