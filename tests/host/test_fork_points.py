"""Forks and rewinds of sessions with much behind them: compacted, asked, scheduled, and cut off at any write."""

import asyncio

import pytest

from callboard.actors import Accepted, Call, Reply
from callboard.actors.asked import QUESTIONS
from callboard.actors.books import HISTORY
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime

from .hosted import echo, events, read_to_end, until
from .parents import Parent, spawn, wait
from .stored import schema_of
from .test_fork import ends, records
from .test_rewind import Stopping

REMIND = {"prompt": "water the beans", "title": "beans", "after_seconds": 3_600}
ASK = {"id": "one", "header": "Which", "question": "Which one?", "options": [{"label": "this"}, {"label": "that"}]}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request, tmp_path):
    """Each kind of store."""
    if request.param == "postgres":
        return schema_of(request.getfixturevalue("postgres"))
    return "memory" if request.param == "memory" else f"sqlite:///{tmp_path / 'x.db'}"


async def test_a_compacted_session_can_be_forked_on_either_side(store):
    """Behind the compaction a fork reads the summary, before it everything that was said."""
    async with open_runtime(model=echo(), store=store) as rt:
        s = await rt.create("s")
        await s.run("a word of old")
        at = ends(rt, "s")[0]
        accepted = await s.compact()
        assert isinstance(accepted, Accepted)
        await s.wait(accepted.turn)
        before, after = await s.fork(at, session_id="before"), await s.fork(session_id="after")
        assert rt.actor("s").log[HISTORY].messages == rt.actor(after.id).log[HISTORY].messages
        texts = [getattr(one, "text", "") for one in rt.actor(before.id).log[HISTORY].messages]
        assert ["a word of old", "re: a word of old"] == [text for text in texts if "word of old" in text]
        assert (2, 3) == ((await before.run("on")).turn, (await after.run("on")).turn)
        rewound = await s.rewind(at)
        assert (at, 2) == (rewound.at, (await s.run("again")).turn)


async def test_reminders_stay_with_the_log_that_is_over(store):
    """A fork has no reminders; a rewound session has none either, and the old log's is never due again."""
    replies = [Reply("", [Call("schedule_create", REMIND)]), Reply("set"), Reply("two"), Reply("three")]
    async with open_runtime(model=ScriptedModel(replies), store=store) as rt:
        s = await rt.create("s")
        await s.run("remind me")
        far = 10**15
        assert ["s"] == [id for _, id in rt.store.due(far, (0, ""), 9)]
        await s.fork(session_id="f")
        assert ["s"] == [id for _, id in rt.store.due(far, (0, ""), 9)]
        rewound = await s.rewind()
        assert [] == rt.store.due(far, (0, ""), 9)
        assert [None, None] == [rt.actor(id).log.due_ms for id in ("s", "f")]
        assert "ReminderSet" in [type(one).__name__ for one in events(rt, rewound.old)]
        assert "completed" == (await s.run("on")).reason


async def test_agents_of_agents_go_along_with_the_old_log(store):
    """A whole tree below a session is read beside its old log, level by level, and every name is free again."""
    play = Parent(spawn("a"), wait(), Reply("one"), Reply("two"))
    async with open_runtime(model=ScriptedModel(play), store=store) as rt:
        s = await rt.create("s")
        await s.run("go")
        await rt.spawn("s.a", "deep", "dig")
        await (await rt.open("s.a.deep")).wait_idle()
        await s.rewind(0)
        found = {one.id: (one.parent, one.root, one.status) for one in await rt.stored()}
        assert {
            "s": (None, "s", "idle"),
            "s~1": (None, "s~1", "rewound"),
            "s~1.a": ("s~1", "s~1", "rewound"),
            "s~1.a.deep": ("s~1.a", "s~1", "rewound"),
        } == found


async def test_an_open_question_stays_with_the_source(store):
    """While a session asks its user a fork begins before that turn; rewinding takes the question back."""
    replies = [Reply("", [Call("request_user_input", {"questions": [ASK]})]), Reply("asked"), Reply("on")]
    async with open_runtime(model=ScriptedModel(replies), store=store) as rt:
        s = await rt.create("s")
        await s.set_mode("plan")
        reading = asyncio.ensure_future(read_to_end(s.events()))  # only somebody who reads can answer
        running = asyncio.ensure_future(s.run("ask me"))
        await until(lambda: rt.actor("s").log[QUESTIONS] or running.done())
        asked = bool(rt.actor("s").log[QUESTIONS])
        fork = await s.fork(session_id="f")
        assert () == rt.actor(fork.id).log[QUESTIONS]
        await s.rewind()
        assert (True, ()) == (asked, rt.actor("s").log[QUESTIONS])
        assert "aborted" == (await running).reason
        assert await reading


async def test_a_fork_that_breaks_off_at_any_write_is_made_or_not():
    """Whichever write of a fork is the last, after a restart it is whole or not there, and its source as it was."""
    breaks = 0
    for left in range(20):
        dying = Stopping()
        async with open_runtime(model=echo(), store=dying) as rt:
            s = await rt.create("s")
            for _ in range(30):
                await s.run("again")
            whole, dying.left = records(rt, "s"), left
            done = await asyncio.gather(s.fork(session_id="f"), return_exceptions=True)
            broke, dying.left = dying.left < 0, 10**9
        breaks += broke
        async with open_runtime(model=echo(), store=dying) as rt:
            made = "f" in {one.id for one in await rt.stored()}
            assert whole == records(rt, "s")[: len(whole)]
            assert made == (not isinstance(done[0], Exception))
            if made:
                assert whole[1:] == records(rt, "f")[1 : len(whole)]
                assert 31 == (await (await rt.open("f")).run("on")).turn
        if not broke:
            break
    assert 3 <= breaks
