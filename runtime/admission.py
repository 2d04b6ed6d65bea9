"""Admission: which agent may start or go on in a tree, and the books of one tree; pure arithmetic.

A tree is a root session and all agents below it. Agents below the root hold a slot from before their turn begins until
it has ended. What a tree may use (tokens, US dollars, busy seconds) is of the root and its agents together, and the
last tenth of it is the root's alone: what its agents have used up leaves it enough to say what came of it.

Tokens and dollars are looked at before each request, after each answer and at each spawn. A request that is under way
is not cut, so the books may end one answer of each working agent beyond a limit. What an agent asks for is refused
without a slot; what wakes it otherwise (the end of an agent of its own, a reminder) waits for one; what the user says
to an agent begins in any case, and is counted.

Busy seconds are the lengths of all turns in the tree, from start to end, added up: two agents that work side by side
count twice, and a turn that waits for an agent or for a person works too.
"""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import attrs

from callboard.actors.events import Usage

Number: TypeAlias = int | float

ROOT_SHARE_FACTOR = 10  # one part in so many of each budget
TOLERANCE_S = 1e-6  # of sums of clock times

UNITS: Mapping[str, str] = MappingProxyType(
    {"tokens_max": "tokens", "cost_usd_max": "US dollars", "seconds_max": "busy seconds"}
)

ALONE = "Solve the task yourself."
USED_UP = "This tree has used up its agents; solve the task yourself."
SPENT = "This tree has used up what its agents may; do the rest yourself, with what you have."
AFTER_YOURS = "Wait until one of your agents has finished, then try again."
AFTER_ANY = "Wait until an agent has finished, then try again."


def said(number: Number) -> str:
    """A number as people read it."""
    return f"{number:,}" if isinstance(number, int) else f"{number:,.4f}".rstrip("0").rstrip(".")


@attrs.frozen
class TreeLimits:
    """What one tree of agents may hold and use.

    Levels below the root, agents that work at once in the tree and below one parent, and how many the agents below the
    root may ever start. The root is exempt from the last: it lives for as long as its user speaks to it. Then tokens,
    US dollars and busy seconds of all together, None for no limit.
    """

    depth_max: int = 3
    running_max: int = 8
    breadth_max: int = 16
    spawned_max: int = 256
    tokens_max: int | None = None
    cost_usd_max: float | None = None
    seconds_max: float | None = None

    @property
    def bounded(self) -> bool:
        """Whether there is any limit to what is used."""
        return self.tokens_max is not None or self.cost_usd_max is not None or self.seconds_max is not None


@attrs.frozen
class Spent:
    """What a tree has used: tokens, US dollars, busy seconds."""

    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0

    def plus(self, tokens: int = 0, cost_usd: float = 0.0, seconds: float = 0.0) -> "Spent":
        """With that much more."""
        return Spent(self.tokens + tokens, self.cost_usd + cost_usd, self.seconds + seconds)


NOTHING_SPENT = Spent()


@attrs.frozen
class Place:
    """Where a subagent is asked for: the depth it would have, and what its tree and its parent hold already."""

    depth: int
    running: int
    siblings: int
    spawned: int
    spent: Spent = NOTHING_SPENT


@attrs.frozen
class Refusal:
    """The limit that refuses, its value, and what the model may do instead."""

    limit: str
    value: Number
    advice: str

    @property
    def reason(self) -> str:
        """Without what was asked for."""
        return f"{self.limit} is {said(self.value)}. {self.advice}"

    def __str__(self) -> str:
        return f"spawn refused: {self.reason}"


def admit(place: Place, limits: TreeLimits) -> Refusal | None:
    """None when a subagent may start at this place, else the first limit in its way, the hardest to mend first."""
    if place.depth > limits.depth_max:
        return Refusal("depth_max", limits.depth_max, ALONE)
    if place.depth > 1 and place.spawned >= limits.spawned_max:
        return Refusal("spawned_max", limits.spawned_max, USED_UP)
    return resume(place, limits)


def resume(place: Place, limits: TreeLimits) -> Refusal | None:
    """The same for another turn of an agent that exists and rests."""
    over = exceeded(place.spent, limits, root=False, asking=True)
    if over is not None:
        return Refusal(over[0], over[1], SPENT)
    return room(place, limits)


def room(place: Place, limits: TreeLimits) -> Refusal | None:
    """None when the tree and the parent have a slot free."""
    if place.siblings >= limits.breadth_max:
        return Refusal("breadth_max", limits.breadth_max, AFTER_YOURS if limits.breadth_max else ALONE)
    if place.running >= limits.running_max:
        return Refusal("running_max", limits.running_max, AFTER_ANY if limits.running_max else ALONE)
    return None


def shares(limit: Number | None, *, root: bool) -> Number | None:
    """How much of a budget the root may use, or its agents; None without a limit."""
    if limit is None or root:
        return limit
    tenth = limit // ROOT_SHARE_FACTOR if isinstance(limit, int) else limit / ROOT_SHARE_FACTOR
    return limit - tenth


def exceeded(
    spent: Spent, limits: TreeLimits, *, root: bool, asking: bool
) -> tuple[str, Number, Number, Number] | None:
    """The first budget that is used up: its name, its limit, what of it the asker's side may use, and what was used.

    Before a request (`asking`) a budget that is used up to the last token is over, after a reply only one that was
    exceeded. Seconds are over when they are up.
    """
    for name, limit, used in (
        ("tokens_max", limits.tokens_max, spent.tokens),
        ("cost_usd_max", limits.cost_usd_max, spent.cost_usd),
        ("seconds_max", limits.seconds_max, spent.seconds),
    ):
        most = shares(limit, root=root)
        if limit is None or most is None:
            continue
        up = used + TOLERANCE_S >= most if name == "seconds_max" else used > most or (asking and used >= most)
        if up:
            return name, limit, most, used
    return None


def overdrawn(tree: str, spent: Spent, limits: TreeLimits, *, root: bool, asking: bool) -> str | None:
    """Which budget of the tree of session `tree` is used up, in words; None while there is some left."""
    over = exceeded(spent, limits, root=root, asking=asking)
    if over is None:
        return None
    name, limit, most, used = over
    words = f"agents.{name}: the tree of session {tree!r} has used {said(used)} of {said(limit)} {UNITS[name]}"
    return words if root else f"{words}; its agents may use {said(most)}, the rest is the root's"


@attrs.define
class Books:
    """The books of one tree: who holds a slot, how many its agents ever started, what is used, who works since when.

    Whoever asks for a slot has it or hears why not in one call, so nothing can come between looking and taking.
    """

    slots: dict[str, str] = attrs.field(factory=dict)  # agent: its parent
    busy: Counter[str] = attrs.field(factory=Counter)  # parent: how many of those slots are of agents of its own
    spawned: int = 0
    paid: Spent = NOTHING_SPENT  # with the seconds of the turns that have ended
    turns: dict[str, float] = attrs.field(factory=dict)  # session: when its turn began, the root's included

    def place(self, parent: str, depth: int, now_s: float) -> Place:
        """What an agent below `parent` would find."""
        return Place(depth, len(self.slots), self.busy[parent], self.spawned, self.spent(now_s))

    def _take(self, agent: str, parent: str) -> None:
        self._free(agent)
        self.slots[agent] = parent
        self.busy[parent] += 1

    def _free(self, agent: str) -> bool:
        parent = self.slots.pop(agent, None)
        if parent is None:
            return False
        self.busy[parent] -= 1
        if not self.busy[parent]:
            del self.busy[parent]
        return True

    def reserve(self, agent: str, parent: str, depth: int, limits: TreeLimits, now_s: float) -> Refusal | None:
        """A slot for an agent that is about to be started, counted as started; or the limit in its way."""
        refusal = admit(self.place(parent, depth, now_s), limits)
        if refusal is None:
            self._take(agent, parent)
            self.spawned += depth > 1
        return refusal

    def cancel(self, agent: str, depth: int) -> None:
        """The agent was not started after all; harmless when it holds nothing."""
        if self._free(agent):
            self.spawned -= depth > 1

    def again(self, agent: str, parent: str, limits: TreeLimits, now_s: float) -> Refusal | None:
        """A slot for another turn of an agent; it has one already, or hears the limit in its way."""
        refusal = None if agent in self.slots else resume(self.place(parent, 1, now_s), limits)
        if refusal is None:
            self._take(agent, parent)
        return refusal

    def enter(self, agent: str, parent: str, limits: TreeLimits, *, forced: bool) -> bool:
        """Whether the agent holds a slot now, for a turn that begins; a `forced` turn takes one in any case.

        Budgets do not matter here: a turn that finds them used up says so, and one that does not begin would be silent.
        """
        if agent not in self.slots and not forced and room(self.place(parent, 1, 0.0), limits) is not None:
            return False
        self._take(agent, parent)
        return True

    def settle(self, agent: str) -> bool:
        """The slot is free; False when there was none, so that it may be told any number of times."""
        return self._free(agent)

    def begin(self, session: str, now_s: float) -> None:
        """A turn of this session began."""
        self.turns[session] = now_s

    def end(self, session: str, now_s: float) -> None:
        """It ended; harmless when repeated."""
        began_s = self.turns.pop(session, None)
        if began_s is not None:
            self.paid = self.paid.plus(seconds=max(0.0, now_s - began_s))

    def pay(self, usage: Usage) -> None:
        """A model request of the tree was answered."""
        self.paid = self.paid.plus(usage.total, usage.cost_usd)

    def spent(self, now_s: float) -> Spent:
        """What is used by now, with the turns that run."""
        if not self.turns:
            return self.paid
        return self.paid.plus(seconds=sum(max(0.0, now_s - began_s) for began_s in self.turns.values()))

    def seconds_left(self, limits: TreeLimits, now_s: float, agents: int, roots: int) -> float | None:
        """In how many seconds the next turn has to end, when `agents` and `roots` of those that run still may go on."""
        wanted = [shares(limits.seconds_max, root=root) for root, count in ((False, agents), (True, roots)) if count]
        if not self.turns or not wanted or limits.seconds_max is None:
            return None
        left_s = min(most for most in wanted if most is not None) - self.spent(now_s).seconds
        return max(0.0, left_s) / len(self.turns)
