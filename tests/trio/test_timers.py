"""Timers: calls at times of Trio's clock, in order, none that is not wanted, and no task that wakes for nothing."""

import trio

from callboard.actors.timers import LAST_ROUNDS_MAX, Timer, Timers


async def test_calls_come_in_the_order_of_their_times():
    """Each call comes at its time, whatever the order they were asked for in; equal times keep that order."""
    heard: list[tuple[str, float]] = []
    async with trio.open_nursery() as nursery:
        timers = Timers(nursery.start_soon)
        for name, due_s in (("late", 3.0), ("soon", 1.0), ("also soon", 1.0), ("past", -5.0)):
            timers.at(due_s, lambda name=name: heard.append((name, trio.current_time())))  # type: ignore[misc]
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert [("past", 0.0), ("soon", 1.0), ("also soon", 1.0), ("late", 3.0)] == heard


async def test_what_is_cancelled_is_not_called():
    """A timer that is cancelled, even by one that is due with it, is not called; cancelling again is harmless."""
    heard: list[str] = []
    async with trio.open_nursery() as nursery:
        timers = Timers(nursery.start_soon)
        second = timers.at(1, lambda: heard.append("never"))
        first = timers.at(0.5, lambda: heard.append("never"))
        first.cancel()
        first.cancel()
        due: list[Timer] = []

        def cancel_the_other() -> None:
            due[1].cancel()

        due.append(timers.at(2, cancel_the_other))
        due.append(timers.at(2, lambda: heard.append("never")))
        second.cancel()
        await trio.sleep(3)
        assert (0, []) == (len(timers), heard)
        nursery.cancel_scope.cancel()


async def test_nobody_wakes_when_nothing_is_wanted():
    """With the last timer cancelled virtual time has nothing to jump to but what the test itself waits for."""
    async with trio.open_nursery() as nursery:
        timers = Timers(nursery.start_soon)
        timers.at(1, lambda: None).cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == float("inf")
        nursery.cancel_scope.cancel()


async def test_a_call_that_asks_for_another_lets_others_have_their_turn():
    """However late it is, what is asked for from inside a call comes in a later round."""
    order: list[str] = []

    async def other() -> None:
        while len(order) < 5:
            await trio.lowlevel.checkpoint()
            order.append("other")

    def again() -> None:
        order.append("call")
        if order.count("call") < 3:
            timers.at(-1, again)

    async with trio.open_nursery() as nursery:
        timers = Timers(nursery.start_soon)
        timers.at(0, again)
        nursery.start_soon(other)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    last = len(order) - order[::-1].index("call")
    assert (3, True) == (order.count("call"), "other" in order[order.index("call") : last])


async def test_patient_call_waits_some_rounds():
    """Whoever is patient is called after the others, and everybody has had some turns between."""
    order: list[str] = []

    async def other() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            order.append("other")

    async with trio.open_nursery() as nursery:
        timers = Timers(nursery.start_soon)
        timers.at(0, lambda: order.append("patient"), patient=True)
        timers.at(0, lambda: order.append("plain"))
        nursery.start_soon(other)
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert LAST_ROUNDS_MAX - 1 <= order[order.index("plain") : order.index("patient")].count("other")
