"""Garbage collection of a process: managed while a runtime asks for it, put back by the last one to leave."""

import gc
import weakref
from typing import Any

import pytest

from callboard.actors.errors import ConfigError
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.config import config_of
from callboard.runtime.doors.cli import _alone
from callboard.runtime.garbage import IDLE_BLOCKS_MIN, NEVER_MAX, NOW_BLOCKS_MIN, PROCESS, Garbage, verdict
from callboard.runtime.settings import Bounds

MANAGED = RuntimeConfig(runtime=Bounds(gc_policy="manage"))


class Knot:
    """Refers to itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def garbage():
    """A manager of its own, left in any case."""
    one = Garbage()
    before = (gc.get_threshold(), len(gc.callbacks), gc.get_freeze_count())
    one.enter()
    yield one
    one.leave()
    assert before == (gc.get_threshold(), len(gc.callbacks), gc.get_freeze_count())


@pytest.mark.parametrize(
    ("blocks", "kept", "expected"),
    [
        (IDLE_BLOCKS_MIN - 1, 1, "nothing"),
        (IDLE_BLOCKS_MIN, 1, "when idle"),
        (NOW_BLOCKS_MIN - 1, 1, "when idle"),
        (NOW_BLOCKS_MIN, 1, "now"),
        (NOW_BLOCKS_MIN, NOW_BLOCKS_MIN, "nothing"),
        (NOW_BLOCKS_MIN, NOW_BLOCKS_MIN // 2, "when idle"),
        (4 * NOW_BLOCKS_MIN, NOW_BLOCKS_MIN, "now"),
    ],
)
def test_everything_is_collected_when_there_is_much_more_than_last_time(blocks, kept, expected):
    """Half as much again waits for an idle moment, four times as much does not, and little is never worth it."""
    assert expected == verdict(blocks, kept)


def test_what_is_old_is_seen_by_no_collection(garbage):
    """A full collection while managed looks at nothing that was there before, nor at what survived."""
    kept: list[Any] = [[] for _ in range(10)]
    gc.collect()
    assert gc.get_objects() == []
    assert gc.get_freeze_count() > len(kept)


def test_frozen_cycle_is_freed_in_an_idle_moment(garbage):
    """A cycle that dies when it is frozen stays until everything is collected, which waits for an idle moment."""
    knot = Knot()
    gc.collect()
    alive = weakref.ref(knot)
    del knot
    gc.collect()
    assert alive() is not None
    garbage._kept = 1  # as if nearly nothing had been there
    ballast: list[Any] = [[[]] for _ in range(IDLE_BLOCKS_MIN)]

    assert not garbage.look(idle=False)
    assert alive() is not None
    assert garbage.look(idle=True)
    assert alive() is None
    assert not garbage.look(idle=True)
    del ballast


def test_disabled_collector_stays_disabled(garbage):
    """Whoever switched garbage collection off gets none."""
    garbage._kept = 1
    ballast: list[Any] = [[[]] for _ in range(IDLE_BLOCKS_MIN)]
    gc.disable()
    try:
        assert not garbage.look(idle=True)
    finally:
        gc.enable()
    del ballast


async def test_runtimes_of_a_process_are_counted():
    """The first runtime that manages changes the process, the last one to close puts it back."""
    before = (gc.get_threshold(), gc.get_freeze_count())
    async with open_runtime(MANAGED):
        async with open_runtime(MANAGED):
            assert NEVER_MAX == gc.get_threshold()[2]
        assert NEVER_MAX == gc.get_threshold()[2]
        assert gc.get_freeze_count() > 0
    assert before == (gc.get_threshold(), gc.get_freeze_count())
    assert 0 == PROCESS._count


async def test_runtime_that_is_embedded_leaves_the_process_alone():
    """Without a word about it nothing is changed."""
    before = (gc.get_threshold(), gc.get_freeze_count())
    async with open_runtime():
        assert before == (gc.get_threshold(), gc.get_freeze_count())


def test_command_line_manages_unless_told_to_leave():
    """The file decides; when it says nothing, a process that is ours alone is managed."""
    assert "manage" == _alone(RuntimeConfig()).runtime.gc_policy
    assert "leave" == _alone(config_of({"runtime": {"gc_policy": "leave"}})).runtime.gc_policy
    assert "manage" == _alone(config_of({"runtime": {"gc_policy": "manage"}})).runtime.gc_policy


def test_other_policies_are_mistakes():
    """The file names one of two policies."""
    with pytest.raises(ConfigError, match="gc_policy"):
        config_of({"runtime": {"gc_policy": "often"}})
