"""Leaving memory and coming back: what holds a session, what races with its last step, what survives it."""

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import trio

from callboard.actors.books import QUEUE, TURN
from callboard.actors.errors import SessionClosed
from callboard.actors.eventlog import EventLog
from callboard.actors.events import TurnEnded, TurnStarted
from callboard.actors.messages import (
    Await,
    Idle,
    Interrupt,
    Interrupting,
    Passivate,
    ResumeQueue,
    SetMode,
    Stop,
    Stopped,
    Submit,
    Wake,
)
from callboard.actors.model import Reply
from callboard.actors.phase import Phase
from callboard.actors.plugin import Plugin
from callboard.actors.session import Session
from callboard.actors.testing import ScriptedModel, seeded_run
from callboard.runtime.sweep import Sweep

from .disks import Disk
from .housed import House, open_house
from .strict import check_log, of_kind, until

REPLIES = ScriptedModel(lambda prompt: Reply(f"turn {prompt.turn}"))


def number(item: Any) -> Any:
    """The number of an event; anything else as it is."""
    return getattr(item, "seq", item)


async def follow(reading: Any, seen: list[Any]) -> None:
    """Collect what a reader sees."""
    async for item in reading:
        seen.append(number(item))  # noqa: PERF401 - others look at it meanwhile


async def test_leaves_and_comes_back_with_its_log():
    """A session that left memory is cold, loads at the next message, and goes on where it was."""
    async with open_house(REPLIES) as house:
        await house.session()
        await house.run("s", "one")
        states = [house.registry.state("s")]
        house.registry.evict(house.registry.actor("s"))
        states.append(house.registry.state("s"))
        await until(lambda: house.registry.state("s") == "cold")
        states.append(house.registry.state("s"))
        answer = house.tell("s", lambda reply: Submit("two", ended=reply))
        states.append(house.registry.state("s"))
        assert ("completed", "turn 2") == ((ended := await answer.get()).reason, ended.last_message)
        assert ["live", "evicting", "cold", "loading", "live"] == [*states, house.registry.state("s")]
        assert (["s"], ["s"]) == (house.loads, house.gone)
        assert 1 == len(of_kind(house.lab.records(), TurnEnded)[1:])


async def test_left_actor_is_free_for_the_collector():
    """Nothing holds the actor of a session that left memory, not even what its last turn ran in."""
    kept = _actors()  # by what was parked in other tests, for ever
    async with open_house(REPLIES) as house:
        await house.session()
        await house.run("s", "one")
        await house.evicted("s")
        await trio.lowlevel.checkpoint()
        del house.lab.sessions["s"]
        assert [] == [one for one in _actors() if not any(one is before for before in kept)]


def _actors() -> list[object]:
    """What is left of sessions in this program."""
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, Session | EventLog)]


async def test_stale_actor_says_so():
    """Whoever still holds the actor that left is refused, and harmless verbs are answered."""
    async with open_house() as house:
        actor = await house.session()
        await house.evicted("s")
        with pytest.raises(SessionClosed):
            actor.tell(Submit("late"))
        answers: list[Any] = []
        actor.tell(Interrupt(reply=answers.append))
        actor.tell(Stop(reply=answers.append))
        assert ([Idle(), Stopped()], Phase.PASSIVATED) == (answers, actor.phase)
        with pytest.raises(SessionClosed, match="is not in memory"):
            house.registry.actor("s")


async def _open_wait(house: House) -> None:
    house.tell("s", lambda reply: Await(7, reply=reply))


async def _belonging(house: House) -> None:
    house.registry.actor("s").scene.belongings = {"process": trio.CancelScope()}  # type: ignore[dict-item]


async def _held(house: House) -> None:
    house.held.add("s")


async def _turn(house: House) -> None:
    await house.submit("s", "go")


@pytest.mark.parametrize("hold", [_open_wait, _belonging, _held, _turn])
async def test_what_holds_a_session(hold):
    """An open wait, something that belongs to it, a child, a running turn: it stays, and is live again."""

    async def slow(prompt):
        await trio.sleep(1000)
        return Reply()

    async with open_house(ScriptedModel(slow)) as house:
        actor = await house.session()
        await hold(house)
        await trio.testing.wait_all_tasks_blocked()
        assert not house.registry.may_leave(actor)
        house.registry.evict(actor)
        await trio.testing.wait_all_tasks_blocked()
        assert ("live", []) == (house.registry.state("s"), house.gone)
        actor.scene.belongings = None


async def test_plugin_holds_a_session():
    """A plugin that says so keeps a session in memory for as long as it says so."""
    armed = [True]
    goal = Plugin("goal", holds=lambda view: armed[0] and view.session == "s")
    async with open_house(plugins=(goal,)) as house:
        actor = await house.session()
        assert not house.registry.may_leave(actor)
        armed.clear()
        armed.append(False)
        await house.evicted("s")


LETTERS = {
    "submit": lambda reply: Submit("late", ended=reply),
    "wait": lambda reply: Await(1, reply=reply),
    "interrupt": lambda reply: Interrupt(reply=reply),
    "mode": lambda reply: SetMode(active=True, reply=reply),
    "resume": lambda reply: ResumeQueue(reply=reply),
    "wake": lambda reply: Wake(reply=reply),
}


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("at", range(6))
async def test_message_at_each_point_of_the_way_out(letter, at):
    """A message that comes before, during or after the flush, or right after the last step, is acted on once."""
    disk = Disk()
    async with open_house(REPLIES, disk=disk) as house:
        actor = await house.session()
        disk.stall()
        actor.tell(SetMode(active=True))  # something to flush
        actor.tell(SetMode(active=False))
        await trio.testing.wait_all_tasks_blocked()
        if at == 0:
            answer = house.tell("s", LETTERS[letter])
        house.registry.evict(actor)
        if at == 1:
            answer = house.tell("s", LETTERS[letter])
        await trio.testing.wait_all_tasks_blocked()
        assert "evicting" == house.registry.state("s") or at == 0
        if at == 2:
            answer = house.tell("s", LETTERS[letter])
        disk.go()
        if at >= 3:
            for _ in range(at - 3):
                await trio.lowlevel.checkpoint()
            answer = house.tell("s", LETTERS[letter])
        with trio.move_on_after(5) as patience:
            if letter not in ("wake", "wait"):
                await answer.get()
        assert not patience.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
        turns = of_kind(house.lab.records(), TurnStarted)
        assert (letter == "submit") == len(turns)
        assert len(house.loads) <= 1
        assert ("live" if letter in ("submit", "wait") else house.registry.state("s")) == house.registry.state("s")


async def test_message_and_alarm_share_one_load():
    """Whatever comes to a cold session at the same time starts one load, and all of it enters one mailbox."""
    async with open_house(REPLIES) as house:
        await house.session()
        await house.evicted("s")
        house.ring("s")
        answers = [house.tell("s", lambda reply: Submit("now", ended=reply)) for _ in range(3)]
        house.ring("s")
        assert [1, 2, 3] == [(await answer.get()).turn for answer in answers]
        assert ["s"] == house.loads


async def test_queue_mode_and_answers_survive():
    """Parked input, Plan mode, what the first step is told, and answered ids are as they were before."""

    async def slow(prompt):
        await trio.sleep(1000)
        return Reply()

    async with open_house(ScriptedModel(slow)) as house:
        await house.session()
        await house.submit("s", "one")
        await house.submit("s", "two", "m2")
        first = await house.ask("s", lambda reply: Interrupt(id="i1", reply=reply))
        await house.ask("s", lambda reply: Await(1, reply=reply))
        await house.ask("s", lambda reply: SetMode(active=True, reply=reply))
        before = house.registry.actor("s")
        await house.evicted("s")
        assert ({"passivated": 1}, {"passivated": 1}) == (house.registry.count()[0], house.registry.count()[2])
        assert Interrupting(1) == first == await house.ask("s", lambda reply: Interrupt(id="i1", reply=reply))
        after = house.registry.actor("s")
        assert after is not before
        assert (before.log.states, before.held, before.scene.fresh) == (
            after.log.states,
            after.held,
            after.scene.fresh,
        )
        await house.submit("s", "two", "m2")
        assert ["two"] == [message.text for message in after.log[QUEUE]]


async def test_looking_at_a_cold_session_loads_nothing():
    """The log of a cold session can be read and followed; it stays cold."""
    async with open_house(REPLIES) as house:
        await house.session()
        await house.run("s", "one")
        await house.evicted("s")
        log, phase = house.registry.log("s")
        assert (1, Phase.PASSIVATED) == (log[TURN].number, phase)
        reading = house.registry.read("s", -1, deltas=False, queue_max=9)
        seen = [number(await anext(reading)) for _ in range(log.seq)]
        assert (list(range(log.seq)), "cold", []) == (seen, house.registry.state("s"), house.loads)
        await reading.aclose()


@pytest.mark.parametrize("begun", ["live", "cold", "loading"])
async def test_reader_goes_on_without_gap_or_repeat(begun):
    """A reader that began before, between or while loading sees every event once, through three passivations."""
    async with open_house(REPLIES) as house:
        await house.session()
        await house.run("s", "one")
        if begun != "live":
            await house.evicted("s")
        if begun == "loading":
            house.ring("s")
            assert "loading" == house.registry.state("s")
        reading = house.registry.read("s", -1, deltas=False, queue_max=99)
        seen: list[Any] = []
        house.lab.stage.nursery.start_soon(follow, reading, seen)
        for text in ("two", "three", "four"):
            await house.run("s", text)
            await house.evicted("s")
        log, _ = house.registry.log("s")
        await until(lambda: len(seen) >= log.seq)
        assert list(range(log.seq)) == seen
        assert "cold" == house.registry.state("s")
        await reading.aclose()


async def test_readers_hold_nothing():
    """A reader neither keeps a session in memory nor is kept by one that left."""
    async with open_house(REPLIES) as house:
        actor = await house.session()
        reading = house.registry.read("s", -1, deltas=True, queue_max=9)
        assert house.registry.may_leave(actor)
        await house.evicted("s")
        gone = weakref.ref(reading)
        del reading
        gc.collect()
        assert (None, 0) == (gone(), len(house.registry.audience))


async def test_refused_flush_keeps_it():
    """A session whose last events the disk refuses stays in memory."""
    disk = Disk()
    async with open_house(disk=disk) as house:
        actor = await house.session()
        disk.failing = True
        actor.tell(SetMode(active=True))
        house.registry.evict(actor)
        await trio.testing.wait_all_tasks_blocked()
        assert "live" == house.registry.state("s")
        disk.failing = False


async def test_sweep_asks_who_has_rested_for_long(mock_clock):
    """One sweep lets each session go once it has rested for `evict_s`, and none that did something since."""
    mock_clock.autojump_threshold = 0
    async with open_house(REPLIES) as house:
        for name in ("a", "b", "held"):
            await house.session(name)
        house.held.add("held")
        house.lab.stage.nursery.start_soon(Sweep(house.registry, 80.0).run)
        await trio.sleep(60)
        await house.run("b", "busy")
        await trio.sleep(35)
        assert ["cold", "live", "live"] == [house.registry.state(name) for name in ("a", "b", "held")]
        house.held.clear()
        await trio.sleep(60)
        assert ["cold", "cold", "cold"] == [house.registry.state(name) for name in ("a", "b", "held")]


class Story:
    """Three sessions on a moody disk, told things and asked to leave in random order."""

    def __init__(self, house: House, disk: Disk, draw: random.Random) -> None:
        self.house, self.disk, self.draw = house, disk, draw
        self.sent = dict.fromkeys("abc", 0)
        self.seen: dict[str, list[Any]] = {name: [] for name in self.sent}
        self.answers: list[Any] = []

    async def act(self, name: str) -> None:
        """One thing at random."""
        acts = (self.submit, self.submit, self.evict, self.evict, self.house.ring, self.moody)
        self.draw.choice(acts)(name)
        if self.draw.random() < 0.2:
            await trio.sleep(self.draw.random() / 5)
        for _ in range(self.draw.randrange(4)):
            await trio.lowlevel.checkpoint()

    def submit(self, name: str) -> None:
        """A turn."""
        self.sent[name] += 1
        self.answers.append(self.house.tell(name, lambda reply: Submit("text", ended=reply)))

    def evict(self, name: str) -> None:
        """Ask it to leave, whatever it does."""
        if self.house.registry.state(name) == "live":
            self.house.registry.evict(self.house.registry.actor(name))

    def moody(self, name: str) -> None:
        """The disk stalls or goes on."""
        self.disk.go() if self.disk.stalled else self.disk.stall()


async def told_at_random() -> None:
    """Each message has its turn, each log keeps its promises, each reader sees all of it once."""
    disk, model = Disk(), ScriptedModel(lambda prompt: Reply(f"turn {prompt.turn}"), delay_s=0.05)
    async with open_house(model, disk=disk) as house:
        story = Story(house, disk, random.Random(random.random()))
        for name, seen in story.seen.items():
            await house.session(name)
            reading = house.registry.read(name, -1, deltas=False, queue_max=500)
            house.lab.stage.nursery.start_soon(follow, reading, seen)
        for _ in range(60):
            await story.act(story.draw.choice("abc"))
        disk.go()
        assert {"completed"} >= {(await answer.get()).reason for answer in story.answers}
        for name, seen in story.seen.items():
            records = house.lab.records(name)
            check_log(records)
            assert story.sent[name] == len(of_kind(records, TurnStarted))
            await until(_as_long(seen, len(records)))
            assert list(range(len(records))) == seen


def _as_long(seen: list[Any], count: int) -> Callable[[], bool]:
    return lambda: len(seen) >= count


def test_every_message_is_acted_on_once_in_any_order():
    """Whatever the order of messages, alarms, evictions and commits: each message has its turn, readers see all."""
    assert seeded_run(told_at_random, range(40)) == 40


async def test_ask_to_leave_is_answered_when_it_does_not():
    """Who asks a busy session to leave is told that it stays."""
    async with open_house() as house:
        actor = await house.session()
        said: list[Any] = []
        actor.tell(Submit("go"))
        actor.mailbox.put(Passivate(lambda actor: True, reply=said.append))
        await trio.testing.wait_all_tasks_blocked()
        assert ([None], Phase.IDLE) == (said, actor.phase)
