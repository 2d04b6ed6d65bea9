"""AlarmClock: one heap and one task per runtime; tells whose time has come."""

import heapq
from collections.abc import Callable

import trio

SEGMENT_MAX_S = 60.0  # the wall clock is read again at least this often, because it may be set
AT_ONCE_MAX = 64  # that are rung for in one turn of the loop
STALE_MAX = 64  # entries of the heap that are nobody's any more, beyond as many as there are alarms


class AlarmClock:
    """Wall-time alarms by id, one for each. `ring(id)` is called once an alarm is due, never early.

    `set` is O(log n), and sometimes sweeps out what earlier changes left; sleeping is on Trio's clock.
    """

    def __init__(self, now_ms: Callable[[], int], ring: Callable[[str], None]) -> None:
        self._now_ms, self._ring = now_ms, ring
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._changed: trio.Event | None = None

    def __len__(self) -> int:
        return len(self._due)

    def set(self, id_: str, due_ms: int | None) -> None:
        """Ring for `id_` at `due_ms` instead of any earlier choice; None disarms."""
        if due_ms is None:
            self._due.pop(id_, None)
            return
        if self._due.get(id_) == due_ms:
            return
        self._due[id_] = due_ms
        if len(self._heap) >= 2 * len(self._due) + STALE_MAX:
            self._heap = [(due, one) for one, due in self._due.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (due_ms, id_))
        if self._changed is not None and self._heap[0] == (due_ms, id_):
            self._changed.set()

    def due(self, limit: int | None = None) -> list[str]:
        """Take what is due now, earliest first, at most `limit`."""
        now_ms, ids = self._now_ms(), list[str]()
        while self._heap and (self._heap[0][0] <= now_ms or self._stale()):
            if len(ids) == limit:
                break
            due_ms, id_ = heapq.heappop(self._heap)
            if self._due.get(id_) == due_ms:
                del self._due[id_]
                ids.append(id_)
        return ids

    def _stale(self) -> bool:
        due_ms, id_ = self._heap[0]
        return self._due.get(id_) != due_ms

    async def run(self) -> None:
        """(Trio) Ring until cancelled."""
        while True:
            while ids := self.due(AT_ONCE_MAX):
                for id_ in ids:
                    self._ring(id_)
                await trio.lowlevel.checkpoint()
            wait_s = SEGMENT_MAX_S
            if self._heap:
                wait_s = min(wait_s, max(0.0, (self._heap[0][0] - self._now_ms()) / 1000))
            self._changed = trio.Event()
            with trio.move_on_after(wait_s):
                await self._changed.wait()
            self._changed = None
