"""Random stories under seeds: whatever the order, every promise of a session holds; and what a seed chooses.

A seed that ever fails gets a test of its own here, by what it found.
"""

import pytest
import trio

from callboard.actors.testing import seeded_run

from . import chaos

SEEDS_MAX = 40


@pytest.mark.parametrize("story", [chaos.calm, chaos.moody, chaos.crashing, chaos.everything])
def test_every_promise_holds_in_any_order(story):
    """Turns end once, calls have one result, messages one fate, replay is equal, and the next turn works."""
    assert seeded_run(story, range(SEEDS_MAX)) == SEEDS_MAX


def test_seeds_give_all_orders_of_four_tasks():
    """200 seeds see every one of the 24 orders in which four tasks can run, and a seed sees the same one again."""
    orders: list[tuple[int, ...]] = []

    async def four() -> None:
        order: list[int] = []

        async def task(name: int) -> None:
            await trio.lowlevel.checkpoint()
            order.append(name)

        async with trio.open_nursery() as nursery:
            for name in range(4):
                nursery.start_soon(task, name)
        orders.append(tuple(order))

    assert seeded_run(four, range(200)) == 200
    assert len(set(orders)) == 24
    first = list(orders)
    seeded_run(four, range(200))
    assert orders[200:] == first


def test_failing_seed_is_named():
    """A failure says how to repeat it, and the scheduler is as it was before."""

    async def fails() -> None:
        raise ValueError("here")

    with pytest.raises(ValueError, match="here") as caught:
        seeded_run(fails, [7])
    assert caught.value.__notes__ == ["with seed 7: repeat it with seeded_run(fails, [7])"]
