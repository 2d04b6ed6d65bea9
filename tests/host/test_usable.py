"""Whether tasks can be dropped is found out at start, whatever else the machine does meanwhile."""

import time

import pytest
import trio

from callboard.actors import drop


@pytest.mark.parametrize("stall_s", [0.0, 1.2])
def test_a_machine_that_stands_still_is_not_another_trio(stall_s):
    """A round of the loop may take long; what counts is how many there are."""

    async def stall() -> None:
        for _ in range(4):
            await trio.lowlevel.checkpoint()
        time.sleep(stall_s)  # noqa: ASYNC251 - that is what it is about

    async def main() -> bool:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stall)
            return await drop.usable()

    assert trio.run(main)


def test_a_trio_that_does_not_drop_is_found_out(monkeypatch):
    """Nothing is left of the two tasks that tried it, and nobody waits for the time that is a limit."""
    monkeypatch.setattr(drop, "drop", lambda task: None)
    monkeypatch.setattr(drop, "park", lambda task: None)

    async def main() -> bool:
        before = trio.lowlevel.current_statistics().tasks_living
        with trio.fail_after(5):
            works = await drop.usable()
        assert trio.lowlevel.current_statistics().tasks_living == before
        return works

    assert not trio.run(main)
