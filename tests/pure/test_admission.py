"""The books of a tree: slots that are taken and settled, and budgets of which the last tenth is the root's."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from callboard.actors.events import Usage
from callboard.runtime.admission import (
    NOTHING_SPENT,
    Books,
    Place,
    Refusal,
    Spent,
    TreeLimits,
    admit,
    exceeded,
    overdrawn,
    resume,
    shares,
)

CAPPED = TreeLimits(tokens_max=100, cost_usd_max=2.0, seconds_max=60.0)
REST = ", the rest is the root's"
AGENTS = tuple(string.ascii_lowercase[:8])


@pytest.mark.parametrize(
    ("limit", "root", "agents"),
    [(None, None, None), (100, 100, 90), (101, 101, 91), (9, 9, 9), (10, 10, 9), (0, 0, 0), (2.0, 2.0, 1.8)],
)
def test_shares(limit, root, agents):
    """The root may use all of a budget, its agents all but the last tenth; a budget below ten tokens has no tenth."""
    assert (root, agents) == (shares(limit, root=True), shares(limit, root=False))


@pytest.mark.parametrize(
    ("spent", "agent", "root"),
    [
        (NOTHING_SPENT, (None, None), (None, None)),
        (Spent(89), (None, None), (None, None)),
        (Spent(90), ("tokens_max", None), (None, None)),
        (Spent(91), ("tokens_max", "tokens_max"), (None, None)),
        (Spent(100), ("tokens_max", "tokens_max"), ("tokens_max", None)),
        (Spent(101), ("tokens_max", "tokens_max"), ("tokens_max", "tokens_max")),
        (Spent(cost_usd=1.79), (None, None), (None, None)),
        (Spent(cost_usd=1.8), ("cost_usd_max", None), (None, None)),
        (Spent(cost_usd=1.9), ("cost_usd_max", "cost_usd_max"), (None, None)),
        (Spent(cost_usd=2.0), ("cost_usd_max", "cost_usd_max"), ("cost_usd_max", None)),
        (Spent(cost_usd=2.1), ("cost_usd_max", "cost_usd_max"), ("cost_usd_max", "cost_usd_max")),
        (Spent(seconds=53.9), (None, None), (None, None)),
        (Spent(seconds=54.0), ("seconds_max", "seconds_max"), (None, None)),
        (Spent(seconds=60.0), ("seconds_max", "seconds_max"), ("seconds_max", "seconds_max")),
        (Spent(101, 2.1, 61.0), ("tokens_max", "tokens_max"), ("tokens_max", "tokens_max")),
    ],
    ids=str,
)
def test_budgets(spent, agent, root):
    """Before a request nothing may be left over for it, after a reply only more than all is too much; time is up."""
    for is_root, expected in ((False, agent), (True, root)):
        over = [exceeded(spent, CAPPED, root=is_root, asking=asking) for asking in (True, False)]
        assert expected == tuple(None if one is None else one[0] for one in over)
    assert exceeded(spent, TreeLimits(), root=False, asking=True) is None


@pytest.mark.parametrize(
    ("spent", "root", "words"),
    [
        (Spent(12_345), True, "agents.tokens_max: the tree of session 'p' has used 12,345 of 100 tokens"),
        (
            Spent(95),
            False,
            "agents.tokens_max: the tree of session 'p' has used 95 of 100 tokens; its agents may use 90" + REST,
        ),
        (
            Spent(cost_usd=1.85),
            False,
            "agents.cost_usd_max: the tree of session 'p' has used 1.85 of 2 US dollars; its agents may use 1.8" + REST,
        ),
        (Spent(seconds=61.25), True, "agents.seconds_max: the tree of session 'p' has used 61.25 of 60 busy seconds"),
        (Spent(99), True, None),
    ],
)
def test_words(spent, root, words):
    """The words name the limit, whose it is, how much was used, and what of it agents may use."""
    assert words == overdrawn("p", spent, CAPPED, root=root, asking=True)


@pytest.mark.parametrize(
    ("place", "first", "again"),
    [
        (Place(1, 0, 0, 0), None, None),
        (Place(4, 0, 0, 0), "depth_max", None),
        (Place(2, 0, 0, 256), "spawned_max", None),
        (Place(2, 8, 16, 256, Spent(90)), "spawned_max", "tokens_max"),
        (Place(1, 8, 16, 0, Spent(90, 1.8)), "tokens_max", "tokens_max"),
        (Place(1, 8, 16, 0, Spent(0, 1.8)), "cost_usd_max", "cost_usd_max"),
        (Place(1, 8, 16, 0, Spent(0, 0, 54)), "seconds_max", "seconds_max"),
        (Place(1, 8, 16, 0), "breadth_max", "breadth_max"),
        (Place(1, 8, 15, 0), "running_max", "running_max"),
    ],
    ids=str,
)
def test_start_and_another_turn(place, first, again):
    """Budgets refuse a start and another turn; depth and the count of all ever started only a start."""
    found = [None if refusal is None else refusal.limit for refusal in (admit(place, CAPPED), resume(place, CAPPED))]
    assert [first, again] == found


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (Refusal("running_max", 8, "Wait."), "spawn refused: running_max is 8. Wait."),
        (Refusal("tokens_max", 1_000_000, "Stop."), "spawn refused: tokens_max is 1,000,000. Stop."),
        (Refusal("cost_usd_max", 0.5, "Stop."), "spawn refused: cost_usd_max is 0.5. Stop."),
        (Refusal("seconds_max", 3600.0, "Stop."), "spawn refused: seconds_max is 3,600. Stop."),
    ],
)
def test_refusal_says_its_value(refusal, text):
    """A value reads as people write it."""
    assert text == str(refusal)


def test_seconds_add_up():
    """Turns side by side count each, ended ones stay counted, and an end that is told twice counts once."""
    books = Books()
    books.begin("p", 0.0)
    books.begin("p.a", 2.0)
    assert Spent(seconds=5.0 + 3.0) == books.spent(5.0)
    books.end("p.a", 5.0)
    books.end("p.a", 9.0)
    assert Spent(seconds=6.0 + 3.0) == books.spent(6.0)
    books.end("p", 6.0)
    books.pay(Usage(10, 5, 2, 1, 0.25))
    assert Spent(12, 0.25, 9.0) == books.spent(100.0)


@pytest.mark.parametrize(
    ("agents", "roots", "left_s"),
    [(1, 1, 17.0), (1, 0, 17.0), (0, 1, 20.0), (0, 0, None)],
)
def test_seconds_left(agents, roots, left_s):
    """Two turns use up the rest twice as fast, those of agents end first, and nothing is due when all were told."""
    books = Books(paid=Spent(seconds=10.0), turns={"p": 0.0, "p.a": 0.0})
    assert left_s == books.seconds_left(CAPPED, 5.0, agents, roots)
    assert books.seconds_left(TreeLimits(), 5.0, agents, roots) is None


@given(st.floats(0, 1e6), st.floats(0.001, 1e6), st.integers(1, 20))
def test_seconds_are_up_when_they_were_due(used_s, limit_s, turns):
    """After the time that was left the budget is over, whatever the rounding; so nothing looks again for ever."""
    limits = TreeLimits(seconds_max=limit_s)
    books = Books(paid=Spent(seconds=used_s), turns={str(at): 0.0 for at in range(turns)})
    left_s = books.seconds_left(limits, 0.0, turns, 0)
    assert left_s is not None
    again_s = books.seconds_left(limits, left_s, turns, 0)
    assert again_s is not None
    over = exceeded(books.spent(left_s), limits, root=False, asking=False) is not None
    assert over or left_s + again_s > left_s


counts = st.integers(0, 6)


class BooksMachine(RuleBasedStateMachine):
    """Any order of asking for slots, beginning turns and settling keeps the limits, and gives everything back."""

    @initialize(
        limits=st.builds(TreeLimits, depth_max=counts, running_max=counts, breadth_max=counts, spawned_max=counts)
    )
    def open(self, limits):
        """An empty tree."""
        self.limits, self.books = limits, Books()
        self.held: dict[str, str] = {}
        self.forced: set[str] = set()
        self.fresh: dict[str, int] = {}  # reserved for a start, with the depth
        self.started = 0

    @rule(agent=st.sampled_from(AGENTS), parent=st.sampled_from(AGENTS), depth=st.integers(1, 5))
    def reserve(self, agent, parent, depth):
        """A spawn: names are new, so nobody holds the slot before."""
        if agent in self.held:
            return
        before = (dict(self.books.slots), self.books.spawned)
        refusal = self.books.reserve(agent, parent, depth, self.limits, 0.0)
        if refusal is None:
            self.held[agent], self.fresh[agent] = parent, depth
            self.started += depth > 1
            assert depth <= self.limits.depth_max
        else:
            assert before == (self.books.slots, self.books.spawned)

    @rule(agent=st.sampled_from(AGENTS))
    def cancel(self, agent):
        """A spawn that came to nothing, told twice."""
        depth = self.fresh.pop(agent, None)
        if depth is not None:
            del self.held[agent]
            self.started -= depth > 1
            self.books.cancel(agent, depth)
            self.books.cancel(agent, depth)

    @rule(agent=st.sampled_from(AGENTS), parent=st.sampled_from(AGENTS))
    def again(self, agent, parent):
        """Mail that starts a turn; who has a slot keeps it."""
        parent = self.held.get(agent, parent)
        self.fresh.pop(agent, None)
        had, refusal = agent in self.held, self.books.again(agent, parent, self.limits, 0.0)
        assert not (had and refusal)
        if refusal is None:
            self.held[agent] = parent

    @rule(agent=st.sampled_from(AGENTS), parent=st.sampled_from(AGENTS), forced=st.booleans())
    def enter(self, agent, parent, forced):
        """A turn begins; what the user asks for always does."""
        parent = self.held.get(agent, parent)
        self.fresh.pop(agent, None)
        had = agent in self.held
        entered = self.books.enter(agent, parent, self.limits, forced=forced)
        assert entered or not (had or forced)
        if entered:
            self.held[agent] = parent
            if forced and not had:
                self.forced.add(agent)

    @rule(agent=st.sampled_from(AGENTS), times=st.integers(1, 3))
    def settle(self, agent, times):
        """A turn ends; only the first of several says so."""
        told = [self.books.settle(agent) for _ in range(times)]
        assert [agent in self.held, *[False] * (times - 1)] == told
        self.held.pop(agent, None)
        self.fresh.pop(agent, None)
        self.forced.discard(agent)

    @invariant()
    def keeps_limits(self):
        """Never more than the limits allow, but for what the user asked for himself."""
        assert self.held == self.books.slots
        free = [agent for agent in self.held if agent not in self.forced]
        assert len(free) <= self.limits.running_max
        for parent in set(self.held.values()):
            assert sum(self.held[agent] == parent for agent in free) <= self.limits.breadth_max
        assert 0 <= self.books.spawned == self.started <= self.limits.spawned_max

    def teardown(self):
        """When all have ended nothing is held, and whoever came first before may come again."""
        for agent in tuple(self.held):
            self.books.settle(agent)
        assert {} == self.books.slots
        assert Place(1, 0, 0, self.started) == self.books.place("p", 1, 0.0)


TestBooks = BooksMachine.TestCase
TestBooks.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
