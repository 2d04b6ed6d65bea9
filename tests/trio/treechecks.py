"""What must be true of whole trees once they rest: every log, what parents know of their children, slots, promises."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from callboard.actors.abort import ABORT_WINDOW_S, BELOW_S
from callboard.actors.books import HISTORY, PARKED, QUEUE, TURN
from callboard.actors.children import CHILDREN
from callboard.actors.claim import next_start
from callboard.actors.eventlog import EventLog
from callboard.actors.events import (
    Event,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    SessionForked,
    ToolReturned,
    TurnEnded,
)
from callboard.actors.facts import ChildClosed, ChildEnded, ChildSpawned, PlanApproved, PlanHandedOver, ReminderFired
from callboard.actors.memory import MemoryStore
from callboard.actors.mode import MODE
from callboard.plugins.handovers import message_id, session_of
from callboard.runtime.company import child_status

from .grove import Grove
from .strict import check_history, check_log, of_kind
from .treedisk import TreeDisk


def check_grove(
    grove: Grove, disk: TreeDisk, accepted: Collection[tuple[str, int]], seen: Mapping[str, Sequence[Any]]
) -> None:
    """All of it, of every session that the disk has."""
    decode = grove.stage.codec.decode
    headers = [header for header in disk.headers() if not header.unfinished]
    logs = {header.id: [decode(record.body) for record in disk.of(header.id)] for header in headers}
    for id_, events in logs.items():
        check_session(grove, id_, events)
        told = seen.get(id_, ())
        assert list(told) == events[: len(told)], f"{id_}: a reader was told what is not on the log"
    for id_, seq in accepted:
        assert len(logs[id_]) > seq, f"{id_}: event {seq} was acknowledged and is lost"
        assert isinstance(logs[id_][seq], MessageQueued), f"{id_}: {logs[id_][seq]} stands where a message was accepted"
    for id_, events in logs.items():
        check_children(id_, own_events(events), logs)
    check_order(grove, disk)
    check_plans(logs)
    check_slots(grove)


def own_events(events: Sequence[Event]) -> Sequence[Event]:
    """What happened in the session itself: behind what a fork began with."""
    forked = [at for at, event in enumerate(events) if isinstance(event, SessionForked)]
    return events[forked[-1] :] if forked else events


def check_session(grove: Grove, id_: str, events: Sequence[Event]) -> None:
    """One log: it replays to what its session has, and keeps every promise."""
    live = grove.sessions.registry.get(id_)
    stage = grove.stage
    again = EventLog(id_, MemoryStore(), stage.codec, stage.folds, lambda: 0, lambda event, session, turn: None)
    for event in events:
        again.append(event)
    if live is not None:
        assert again.states == live.log.states[:], f"{id_}: replay gives another state"
    check_log(events)
    check_history(again[HISTORY].messages)
    queue, own = again[QUEUE], own_events(events)
    fates = Counter(one for e in of_kind(own, MessagesClaimed) for one in e.ids)
    fates.update(e.id for e in of_kind(own, MessageWithdrawn))
    fates.update(message.id for message in queue)
    queued = Counter(e.id for e in of_kind(own, MessageQueued))
    assert fates == queued, f"{id_}: messages without a fate, or with two: {fates - queued}, {queued - fates}"
    assert set(queued.values()) <= {1}, f"{id_}: a message was queued twice"
    start = next_start(queue, parked=again[PARKED], plan_mode=again[MODE].active)
    assert start is None, f"{id_}: something waits for its turn"
    ends = of_kind(events, TurnEnded)
    assert len(ends) == again[TURN].number
    assert sum(len(e.receipts) for e in ends) == len(of_kind(events, ToolReturned))
    most_s = ABORT_WINDOW_S + (BELOW_S if of_kind(events, ChildSpawned) else 0.0)
    assert all(e.abort_s is None or e.abort_s <= most_s + 1e-6 for e in ends), f"{id_}: an abort took too long"
    fired = Counter((e.id, e.at_ms) for e in of_kind(events, ReminderFired))
    assert set(fired.values()) <= {1}, f"{id_}: a reminder was fired twice"


def check_children(id_: str, events: Sequence[Event], logs: Mapping[str, Sequence[Event]]) -> None:
    """A parent knows each end of each child once, and as it was; of one that it closed, that it was stopped."""
    closed = {e.child for e in of_kind(events, ChildClosed)}
    ended = Counter((e.child, e.turn) for e in of_kind(events, ChildEnded))
    assert set(ended.values()) <= {1}, f"{id_}: an end of a child was told twice: {ended}"
    for spawned in of_kind(events, ChildSpawned):
        child = logs.get(spawned.child)
        known = {e.turn: e for e in of_kind(events, ChildEnded) if e.child == spawned.child}
        if child is None:
            assert [e.status for e in known.values()] == ["failed"], f"{spawned.child} was lost: {known}"
            continue
        turns = {e.turn: e for e in of_kind(child, TurnEnded)}
        for turn, end in turns.items():
            assert turn in known, f"{id_} does not know of the end of turn {turn} of {spawned.child}: {end}"
        for turn, told in known.items():
            if told.status == "failed":
                continue
            assert turn in turns, f"{id_} knows of an end that never was: {told}"
            if told.status == "stopped" and told.child in closed and turns[turn].reason == "interrupted":
                continue  # a kill cut it off as it was being closed, and its log was not opened for that
            assert child_status(turns[turn])[0] == told.status, f"{id_}: {told} of {turns[turn]}"


def check_order(grove: Grove, disk: TreeDisk) -> None:
    """No end of a child is told before it has ended."""
    over: set[tuple[str, int]] = set()
    closed: set[str] = set()
    for session, record in disk.records():
        event = grove.stage.codec.decode(record.body)
        if isinstance(event, TurnEnded):
            over.add((session, event.turn))
        elif isinstance(event, ChildClosed):
            closed.add(event.child)
        elif isinstance(event, ChildEnded) and event.status != "failed":
            if event.status == "stopped" and event.child in closed:
                continue  # a kill cut it off
            assert (event.child, event.turn) in over, f"{session} was told before the end: {event}"


def check_plans(logs: Mapping[str, Sequence[Event]]) -> None:
    """Each approved plan is carried out once: by one message, here or in the session that it was handed to."""
    for id_, log in logs.items():
        events = own_events(log)
        handed = {e.id: e.session for e in of_kind(events, PlanHandedOver)}
        approved = of_kind(events, PlanApproved)
        assert len({e.id for e in approved}) == len(approved), f"{id_}: a plan was approved twice: {approved}"
        for plan in approved:
            where = session_of(id_, plan.id) if plan.execution == "clear" and handed[plan.id] else id_
            for one in {id_, session_of(id_, plan.id)} & logs.keys():
                queued = [e for e in of_kind(own_events(logs[one]), MessageQueued) if e.id == message_id(plan.id)]
                assert len(queued) == (one == where), f"{id_}: {plan} is carried out {len(queued)} times in {one}"


def check_slots(grove: Grove) -> None:
    """At rest nobody holds a slot or waits for one, and no tree counts anybody who is gone."""
    registry = grove.sessions.registry
    for root, tree in grove.sessions.spawner.trees.open.items():
        assert not tree.books.slots, f"the tree of {root} has slots taken: {tree.books.slots}"
        assert not tree.waiting, f"{list(tree.waiting)} of the tree of {root} wait for a slot"
        working = (*tree.turns, *tree.books.turns)
        assert not working, f"{working} of the tree of {root} work"
        gone = {id_ for id_ in tree.members if id_ not in registry}
        assert not gone, f"the tree of {root} counts {gone}, who are not open"


def orphans(grove: Grove) -> set[str]:
    """The agents that are open, in memory or not, and whose parent is closed."""
    registry = grove.sessions.registry
    parents = ((id_, opened.parent) for id_, opened in registry.places())
    return {id_ for id_, parent in parents if parent is not None and parent not in registry}


def untold(grove: Grove, disk: TreeDisk) -> list[str]:
    """The ends of agents that a parent in memory has not heard of."""
    logs = [actor.log for actor in grove.sessions.registry.live.values() if actor.kept is None]
    found = []
    for known in (child for log in logs for child in log[CHILDREN]):
        for record in disk.last(known.id, ("turn_ended",), 2**62, 1):
            ended = grove.stage.codec.decode(record.body)
            if isinstance(ended, TurnEnded) and ended.turn > known.turn:
                found.append(f"{known.id}: {ended}")
    return found
