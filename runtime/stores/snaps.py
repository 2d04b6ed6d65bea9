"""Snapshots of projections on their way to the disk: they wait until the records they are true for are stored."""

import threading
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Final

from callboard.actors.store import Snapshot
from callboard.runtime.clock import steady_s

WAITING_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 64 << 20
"""So much waits in memory; of more the oldest are lost: they are a cache."""

GROUP_BYTES_MAX: Final = 4 << 20
AGE_S_MAX: Final = 1.0
"""So long they wait while commits are waited for."""


class Snaps:
    """What is to be kept of projections; `add` on the loops' thread, the rest by whoever writes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], Snapshot] = {}
        self._size_bytes = 0
        self._since_s = 0.0

    def add(self, session: str, snapshots: Sequence[Snapshot]) -> None:
        """Keep these some time soon, in place of older ones of the same keys."""
        if not self._waiting:
            self._since_s = steady_s()
        with self._lock:
            for one in snapshots:
                self._drop((session, one.key))
                self._waiting[session, one.key] = one
                self._size_bytes += len(one.body)
            while len(self._waiting) > WAITING_MAX or self._size_bytes > WAITING_BYTES_MAX:
                self._drop(next(iter(self._waiting)))

    def _drop(self, key: tuple[str, str]) -> None:
        old = self._waiting.pop(key, None)
        if old is not None:
            self._size_bytes -= len(old.body)

    def forget(self, sessions: Collection[str]) -> None:
        """They go by other ids now: what waits under the old ones would become another session's."""
        with self._lock:
            for key in [key for key in self._waiting if key[0] in sessions]:
                self._drop(key)

    def are_due(self, *, busy: bool) -> bool:
        """Whether some wait, and for long enough when there is something else to do."""
        return bool(self._waiting) and not (busy and steady_s() - self._since_s < AGE_S_MAX)

    def wait_for(self, sessions: Collection[str]) -> bool:
        """Whether any of these sessions is waited for by one."""
        return bool(self._waiting) and any(key[0] in sessions for key in tuple(self._waiting))

    def some(self, ours: Container[str]) -> dict[tuple[str, str], Snapshot]:
        """Those to write now, by session and key; what is nobody's of `ours` is dropped."""
        some, size_bytes = dict[tuple[str, str], Snapshot](), 0
        with self._lock:
            for key, one in tuple(self._waiting.items()):
                if key[0] not in ours:
                    self._drop(key)
                elif size_bytes <= GROUP_BYTES_MAX:
                    some[key] = one
                    size_bytes += len(one.body)
        return some

    def wrote(self, written: Mapping[tuple[str, str], Snapshot]) -> None:
        """These are stored; the others wait for their records."""
        with self._lock:
            for key, one in written.items():
                if self._waiting.get(key) is one:
                    self._drop(key)
        self._since_s = steady_s()

    def clear(self) -> None:
        """Give up all that wait."""
        with self._lock:
            self._waiting.clear()
            self._size_bytes = 0
