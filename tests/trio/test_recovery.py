"""Turns that go on behind a crash: cut at every event of a story, whatever had happened, nothing is done twice."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from callboard.actors.books import HISTORY, TURN
from callboard.actors.codec import Codec
from callboard.actors.events import (
    Event,
    MessageQueued,
    ModelSaid,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnRecovered,
    TurnStarted,
)
from callboard.actors.memory import MemoryStore
from callboard.actors.model import Prompt, Reply
from callboard.actors.plugin import Call, Enter, Plugin, View
from callboard.actors.recovery import AGAIN_MAX
from callboard.actors.stage import Limits
from callboard.actors.store import Record
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import Tool, tool

from .strict import check_history, check_log, of_kind

GO_ON = Limits(recover="continue")
EFFECTS = ("none", "idempotent", "once")


@attrs.define(eq=False)
class Life:
    """What happened in one life of a program: which keys ran, how often the model was asked."""

    ran: list[tuple[str, str]] = attrs.field(factory=list)
    prompts: list[Prompt] = attrs.field(factory=list)

    def tools(self) -> list[Tool]:
        """One of each effect."""
        return [self.tool(effect) for effect in EFFECTS]

    def tool(self, effect: Any) -> Tool:
        """A tool that says that it ran."""

        @tool(name=effect, effect=effect, parallel=effect != "once")
        async def body(view: View) -> str:
            """Does something."""
            await trio.sleep(0.01)
            self.ran.append((effect, view.key))
            return f"did {effect}"

        return body

    async def reply(self, prompt: Prompt) -> Reply:
        """Three calls, then two, then the last word."""
        self.prompts.append(prompt)
        await trio.sleep(0.01)
        said = sum(type(one).__name__ == "Assistant" for one in prompt.messages)
        if said == 0:
            return Reply("first", [Call(effect) for effect in EFFECTS])
        return Reply("second", [Call("once"), Call("none")]) if said == 1 else Reply("done")


async def story(store: MemoryStore) -> list[Record]:
    """A whole life: one turn of three steps; its records."""
    life = Life()
    async with open_lab(ScriptedModel(life.reply), tools=life.tools(), store=store) as lab:
        s = await lab.session("s")
        ended = await s.run("go")
        assert (ended.reason, ended.steps, ended.tool_calls) == ("completed", 3, 5)
    return store.read("s", -1, 1_000)


def decoded(records: Sequence[Record]) -> list[Event]:
    """The events of records."""
    return [Codec().decode(record.body) for record in records]


def copy_of(records: Sequence[Record]) -> MemoryStore:
    """A store that has these and no more."""
    store = MemoryStore()
    store.append("s", records)
    return store


async def reopened(records: Sequence[Record], life: Life, limits: Limits = GO_ON) -> list[Event]:
    """The next life of a log, until it rests; what is on it then, and every promise was kept."""
    store = copy_of(records)
    async with open_lab(ScriptedModel(life.reply), tools=life.tools(), store=store, limits=limits) as lab:
        s = await lab.session("s", fresh=False)
        with trio.fail_after(60):
            await s.wait_idle()
        check_history(s.state(HISTORY).messages)
        assert not s.state(TURN).open
    events = decoded(store.read("s", -1, 1_000))
    check_log(events)
    return events


async def test_a_turn_goes_on_from_every_event():
    """Cut behind any event, the turn ends once under its number, each call has its result, and `once` runs once."""
    records = await story(MemoryStore())
    met = set()
    for cut in range(1, len(records) + 1):
        before, life = decoded(records[:cut]), Life()
        events = await reopened(records[:cut], life)
        assert events[:cut] == before
        if not any(isinstance(event, TurnStarted) for event in before):
            continue  # nothing had begun: what is queued waits for somebody
        (ended,) = of_kind(events, TurnEnded)
        assert (ended.turn, ended.reason, ended.last_message, ended.steps) == (1, "completed", "done", 3)
        assert [1] == [event.turn for event in of_kind(events, TurnStarted)]
        assert len(of_kind(events, TurnRecovered)) == (not any(isinstance(event, TurnEnded) for event in before))
        assert [1, 2, 3] == [event.step for event in of_kind(events, StepStarted)]
        assert ["first", "second", "done"] == [event.text for event in of_kind(events, ModelSaid)]
        # What had its result did not run again; what was dispatched ran again only where it may.
        returned = {event.call for event in of_kind(before, ToolReturned)}
        called = {event.call: event.name for event in of_kind(before, ToolCalled) if event.call not in returned}
        ran = Counter(key.rpartition("/")[2] for _, key in life.ran)
        assert set(ran.values()) <= {1}
        assert not returned & ran.keys()
        for call, name in called.items():
            assert (call in ran) == (name != "once"), (cut, call, name)
            met.add(name)
        receipts = {receipt.call: receipt.receipt for receipt in ended.receipts}
        unknown = {call for call, receipt in receipts.items() if receipt == "outcome_unknown"}
        assert unknown == {call for call, name in called.items() if name == "once"}
        assert {"completed", "outcome_unknown"} >= set(receipts.values())
    assert set(EFFECTS) == met


async def test_keys_are_the_same_again():
    """A call that runs again is given the key that it had, so that whoever keeps it can tell."""
    records = await story(MemoryStore())
    first = Life()
    async with open_lab(ScriptedModel(first.reply), tools=first.tools()) as lab:
        await (await lab.session("s")).run("go")
    (cut,) = [
        at for at, event in enumerate(decoded(records)) if isinstance(event, ToolCalled) and event.name == "idempotent"
    ]
    life = Life()
    await reopened(records[: cut + 1], life)
    again = next(one for one in life.ran if one[0] == "idempotent")
    assert again == next(one for one in first.ran if one[0] == "idempotent")
    assert "s/1/t1s1c2" == again[1]


async def test_closing_is_the_default():
    """Without being told to, a runtime closes what a crash left open, and runs nothing."""
    records = await story(MemoryStore())
    for cut in range(1, len(records)):
        life = Life()
        events = await reopened(records[:cut], life, Limits())
        assert ([], []) == (life.ran, life.prompts)
        assert [] == of_kind(events, TurnRecovered)


@pytest.mark.parametrize("lives", range(1, AGAIN_MAX + 2))
async def test_a_step_that_crashes_its_program_is_not_taken_up_for_ever(lives):
    """After so many times in one step the turn is closed as any that a crash cut off, and the next one works."""
    records = await story(MemoryStore())
    (cut, *_) = [at for at, event in enumerate(decoded(records)) if isinstance(event, ToolCalled)]
    records = records[: cut + 1]
    for _ in range(lives):
        store = copy_of(records)
        life = Life()
        with trio.CancelScope() as program:
            async with open_lab(ScriptedModel(life.reply), tools=life.tools(), store=store, limits=GO_ON) as lab:
                lab.stage.nursery.start_soon(partial(lab.session, "s", fresh=False))
                await trio.sleep(0.005)
                records = store.read("s", -1, 1_000)  # killed while its tools run
                program.cancel()
                await trio.sleep(1)
    recovered = of_kind(decoded(records), TurnRecovered)
    assert list(range(1, min(lives, AGAIN_MAX) + 1)) == [event.times for event in recovered]
    ended = of_kind(decoded(records), TurnEnded)
    assert (["interrupted"] if lives > AGAIN_MAX else []) == [event.reason for event in ended]


async def test_a_restart_by_the_supervisor_goes_on_too():
    """A plugin with a bug brings the actor down once: the turn goes on in its next life."""
    crashes = [1]

    async def before_step(view: View, messages: Any) -> Enter:
        if view.turn == 1 and crashes and len(life.prompts) == 1:
            crashes.pop()
            raise LookupError("a bug in a plugin")
        return Enter(messages)

    life = Life()
    plugin = Plugin("bug", before_step=before_step)
    async with open_lab(ScriptedModel(life.reply), tools=life.tools(), plugins=[plugin], limits=GO_ON) as lab:
        s = await lab.session("s", restarts_max=5)
        with trio.fail_after(60):
            ended = await s.run("go")
        assert (ended.turn, ended.reason, ended.last_message) == (1, "completed", "done")
        assert 1 == len(of_kind(lab.records("s"), TurnRecovered))
        assert 5 == len(life.ran)


async def test_an_interrupted_turn_is_not_taken_up():
    """Who asked a turn to end wants it ended, also when the program dies first."""
    records = await story(MemoryStore())
    events = decoded(records)
    at = next(at for at, event in enumerate(events) if isinstance(event, ToolCalled))
    asked = Record(at + 1, 0, 1, b'{"type":"abort_requested","turn":1,"cause":"interrupted"}')
    life = Life()
    after = await reopened([*records[: at + 1], asked], life)
    assert ([], []) == (life.ran, of_kind(after, TurnRecovered))


async def test_what_waits_behind_it_goes_on():
    """A message that was accepted behind the turn starts the next one by itself; parked input stays parked."""
    records = await story(MemoryStore())
    at = next(at for at, event in enumerate(decoded(records)) if isinstance(event, ToolCalled))
    queued = Record(at + 1, 0, 1, Codec().encode(MessageQueued("next", "and then", seq=at + 1)))
    life = Life()
    events = await reopened([*records[: at + 1], queued], life)
    assert [1, 2] == [event.turn for event in of_kind(events, TurnEnded)]
