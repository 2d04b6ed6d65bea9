"""Projection and replay: state as a pure fold of the log; Trail and Index, which grow without copying."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar, overload

import attrs
import msgspec

from callboard.actors.errors import UsageError
from callboard.actors.events import Event

T = TypeVar("T")
S = TypeVar("S")
V = TypeVar("V")
PLAIN = (bool, int, float, str, msgspec.Struct)


class Trail(Sequence[T]):
    """An immutable sequence whose `plus` is O(1): versions share one list and each sees only its own prefix.

    Only the newest version extends the shared list; extending an older one copies first. An empty one never lends its
    list, so that a fold's zero keeps nobody's items alive.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._length = len(self._items)

    def plus(self, *more: T) -> "Trail[T]":
        """This sequence followed by `more`."""
        items, length = self._items, self._length
        if not length or len(items) != length:
            items = items[:length]
        items.extend(more)
        grown: Trail[T] = Trail.__new__(Trail)
        grown._items, grown._length = items, len(items)
        return grown

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> "list[T]": ...
    def __getitem__(self, at: int | slice) -> "T | list[T]":
        if isinstance(at, slice):
            return self._items[: self._length][at] if self._length != len(self._items) else self._items[at]
        if not -self._length <= at < self._length:
            raise IndexError(at)
        return self._items[at if at >= 0 else self._length + at]

    def __iter__(self) -> Iterator[T]:
        items = self._items
        return (items[at] for at in range(self._length))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Trail | list | tuple):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # compared by value, and values may be unhashable

    def __repr__(self) -> str:
        return f"Trail({list(self)!r})"


class Index(Generic[V]):
    """An immutable mapping from str whose `plus` is O(1): versions share one dict, each sees the first `n` keys.

    Only the newest version extends the shared dict, and an empty one never does; see `Trail`.
    """

    __slots__ = ("_entries", "_size")

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, V]] = {}
        self._size = 0

    def plus(self, key: str, value: V) -> "Index[V]":
        """This mapping with `key` added; a key that is there keeps its first value (the same object comes back)."""
        entries, size = self._entries, self._size
        pair = entries.get(key)
        if pair is not None and pair[0] < size:
            return self
        if not size or len(entries) != size:
            entries = self._own()
        entries[key] = (size, value)
        grown: Index[V] = Index.__new__(Index)
        grown._entries, grown._size = entries, size + 1
        return grown

    @classmethod
    def of(cls, entries: Iterable[tuple[str, V]]) -> "Index[V]":
        """A mapping with these; of a key that comes twice the first."""
        made: Index[V] = cls()
        for key, value in entries:
            made._entries.setdefault(key, (len(made._entries), value))
        made._size = len(made._entries)
        return made

    def items(self) -> list[tuple[str, V]]:
        """All keys with their values, the oldest first."""
        return [(key, value) for key, (place, value) in self._entries.items() if place < self._size]

    def newest(self, count: int) -> "Index[V]":
        """The last so many keys alone."""
        return Index.of(self.items()[-count:])

    def get(self, key: str) -> V | None:
        """The value, or None."""
        pair = self._entries.get(key)
        return pair[1] if pair is not None and pair[0] < self._size else None

    def __contains__(self, key: str) -> bool:
        pair = self._entries.get(key)
        return pair is not None and pair[0] < self._size

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self._view() == other._view()

    __hash__ = None  # type: ignore[assignment]  # compared by value

    def __repr__(self) -> str:
        return f"Index({self._view()!r})"

    def _own(self) -> dict[str, tuple[int, V]]:
        return {key: pair for key, pair in self._entries.items() if pair[0] < self._size}

    def _view(self) -> dict[str, V]:
        return {key: pair[1] for key, pair in self._own().items()}


Apply: TypeAlias = Callable[[S, Any], S]
NextMs: TypeAlias = Callable[[Any], int | None]  # of a state: wall milliseconds, None when nothing is due


@attrs.frozen(eq=False)
class Projection(Generic[S]):
    """A named pure fold: `zero`, and `apply(state, event)` which returns the same object for an event not its own.

    `on` lists the event types it reads (None: every event); the log never calls it for others. `cases` is set by
    `table`.

    `state` is the type of its states, for their written form in snapshots: what msgspec knows, Trail and Index. It is
    that of `zero` where that is a Struct or a plain value. Without any, sessions have no snapshots, and each opening
    reads their whole logs. Raise `version` when `apply` or `state` changes, so that old snapshots are not used.
    """

    key: str
    zero: S
    apply: Apply[S]
    on: tuple[type[Event], ...] | None = None
    version: int = 1
    cases: Mapping[type[Event], Apply[S]] | None = attrs.field(default=None, repr=False)
    state: Any = attrs.field(
        default=attrs.Factory(lambda self: type(self.zero) if isinstance(self.zero, PLAIN) else None, takes_self=True)
    )


def table(
    key: str, zero: S, cases: Mapping[type[Event], Apply[S]], version: int = 1, state: Any = None
) -> Projection[S]:
    """A projection written as a table, event type to fold: the log goes straight to the row, whatever their number."""
    rows = MappingProxyType(dict(cases))

    def apply(state: S, event: Event) -> S:
        case = rows.get(type(event))
        return state if case is None else case(state, event)

    return Projection(
        key, zero, apply, on=tuple(rows), version=version, cases=rows, **({} if state is None else {"state": state})
    )


class _Readers(dict[type[Event], tuple[tuple[int, Apply[Any]], ...]]):
    """By event type: places and apply functions of the projections that read it; found at the first such event."""

    def __init__(self, projections: tuple[Projection[Any], ...]) -> None:
        super().__init__()
        self._projections = projections

    def __missing__(self, kind: type[Event]) -> tuple[tuple[int, Apply[Any]], ...]:
        pairs = enumerate(self._projections)
        found = self[kind] = tuple(
            (at, p.apply if p.cases is None else p.cases[kind]) for at, p in pairs if p.on is None or kind in p.on
        )
        return found


class Folds:
    """All projections of a runtime, and for each event type the ones that read it.

    Two different projections under one key are a `UsageError`: nobody could tell their states apart. `dues` are those
    that know when something is due, each with what tells it of a state.
    `written`: whether all states have a written form.
    """

    def __init__(
        self, projections: Iterable[Projection[Any]], dues: Iterable[tuple[Projection[Any], NextMs]] = ()
    ) -> None:
        self.projections = tuple(projections)
        by_key: dict[str, Projection[Any]] = {}
        for one in self.projections:
            if by_key.setdefault(one.key, one) is not one:
                raise UsageError(f"two projections are named {one.key!r}: rename one of them.")
        self.zeros: tuple[Any, ...] = tuple(p.zero for p in self.projections)
        self.place = {p: at for at, p in enumerate(self.projections)}
        self.readers = _Readers(self.projections)
        self.written = all(one.state is not None for one in self.projections)
        self.dues = tuple((self.place[projection], next_ms) for projection, next_ms in dues)

    def due_ms(self, states: list[Any]) -> int | None:
        """When the next thing is due, None when nothing is."""
        earliest: int | None = None
        for at, next_ms in self.dues:
            due_ms = next_ms(states[at])
            if due_ms is not None and (earliest is None or due_ms < earliest):
                earliest = due_ms
        return earliest

    def apply(self, states: list[Any], event: Event) -> None:
        """Fold one event into `states`, in place."""
        for at, apply in self.readers[type(event)]:
            states[at] = apply(states[at], event)


def replay(projection: Projection[S], events: Iterable[Event], state: S | None = None) -> S:
    """Fold `events` from zero, or from `state`."""
    folded = projection.zero if state is None else state
    for event in events:
        folded = projection.apply(folded, event)
    return folded
