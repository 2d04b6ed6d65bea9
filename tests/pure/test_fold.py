"""Trail and Index against plain lists and dicts; Folds; and the rule that a fold leaves alone what is not its own."""

import gc
import weakref
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from callboard.actors.books import BUILT_IN, HISTORY, QUEUE
from callboard.actors.errors import CallboardError, UsageError
from callboard.actors.events import Event, MessageQueued, MessageWithdrawn, NoteAdded, QueueParked, TurnStarted
from callboard.actors.fold import Folds, Index, Projection, Trail, replay, table
from callboard.actors.seen import SEEN

from .event_samples import EVENTS, PROJECTIONS, events_of, plugin_modules

FEWER = settings(max_examples=max(5, settings().max_examples // 5))
KEYS = st.sampled_from("abcdefgh")


class TrailMachine(RuleBasedStateMachine):
    """Trails that grow from any older version, each beside the list it should equal."""

    versions = Bundle("versions")

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[Trail[int], list[int]]] = []

    def _keep(self, trail: Trail[int], model: list[int]) -> tuple[Trail[int], list[int]]:
        self.all.append((trail, model))
        return trail, model

    @rule(target=versions, items=st.lists(st.integers(0, 9), max_size=4))
    def begin(self, items):
        """A trail of its own."""
        return self._keep(Trail(items), list(items))

    @rule(target=versions, version=versions, items=st.lists(st.integers(0, 9), max_size=4))
    def grow(self, version, items):
        """Any version grows, the newest or an old one."""
        trail, model = version
        return self._keep(trail.plus(*items), [*model, *items])

    @rule(version=versions, at=st.integers(-6, 6), other=st.integers(-6, 6), step=st.sampled_from([-2, -1, 1, 2, None]))
    def look(self, version, at, other, step):
        """Indexing and slicing answer as a list does."""
        trail, model = version
        assert model[at:other:step] == trail[at:other:step]
        if -len(model) <= at < len(model):
            assert model[at] == trail[at]
        else:
            with pytest.raises(IndexError):
                trail[at]

    @invariant()
    def every_version_stands(self):
        """No growth changes what an older version holds."""
        for trail, model in self.all:
            assert (len(model), model) == (len(trail), list(trail))
            assert trail == model
            assert trail == tuple(model)
            assert list(reversed(model)) == list(reversed(trail))


class IndexMachine(RuleBasedStateMachine):
    """Indexes that grow from any older version, each beside the dict it should equal."""

    versions = Bundle("versions")

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[Index[int], dict[str, int]]] = []

    def _keep(self, index: Index[int], model: dict[str, int]) -> tuple[Index[int], dict[str, int]]:
        self.all.append((index, model))
        return index, model

    @rule(target=versions)
    def begin(self):
        """An empty index."""
        return self._keep(Index(), {})

    @rule(target=versions, version=versions, key=KEYS, value=st.integers(0, 9))
    def grow(self, version, key, value):
        """Any version grows; a key that is there keeps its value, and the same object comes back."""
        index, model = version
        grown = index.plus(key, value)
        assert (grown is index) == (key in model)
        return self._keep(grown, {key: value, **model})

    @invariant()
    def every_version_stands(self):
        """No growth changes what an older version holds."""
        for index, model in self.all:
            assert len(model) == len(index)
            assert {key: model.get(key) for key in "abcdefgh"} == {key: index.get(key) for key in "abcdefgh"}
            assert {key: key in model for key in "abcdefgh"} == {key: key in index for key in "abcdefgh"}


TestTrail = TrailMachine.TestCase
TestIndex = IndexMachine.TestCase


def test_equality_is_by_value():
    """Trails and indexes compare by what they hold, and show it."""
    left, right = Index[int]().plus("a", 1).plus("b", 2), Index[int]().plus("b", 2).plus("a", 1)
    assert (True, False, False) == (left == right, left == left.plus("c", 3), left == {"a": 1})
    assert (True, False, False) == (Trail([1]) == Trail([1]), Trail([1]) == Trail([1, 2]), Trail([1]) == "x")
    assert ("Trail([1, 2])", "Index({'a': 1})") == (repr(Trail([1, 2])), repr(Index[int]().plus("a", 1)))


@pytest.mark.parametrize("value", [Trail([1]), Index[int]()], ids=["Trail", "Index"])
def test_they_are_not_hashable(value):
    """What is compared by value and shares its storage has no hash."""
    with pytest.raises(TypeError):
        hash(value)


def test_growing_the_newest_version_copies_nothing():
    """A chain of versions shares one list and one dict."""
    trail, index = Trail([0]), Index[int]().plus("0", 0)
    last, final = trail, index
    for at in range(1, 100):
        last, final = last.plus(at), final.plus(str(at), at)
    assert last._items is trail._items
    assert final._entries is index._entries


def test_a_zero_keeps_nothing_alive():
    """What a session put into its folds goes with it; the zeros that all sessions share hold nothing."""

    @attrs.define(eq=False, slots=True, weakref_slot=True)
    class Big:
        text: str = "x"

    big = Big()
    gone = weakref.ref(big)
    zero, empty = Trail[Any](), Index[Any]()
    grown, filled = zero.plus(big), empty.plus("a", big)
    assert (big, big) == (grown[0], filled.get("a"))
    del big, grown, filled
    gc.collect()
    assert gone() is None
    replay(HISTORY, [NoteAdded("a")])
    replay(SEEN, [MessageQueued("a", "b", given=True)])
    assert ([], {}) == (HISTORY.zero.messages._items, SEEN.zero.ids._entries)


# -- projections


def count(state: int, _: Event) -> int:
    """One more."""
    return state + 1


ALL = Projection("all", 0, count)
SOME = Projection("some", 0, count, on=(NoteAdded, QueueParked))
ROWS: Projection[tuple[str, ...]] = table(
    "rows",
    (),
    {NoteAdded: lambda state, event: (*state, event.text), QueueParked: lambda state, event: (*state, "parked")},
    version=3,
)
STORY = (NoteAdded("a"), TurnStarted(1), QueueParked(parked=True), NoteAdded("b"))


def test_folds_calls_each_projection_for_its_own_events():
    """A projection sees the types it lists, all without a list, and its own row of a table."""
    folds = Folds((ALL, SOME, ROWS))
    states = list(folds.zeros)
    for event in STORY:
        folds.apply(states, event)
    assert [4, 3, ("a", "parked", "b")] == states
    assert {ALL: 0, SOME: 1, ROWS: 2} == folds.place


def test_folds_remembers_who_reads_what():
    """Readers are looked up once for each event type."""
    folds = Folds((ALL, SOME, ROWS))
    assert ((0, count),) == folds.readers[TurnStarted]
    assert [0, 1, 2] == [at for at, _ in folds.readers[NoteAdded]]
    assert folds.readers[NoteAdded] is folds.readers[NoteAdded]


def test_a_table_says_what_it_reads():
    """A projection made of a table lists the types of its rows and keeps the version it was given."""
    assert ((NoteAdded, QueueParked), 3, "rows", ()) == (ROWS.on, ROWS.version, ROWS.key, ROWS.zero)
    assert ("a", "parked", "b") == replay(ROWS, STORY)


def test_replay_goes_on_from_a_state():
    """Replaying the rest of a log on the state of its beginning is the same as replaying all of it."""
    assert 4 == replay(ALL, STORY[2:], replay(ALL, STORY[:2]))


def test_two_projections_of_one_name_are_refused():
    """States are told apart by key, so two different projections cannot share one; the same one twice can."""
    with pytest.raises(UsageError, match="two projections are named 'all': rename one of them"):
        Folds((ALL, Projection("all", 0, count)))
    assert {ALL: 1} == Folds((ALL, ALL)).place


def test_every_plugin_can_be_imported():
    """The rules below hold for all shipped plugins, so all of them are read."""
    broken: dict[str, Exception] = {}
    assert len(list(plugin_modules(broken))) > 1
    assert broken == {}


def test_the_keys_of_all_shipped_projections_differ():
    """Built-in folds and those of all shipped plugins can live in one runtime."""
    assert len(PROJECTIONS) == len({projection.key for projection in PROJECTIONS})
    assert set(BUILT_IN) < set(PROJECTIONS)


def some_state(projection: Projection[Any], data: st.DataObject) -> Any:
    """A state that the projection can be in."""
    state = projection.zero
    own = projection.on if projection.on is not None else EVENTS
    for event in data.draw(st.lists(st.sampled_from(own).flatmap(events_of), max_size=4)):
        try:
            state = projection.apply(state, event)
        except CallboardError:  # a fold that refuses what does not fit its state
            continue
    return state


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda projection: projection.key)
@FEWER
@given(data=st.data())
def test_a_fold_returns_the_same_object_for_an_event_not_its_own(projection, data):
    """Whatever the state, an event of another type comes back as the very same object."""
    state = some_state(projection, data)
    for kind in EVENTS:
        if projection.on is not None and kind not in projection.on:
            event = data.draw(events_of(kind))
            assert state is projection.apply(state, event), kind


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda projection: projection.key)
@given(data=st.data())
def test_a_fold_changes_no_state_it_was_given(projection, data):
    """Folding twice from one state gives equal states, and the first one still is what it was."""
    state = some_state(projection, data)
    before = repr(state)
    own = projection.on if projection.on is not None else EVENTS
    event = data.draw(st.sampled_from(own).flatmap(events_of))
    try:
        once, twice = projection.apply(state, event), projection.apply(state, event)
    except CallboardError:
        return
    assert (once, before) == (twice, repr(state))


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda projection: projection.key)
def test_a_projection_reads_events_that_exist(projection):
    """Every type a projection lists is an event of this build."""
    assert projection.on is None or set(projection.on) <= set(EVENTS)


def test_the_queue_of_history_is_the_queue():
    """Both folds that hold the queue agree on it."""
    events = (MessageQueued("a", "x"), MessageQueued("b", "y", wake=False), MessageWithdrawn("a"))
    assert replay(QUEUE, events) == replay(HISTORY, events).queue
