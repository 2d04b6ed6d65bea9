"""Seconds that others took are not a test's own; everything else is."""

import os
import subprocess
import sys
import time

import pytest

from .fair import QUEUED, Late, Since, in_time, timely

BUSY = "while True: pass"


def spin(seconds):
    """Compute for so long."""
    ends_s = time.perf_counter() + seconds
    while time.perf_counter() < ends_s:
        pass


def test_sleeping_is_time_of_ones_own():
    """A wait counts whole, so that code which waits for too long is found out."""
    since = Since()
    time.sleep(0.1)
    assert 0.1 <= since.real_s()
    assert 0.05 <= since.own_s() <= since.real_s()


@pytest.mark.skipif(not QUEUED.exists(), reason="this system does not tell how long a thread was queued")
def test_waiting_for_a_core_is_not():
    """Beside another program on the same core about half of the time is lost, and is not counted."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        other = subprocess.Popen([sys.executable, "-c", BUSY])  # it inherits the core
        try:
            time.sleep(0.2)
            since, before_s = Since(), time.thread_time()
            spin(0.5)
            computed_s = time.thread_time() - before_s
            assert since.own_s() < 0.9 * since.real_s()
            assert computed_s <= since.own_s() + 0.05
        finally:
            other.kill()
            other.wait()
    finally:
        os.sched_setaffinity(0, cores)


def test_a_timely_test_is_late_twice_at_most_and_wrong_never():
    """What is late in each of three goes fails; what is wrong fails in the first, also beside something late."""
    goes = list[float]()

    @timely
    def slow(*took_s: float) -> None:
        goes.append(took_s[len(goes)])
        in_time(goes[-1], 1)

    slow(2, 2, 1)
    assert goes == [2, 2, 1]
    goes.clear()
    with pytest.raises(AssertionError, match="it took 3"):
        slow(2, 2, 3)

    @timely
    def wrong() -> None:
        goes.append(0)
        raise ExceptionGroup("both", [Late("late"), ValueError("wrong")])

    goes.clear()
    with pytest.raises(ExceptionGroup) as caught:
        wrong()
    assert (len(goes), [str(one) for one in caught.value.exceptions]) == (1, ["wrong"])
