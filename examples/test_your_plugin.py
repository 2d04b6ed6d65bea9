"""Tests of your own plugin: this one loses money when its program dies, and the kit finds out where.

Run it, or let pytest collect it. `transfer` writes what it takes and what it gives as two facts. One append is whole or
not there; two are not, and whatever dies between them leaves half of it.
"""

from contextlib import AbstractAsyncContextManager
from functools import partial

import trio

from callboard.actors import Call, Event, Plugin, Projection, Reply, Tool, View, tool
from callboard.actors.store import Store
from callboard.actors.testing import Choices, Fault, Lab, ScriptedModel, crash_at_each_append, open_lab, seeded_run


class Taken(Event, frozen=True):
    """Money left the purse."""

    amount: int


class Given(Event, frozen=True):
    """Money came to the till."""

    amount: int


def missing(state: int, event: Event) -> int:
    """What was taken and not given."""
    match event:
        case Taken():
            return state + event.amount
        case Given():
            return state - event.amount
    return state


SLOW: tuple[Fault, ...] = ("stall",)  # a disk that takes its time, so that an interrupt may come between two writes

MISSING = Projection[int]("missing", 0, missing, on=(Taken, Given))


@tool(name="transfer", effect="idempotent")
async def in_two_writes(amount: int, view: View) -> str:
    """Move money from the purse to the till."""
    await view.commit(Taken(amount))
    await view.commit(Given(amount))
    return f"Moved {amount}."


@tool(name="transfer", effect="idempotent")
async def in_one_write(amount: int, view: View) -> str:
    """Move money from the purse to the till."""
    await view.commit(Taken(amount), Given(amount))
    return f"Moved {amount}."


async def story(lab: Lab) -> None:
    """One turn with one transfer."""
    session = await lab.session()
    await session.run("Move 5.")


def check(lab: Lab) -> None:
    """Whatever died, no money is missing."""
    for session in lab.sessions.values():
        assert session.state(MISSING) == 0, f"{session.state(MISSING)} is missing"


def dies_everywhere(transfer: Tool) -> int:
    """Kill the story at each of its appends, and look at the next life; how many times."""

    def opens(store: Store) -> AbstractAsyncContextManager[Lab]:
        model = ScriptedModel([Reply("", [Call("transfer", {"amount": 5})]), Reply("Done.")])
        return open_lab(model, plugins=[Plugin("purse", (Taken, Given), (MISSING,), tools=(transfer,))], store=store)

    return crash_at_each_append(story, check, opens=opens)


async def any_day(transfer: Tool, choices: Choices) -> None:
    """Some turns with transfers of any size, some of them interrupted."""
    amounts = [choices.integer(1, 9) for _ in range(choices.integer(1, 4))]
    calls = [Reply("", [Call("transfer", {"amount": amount})]) for amount in amounts]
    model = ScriptedModel([reply for call in calls for reply in (call, Reply("Done."))])
    plugin = Plugin("purse", (Taken, Given), (MISSING,), tools=(transfer,))
    async with open_lab(model, plugins=[plugin], store=choices.store()) as lab:
        session = await lab.session()
        for amount in amounts:
            await session.submit(f"Move {amount}.")
            if choices.chance(0.3):
                await trio.sleep(choices.integer(0, 5))
                await session.interrupt()
        await session.wait_idle()
        check(lab)


def test_it_survives_every_death() -> None:
    """The plugin as it should be."""
    assert dies_everywhere(in_one_write) > 0


def test_it_survives_any_day() -> None:
    """The same, with what a seed makes up."""
    assert seeded_run(partial(any_day, in_one_write), 50, faults=SLOW) == 50


def main() -> None:
    """Show what the kit says of the plugin with the bug, and that the other one is fine."""
    for hunt in (
        partial(dies_everywhere, in_two_writes),
        partial(seeded_run, partial(any_day, in_two_writes), 200, faults=SLOW),
    ):
        try:
            hunt()
        except* AssertionError as found:
            print("Found:", *innermost(found), *getattr(found, "__notes__", ()), sep="\n  ")
    test_it_survives_every_death()
    test_it_survives_any_day()
    print("In one write nothing is missing, whatever dies.")


def innermost(error: BaseException) -> list[str]:
    """The words of all errors in a group."""
    if isinstance(error, BaseExceptionGroup):
        return [words for one in error.exceptions for words in innermost(one)]
    return [str(error)]


if __name__ == "__main__":
    main()
