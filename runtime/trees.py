"""Trees: the books of all open trees of agents; who may begin a turn, who is woken, whose budget is used up."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import attrs

from callboard.actors.books import OPENED
from callboard.actors.children import CHILDREN
from callboard.actors.errors import SessionClosed
from callboard.actors.eventlog import EventLog
from callboard.actors.events import SessionOpened, StartKind, Usage
from callboard.actors.messages import Wake
from callboard.actors.notices import AgentRefused
from callboard.actors.phase import Phase
from callboard.actors.stage import Stage
from callboard.actors.timers import Timer
from callboard.runtime.admission import NOTHING_SPENT, Books, Refusal, Spent, TreeLimits, overdrawn
from callboard.runtime.recount import count_tree
from callboard.runtime.registry import Registry, opened_of
from callboard.runtime.waiting import in_thread

WORKING = (Phase.RUNNING, Phase.ABORTING, Phase.STOPPING, Phase.STOPPED)


@attrs.define(eq=False)
class Tree:
    """One tree: its books, its agents that are open, those that wait for a slot, and the turns that run."""

    books: Books = attrs.field(factory=Books)
    members: set[str] = attrs.field(factory=set)
    waiting: dict[str, None] = attrs.field(factory=dict)
    turns: dict[str, "Purse"] = attrs.field(factory=dict)  # by session, those that run
    timer: Timer | None = None


class Trees:
    """By the id of the root. A tree that nothing has to be known of is not here."""

    def __init__(self, stage: Stage, limits: TreeLimits, registry: Registry) -> None:
        self._stage, self.limits, self._registry = stage, limits, registry
        self.now_s = stage.now_s
        self.open: dict[str, Tree] = {}

    def of(self, root: str) -> Tree:
        """The tree below a root."""
        tree = self.open.get(root)
        if tree is None:
            tree = self.open[root] = Tree()
        return tree

    # -- coming and going --------------------------------------------------------------------------------------------

    async def recount(self, log: EventLog) -> None:
        """(Trio) Before a session that was read from the store starts: what its tree used and started until now."""
        opened = log[OPENED]
        assert opened is not None
        root, spent = opened.root or log.session, self.limits.bounded
        if root in self.open or not (spent or opened.parent is not None or log[CHILDREN]):
            return
        stage = self._stage
        count = partial(count_tree, stage.store, stage.codec, root, spent=spent)
        books = await in_thread(count) if stage.store.blocking else count()
        self.open.setdefault(root, Tree(books))

    def join(self, agent: str, opened: SessionOpened) -> None:
        """This agent is open."""
        self.of(opened.root).members.add(agent)

    def rest(self, session: str, opened: SessionOpened) -> None:
        """This session left memory: what its tree used up is still used up."""
        self.settle(session, opened)
        root = opened.root or session
        tree = self.open.get(root)
        if tree is not None and not (tree.members or tree.books.spawned or tree.books.paid != NOTHING_SPENT):
            del self.open[root]

    def part(self, session: str, opened: SessionOpened) -> None:
        """This session is open no more; with the last of a tree goes what was known of it."""
        root = opened.root or session
        tree = self.open.get(root)
        if tree is None:
            return
        if (purse := tree.turns.get(session)) is not None:  # it was left behind with a turn that does not end
            self.leave(purse)
        self._settle(tree, session)
        tree.members.discard(session)
        tree.waiting.pop(session, None)
        if opened.parent is None or (not tree.members and root not in self._registry):
            self._disarm(tree)
            del self.open[root]

    # -- slots -------------------------------------------------------------------------------------------------------

    def reserve(self, agent: str, parent: str, opened: SessionOpened) -> Refusal | None:
        """A slot for an agent that its `parent` is about to start, `opened` where it will stand; or what is in the way.

        It is settled by the end of the agent's turn, by `unused`, by `cancel`, or when the agent is open no more.
        """
        refusal = self.of(opened.root).books.reserve(agent, parent, opened.depth, self.limits, self.now_s())
        return self._told(refusal)

    def _told(self, refusal: Refusal | None) -> Refusal | None:
        if refusal is not None:
            self._stage.on_notice(AgentRefused(refusal.limit))
        return refusal

    def cancel(self, agent: str, opened: SessionOpened) -> None:
        """Nothing of it is on a log: it was not started."""
        tree = self.of(opened.root)
        tree.books.cancel(agent, opened.depth)
        self._wake(tree)

    def again(self, agent: str) -> Refusal | None:
        """A slot for an agent that is about to be sent what starts a turn, unless it works; or what is in the way.

        Settled as above; whoever sends says `unused` once the agent has answered.
        """
        actor, opened = self._registry.get(agent), self._opened(agent)
        if opened is None or opened.parent is None or (actor is not None and actor.phase in WORKING):
            return None
        return self._told(self.of(opened.root).books.again(agent, opened.parent, self.limits, self.now_s()))

    def unused(self, agent: str) -> None:
        """The agent has answered: if no turn of it runs, none will use the slot."""
        actor, opened = self._registry.get(agent), self._opened(agent)
        if opened is not None and (actor is None or actor.phase is Phase.IDLE):
            self.settle(agent, opened)

    def settle(self, agent: str, opened: SessionOpened) -> None:
        """The agent's slot is free, whatever ended its turn; those that wait for one try again. Harmless to repeat."""
        tree = self.open.get(opened.root or agent)
        if tree is not None:
            self._settle(tree, agent)

    def _settle(self, tree: Tree, agent: str) -> None:
        if tree.books.settle(agent):
            self._wake(tree)

    def _wake(self, tree: Tree) -> None:
        """All try again, in the order in which they came; those that find no room wait anew."""
        waiting, tree.waiting = tuple(tree.waiting), {}
        for agent in waiting:
            actor = self._registry.awake(agent)
            if actor is not None:
                with suppress(SessionClosed):
                    actor.tell(Wake())

    def _opened(self, agent: str) -> SessionOpened | None:
        kept, actor = self._registry.kept(agent), self._registry.get(agent)
        return kept.opened(agent) if kept is not None else None if actor is None else opened_of(actor)

    # -- turns -------------------------------------------------------------------------------------------------------

    def may_begin(self, log: EventLog, start: StartKind) -> bool:
        """(a session) Whether its turn may begin now; an agent that may not is woken when a slot is free.

        What the user asks of an agent begins in any case, and is counted.
        """
        opened = log[OPENED]
        if opened is None or opened.parent is None:
            return True
        tree = self.of(opened.root)
        if tree.books.enter(log.session, opened.parent, self.limits, forced=start == "user"):
            tree.waiting.pop(log.session, None)
            return True
        tree.waiting[log.session] = None
        return False

    def enter(self, log: EventLog, end: Callable[[str], None]) -> "Purse | None":
        """(a turn) It began; what it pays with, None where that does not matter. `end` is told why it has to end."""
        opened = log[OPENED]
        if opened is None or (opened.parent is None and not self.limits.bounded):
            return None
        root, session = opened.root or log.session, log.session
        tree = self.of(root)
        purse = tree.turns[session] = Purse(self, tree, root, session, end)
        if self.limits.seconds_max is not None:
            tree.books.begin(session, self.now_s())
            self._arm(tree, root)
        return purse

    def leave(self, purse: "Purse") -> None:
        """(a purse) The turn has ended; nothing when it was left behind before, and another may run by now."""
        tree, session = purse.tree, purse.session
        if tree.turns.get(session) is not purse:
            return
        del tree.turns[session]
        if self.limits.seconds_max is not None:
            tree.books.end(session, self.now_s())
            self._arm(tree, purse.root)
        self._settle(tree, session)

    def spent(self, root: str) -> Spent:
        """What a tree has used by now; only what has a limit is counted."""
        tree = self.open.get(root)
        return NOTHING_SPENT if tree is None else tree.books.spent(self.now_s())

    # -- shown -------------------------------------------------------------------------------------------------------

    def limits_shown(self) -> dict[str, Any]:
        """The limits of every tree."""
        return attrs.asdict(self.limits)

    def account(self, root: str) -> dict[str, Any]:
        """What a tree has used of its budgets, None where that is not counted, and its agents at this moment.

        They are `running`, or have a slot `reserved` for a turn that has not begun, or are `waiting` for a slot;
        `spawned` were started by agents, ever.
        """
        tree, limits = self.open.get(root) or Tree(), self.limits
        spent = tree.books.spent(self.now_s())
        running = sum(session != root for session in tree.turns)
        return {
            "used": {
                "tokens": spent.tokens if limits.bounded else None,
                "cost_usd": spent.cost_usd if limits.bounded else None,
                "seconds": spent.seconds if limits.seconds_max is not None else None,
            },
            "running": running,
            "reserved": len(tree.books.slots.keys() - tree.turns.keys()),
            "waiting": list(tree.waiting),
            "spawned": tree.books.spawned,
        }

    # -- busy seconds ------------------------------------------------------------------------------------------------

    def _arm(self, tree: Tree, root: str) -> None:
        """Look again when the next turn has to end, if those that run go on."""
        self._disarm(tree)
        going = [session for session, purse in tree.turns.items() if not purse.cut]
        roots, now_s = sum(session == root for session in going), self.now_s()
        left_s = tree.books.seconds_left(self.limits, now_s, len(going) - roots, roots)
        if left_s is not None:
            tree.timer = self._stage.timers.at(now_s + left_s, partial(self._look, tree, root))

    def _disarm(self, tree: Tree) -> None:
        timer, tree.timer = tree.timer, None
        if timer is not None:
            timer.cancel()

    def _look(self, tree: Tree, root: str) -> None:
        """End the turns for which the seconds are up."""
        tree.timer, used = None, Spent(seconds=tree.books.spent(self.now_s()).seconds)
        for purse in tuple(tree.turns.values()):
            words = overdrawn(root, used, self.limits, root=purse.session == root, asking=False)
            if words is not None and not purse.cut:
                purse.cut = True
                purse.end(words)
        self._arm(tree, root)


class Purse:
    """What one turn pays with; it is closed with the turn."""

    __slots__ = ("_trees", "capped", "cut", "end", "root", "session", "tree")

    def __init__(self, trees: Trees, tree: Tree, root: str, session: str, end: Callable[[str], None]) -> None:
        """`end` is told in words why the turn has to end; it was, once it is `cut`."""
        self._trees, self.tree, self.root, self.session, self.end = trees, tree, root, session, end
        self.capped, self.cut = trees.limits.bounded, False

    def pay(self, usage: Usage) -> None:
        """A request was answered."""
        if self.capped:
            self.tree.books.pay(usage)

    def over(self, *, asking: bool) -> str | None:
        """Which budget of the tree is used up, in words; None while there is some left."""
        trees, root = self._trees, self.root
        used = self.tree.books.spent(trees.now_s())
        return overdrawn(root, used, trees.limits, root=self.session == root, asking=asking)

    def close(self) -> None:
        """The turn has ended; harmless when repeated."""
        self._trees.leave(self)
