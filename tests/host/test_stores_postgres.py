"""What the PostgreSQL store adds: whose schema it is, many writers at once, and commits for groups."""

import asyncio
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from callboard.actors.errors import Fenced, LogError
from callboard.actors.store import Due, Header, Record
from callboard.runtime.stores import look_into, open_store

from .stored import at_disk, claimed, opened, record, records, schema_of, stopped, synced, until

psycopg = pytest.importorskip("psycopg")
SHORT_S = 0.2


@pytest.fixture
def url(postgres):
    """The url of a store that nobody used before."""
    return schema_of(postgres)


@pytest.fixture
def sql(postgres, url):
    """Asks the server something, in the schema of the url."""
    name = url.partition("schema=")[2]
    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.execute(f"SET search_path TO {name}")
        yield db.execute


# Whose the schema is.


def complaint(url):
    """What opening says."""
    with pytest.raises(LogError) as caught:
        open_store(url).open(lambda fn: fn())
    return str(caught.value)


async def test_a_schema_of_another_program_is_refused_untouched(url, sql):
    """A schema with tables that are not ours is refused by name and keeps what it has."""
    name = url.partition("schema=")[2]
    sql(f"CREATE SCHEMA {name}")
    sql("CREATE TABLE events(theirs int)")
    assert f"schema {name} of the database callboard at 127.0.0.1" in complaint(url)
    assert "another program" in complaint(url)
    assert [("events",)] == sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{name}'").fetchall()


async def test_a_newer_schema_is_refused_by_name(url, sql):
    """A version beyond what this build knows is refused with both numbers, for writing and for looking."""
    with opened(open_store(url)) as store:
        store.append("s", records(0, 1))
        await synced(store)
    sql("UPDATE callboard_version SET version = 99")
    assert "has version 99 and this build knows up to 1: install a newer callboard" in complaint(url)
    with pytest.raises(LogError, match="version 99"):
        look_into(url).is_nothing()


async def test_an_empty_schema_becomes_a_store(url, sql):
    """A schema that somebody made for us is used as it is."""
    sql(f"CREATE SCHEMA {url.partition('schema=')[2]}")
    with opened(open_store(url)) as store:
        store.append("s", records(0, 1))
        assert await synced(store) is None


async def test_schemas_are_stores_of_their_own(postgres):
    """Two schemas of one database share nothing, whatever their names are."""
    one, two = (f"{postgres.url()}?schema={name}" for name in ("Quote%22d%20%27Name", "select"))
    with opened(open_store(one)) as first, opened(open_store(two)) as second:
        first.append("s", records(0, 2))
        second.append("s", records(0, 1))
        assert (None, None) == (await synced(first), await synced(second))
        assert [2, 1] == [store.header("s").events for store in (first, second)]


def test_programs_that_make_one_schema_at_once_all_get_it(url):
    """Eight openings at the same moment make the tables once, and each of them writes."""
    ready, said = threading.Barrier(8), list[Any]()

    def live(n):
        store = open_store(url)
        ready.wait(10)
        try:
            store.open(lambda fn: fn())
            store.append(f"s{n}", records(0, 1))
            answered = SimpleQueue[Any]()
            store.sync(answered.put)
            said.append(answered.get(timeout=10))
        except LogError as error:
            said.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=live, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [None] * 8 == said


async def test_looking_makes_nothing(url, sql):
    """A store that is not there yet is nothing to look at, and is not made by looking."""
    looking = look_into(url)
    assert looking.is_nothing()
    looking.close()
    name = url.partition("schema=")[2]
    assert [] == sql(f"SELECT 1 FROM pg_namespace WHERE nspname = '{name}'").fetchall()


async def test_looking_reads_beside_a_writer_and_claims_nothing(url):
    """What is committed is read by who only looks, and the owner goes on."""
    with opened(open_store(url)) as store:
        store.append("s", records(0, 3), Header("s", title="t"))
        await synced(store)
        looking: Any = look_into(url)
        assert not looking.is_nothing()
        assert (3, "t", records(0, 3)) == (
            looking.header("s").events,
            looking.headers()[0].title,
            looking.records("s", -1, 9),
        )
        looking.close()
        store.append("s", records(3, 1))
        assert await synced(store) is None


# Two writers.


async def test_a_takeover_under_way_fences_an_append_that_comes_meanwhile(url, sql):
    """An append that waits for a takeover of its session to commit is refused by the epoch it finds then."""
    with opened(open_store(url)) as store:
        store.append("s", records(0, 1))
        assert await synced(store) is None
        sql("BEGIN")
        sql("UPDATE sessions SET owner = 'another', epoch = epoch + 1")
        store.append("s", records(1, 1), Header("s", title="late"), Due(5))
        answer = asyncio.ensure_future(synced(store, "s"))
        await asyncio.sleep(0.2)
        assert not answer.done()
        sql("COMMIT")
        assert isinstance(await answer, Fenced)
        assert (1, None, None) == (store.header("s").events, store.header("s").title, store.header("s").due_ms)


async def test_a_takeover_waits_for_an_append_under_way(url):
    """A takeover comes before or after each of the appends that run beside it, and never between its parts."""
    rounds = 60
    for round_ in range(3):
        with (
            opened(open_store(f"{url}&lease=0.05&durability=normal")) as one,
            opened(open_store(f"{url}&durability=normal")) as two,
        ):
            name = f"s{round_}"
            one.append(name, records(0, 1))
            await synced(one)
            written, at = 1, asyncio.get_running_loop().time()

            async def race(name=name):
                while await claimed(two, name) is not None:
                    await asyncio.sleep(0)
                return two.header(name).events

            taking = asyncio.ensure_future(race())
            # Its lease is over each moment: nothing renews it while appends follow one another.
            at_disk(one, "UPDATE owners SET lease_ms = 0 WHERE owner = ?", one._commits._rows._own.owner)
            while written < rounds * 10 and asyncio.get_running_loop().time() - at < 5:
                one.append(name, records(written, 1))
                if await synced(one, name) is not None:
                    break
                written += 1
            with stopped(one):  # so that it does not renew its lease for ever where nothing was taken over
                seen = await asyncio.wait_for(taking, 10)
            assert seen == two.header(name).events == written


async def test_a_conflict_takes_no_other_session_along(url):
    """In one group the fenced session's waiter hears it, the others' records, headers and due times are kept."""
    with opened(open_store(f"{url}&lease={SHORT_S}")) as one, opened(open_store(url)) as two:
        one.append("s", records(0, 1))
        await synced(one)
        with one._commits._disk:
            await asyncio.sleep(1.5 * SHORT_S)
            assert await claimed(two, "s") is None
        for session in ("a", "s", "b"):
            one.append(session, records(0 if session != "s" else 1, 2), Header(session, title="x"), Due(7))
        for_a, for_s, for_all = await asyncio.gather(synced(one, "a"), synced(one, "s"), synced(one))
        assert (None, Fenced, Fenced) == (for_a, type(for_s), type(for_all))
        assert {"a": (2, "x", 7), "b": (2, "x", 7), "s": (1, None, None)} == {
            header.id: (header.events, header.title, header.due_ms) for header in one.headers()
        }


async def test_a_record_no_server_can_hold_stops_its_session_alone(url):
    """A number beyond 64 bits, or a body that is no bytes, is refused by name while the rest of the group is kept."""
    with opened(open_store(url)) as store:
        store.append("big", [Record(0, 2**70, None, b"{}")])
        odd: Any = Bytes()
        store.append("odd", [Record(0, 0, None, odd)])
        store.append("good", records(0, 1))
        big, strange, good = await asyncio.gather(*(synced(store, one) for one in ("big", "odd", "good")))
        assert good is None
        assert "'big'" in str(big)
        assert "'odd'" in str(strange)
        assert ["good"] == [one.id for one in store.headers()]


class Bytes:
    """Something with a length that is no bytes."""

    def __len__(self):
        return 1


async def test_a_title_with_half_a_surrogate_pair_is_written_with_a_question_mark(url):
    """A text of a header that has no written form loses the piece, not the header."""
    with opened(open_store(url)) as store:
        store.append("s", records(0, 1), Header("s", title="a\ud800b\0c"))
        assert await synced(store) is None
        assert "a?b\0c" == store.header("s").title


# Due times.


async def test_due_times_are_read_in_order(url):
    """The index gives places behind another one, earliest first and then by id, byte by byte."""
    with opened(open_store(url)) as store:
        for session, due_ms in (("b", 5), ("a\0", 5), ("a", 5), ("é", 4), ("later", 9), ("never", None)):
            store.append(session, records(0, 1), Header(session), Due(due_ms))
        await synced(store)
        expected = [(4, "é"), (5, "a"), (5, "a\0"), (5, "b")]
        assert expected == store.due(8, (-1, ""), 10)
        assert expected[2:] == store.due(8, (5, "a"), 10)
        assert expected[:2] == store.due(8, (-1, ""), 2)
        store.append("b", records(1, 1), None, Due(None))
        await synced(store)
        assert expected[:3] == store.due(8, (-1, ""), 10)


async def test_numbers_beyond_64_bits_are_asked_for_as_the_largest(url):
    """Asking from or up to a number that no record can have answers as if it were the largest one."""
    with opened(open_store(url)) as store:
        store.append("s", records(0, 2), Header("s", due_ms=1))
        await synced(store)
        assert (records(0, 2), []) == (store.read("s", -(2**70), 2**70), store.read("s", 2**70, 9))
        assert [(1, "s")] == store.due(2**70, (-1, ""), 2**70)
        assert [1, 0] == [one.seq for one in store.last("s", ["note_added"], 2**70, 9)]


# Group commit.


async def test_waiters_share_a_commit(url):
    """Two hundred sessions that sync in one turn of the loop take a few commits, not two hundred."""
    told: list[Any] = []
    with opened(open_store(url), told) as store:
        for n in range(200):
            store.append(f"s{n}", records(0, 1))
        assert [None] * 200 == await asyncio.gather(*(synced(store, f"s{n}") for n in range(200)))
        assert (True, 200) == (len(told) <= 3, sum(one.events for one in told))


async def test_a_big_group_is_kept_whole(url):
    """Thousands of records in one append come back in order, in pages."""
    with opened(open_store(url)) as store:
        store.append("s", records(0, 20_003, size=100))
        assert await synced(store) is None
        assert records(0, 20_003, size=100) == store.read("s", -1, 99_999)
        assert [20_002] == [one.seq for one in store.read("s", 20_001, 9)]


async def test_a_large_body_is_kept_whole(url):
    """A body of many megabytes comes back byte by byte."""
    body = bytes(range(256)) * 40_000
    with opened(open_store(url)) as store:
        store.append("s", [Record(0, 0, None, body)])
        assert await synced(store) is None
        assert [Record(0, 0, None, body)] == store.read("s", -1, 9)


async def test_what_nobody_waits_for_is_written_anyway(url):
    """Beyond a thousand events the store writes without being asked."""
    with opened(open_store(url)) as store:
        for seq in range(1_500):
            store.append("s", records(seq, 1))
        await until(lambda: len(store.read("s", -1, 9_999)) > 1_000)


async def test_durability_is_the_servers_setting(url):
    """Full waits for the server's disk at each commit, and normal does not."""
    found = {}
    for durability in ("full", "normal"):
        with opened(open_store(f"{url}&durability={durability}")) as store:
            (found[durability],) = store._commits._rows._db.execute("SHOW synchronous_commit").fetchone()
    assert {"full": "on", "normal": "off"} == found


async def test_more_readers_than_connections_wait_for_each_other(url):
    """Thirty threads that read at once share a few connections, and all get what they asked for."""
    with opened(open_store(url)) as store:
        store.append("s", records(0, 50))
        await synced(store)
        pages = await asyncio.gather(*(asyncio.to_thread(store.read, "s", -1, 99) for _ in range(30)))
        assert [records(0, 50)] * 30 == pages
        (count,) = store._commits._rows._db.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%seq >%' AND pid <> pg_backend_pid()"
        ).fetchone()
        assert count <= 4


async def test_a_session_that_nobody_owns_any_more_is_written_after_its_last_record(url, sql):
    """Rows whose owner is on no list, as after a crash of the server's machine, are anybody's."""
    with opened(open_store(url)) as store:
        store.append("s", [record(0)])
        await synced(store)
    sql("UPDATE sessions SET owner = 'long gone'")
    with opened(open_store(url)) as store:
        assert await claimed(store, "s") is None
        store.append("s", [record(1)])
        assert await synced(store) is None
