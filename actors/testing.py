"""The kit for tests of tools, plugins and whole stories. Public; pure Trio: no asyncio, no threads, no disk.

A lab is a runtime inside one Trio run: `async with open_lab(model, plugins=[...]) as lab`, then
`session = await lab.session()` and `await session.run("text")`. Its model is a `ScriptedModel`, its wall clock a
`FakeWall` that the test moves, its store a `MemoryStore`. Leaving it checks that each log replays to the state of its
session.

`seeded_run(scenario, 100)` runs an async function once for each seed: the seed orders the tasks, and virtual time jumps
when nothing happens. A scenario with a parameter is given `Choices`: `choices.integer(1, 9)`, `choices.pick([...])`,
`choices.chance(0.2)`, `choices.store()`. When a seed fails, the choices are made fewer and lower for as long as the
same thing goes wrong; the note of the error says them, and `replay_choices(scenario, [...])` plays them again.

`FaultyStore(inner, fail_at=3)` stands before any store, also in `open_runtime(store=...)`: appends fail, syncs stall,
or the program dies. `crash_at_each_append(story, check, opens=...)` dies at every append of a story, one after the
other, opens the store again each time, and checks what Callboard promises and what `check(lab)` says the plugin does.
`examples/test_your_plugin.py` shows both on a plugin that loses money.

Tests with asyncio give `open_runtime` a `clock=FakeWall()` that they move, and a `store=FaultyStore(...)`.
"""

from callboard.actors.choices import FAULTS, Choices, Fault
from callboard.actors.crashes import World, crash_at_each_append
from callboard.actors.faults import FaultyStore, Write
from callboard.actors.lab import START_MS, FakeWall, Lab, LabSession, open_lab
from callboard.actors.memory import MemoryStore
from callboard.actors.promises import check_history, check_log, check_messages, of_kind
from callboard.actors.scripting import ScriptedModel
from callboard.actors.seeds import Bounds, Hung, replay_choices, seeded_run

__all__ = [
    "FAULTS",
    "START_MS",
    "Bounds",
    "Choices",
    "FakeWall",
    "Fault",
    "FaultyStore",
    "Hung",
    "Lab",
    "LabSession",
    "MemoryStore",
    "ScriptedModel",
    "World",
    "Write",
    "check_history",
    "check_log",
    "check_messages",
    "crash_at_each_append",
    "of_kind",
    "open_lab",
    "replay_choices",
    "seeded_run",
]
