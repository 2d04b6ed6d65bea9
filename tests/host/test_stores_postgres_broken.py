"""What happens when the connection to a PostgreSQL server breaks in the middle, or the server is gone for a while."""

import asyncio
import signal
import time
from typing import Any

import pytest

from callboard.actors.errors import Fenced, LogError
from callboard.actors.notices import Flushed, StoreFailed
from callboard.actors.store import Header
from callboard.runtime.stores import look_into
from callboard.runtime.stores.commits import PAUSE_S_MAX

from .stored import claimed, opened, records, schema_of, synced, until

psycopg = pytest.importorskip("psycopg")
from callboard.runtime.stores.postgres import PostgresStore  # noqa: E402 - it needs psycopg

RETRY_S = 0.4
PASSWORD = "quiet-please"  # of the server


@pytest.fixture
def server(own_postgres):
    """A server of this file's own: its tests end it."""
    return own_postgres


@pytest.fixture
def url(server):
    """The url of a store that nobody used before."""
    return schema_of(server)


@pytest.fixture
def sql(server):
    """Asks the server something; it is reached anew when it was ended meanwhile."""

    def ask(statement, *values):
        with psycopg.connect(server.url(), autocommit=True) as db:
            found = db.execute(statement, values)
            return found.fetchall() if found.description else []

    return ask


# Broken in the middle.


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("committed", [True, False])
async def test_a_group_in_doubt_is_written_once(url, known, committed):
    """A connection that breaks before or after a commit costs nothing: no record twice, none missing, nobody fenced."""
    told: list[Any] = []
    with opened(PostgresStore(url), told) as store:
        if known:
            for session in ("a", "b"):
                store.append(session, records(0, 2))
            await synced(store)
        first, rows = 2 if known else 0, store._commits._rows
        real_put = rows._put
        broken: list[str] = []

        def put(db, entries, stored):
            if broken:
                real_put(db, entries, stored)
                return
            broken.append("once")
            if committed:
                real_put(db, entries, stored)
                if not known:
                    db.pgconn.exec_(b"COMMIT")
            db.pgconn.exec_(b"SELECT pg_terminate_backend(pg_backend_pid())")
            db.execute("SELECT 1")

        rows._put = put
        for session in ("a", "b"):
            store.append(session, records(first, 3), Header(session, title="t"))
        for error in await asyncio.gather(synced(store, "a"), synced(store, "b")):
            assert error is None
        for session in ("a", "b"):
            store.append(session, records(first + 3, 1))
        assert await synced(store) is None
        for session in ("a", "b"):
            assert records(0, first + 4) == store.read(session, -1, 99)
            assert "t" == store.header(session).title
    failed = [one for one in told if isinstance(one, StoreFailed)]
    assert [True] == [one.retrying for one in failed]


async def test_what_came_after_a_group_in_doubt_is_written_behind_it(url):
    """Records that were appended while the commit was in doubt follow it, also when it had reached the disk."""
    with opened(PostgresStore(url, retry_s=RETRY_S)) as store:
        store.append("s", records(0, 1))
        await synced(store)
        rows = store._commits._rows
        real_put, real_connected = rows._put, rows._connected

        def put(db, entries, stored):
            rows._put = real_put
            real_put(db, entries, stored)
            rows._connected = refuse
            db.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        def refuse():
            raise psycopg.OperationalError("connection refused")

        rows._put = put
        store.append("s", records(1, 2))
        assert isinstance(await synced(store), LogError)
        store.append("s", records(3, 2))
        rows._connected = real_connected
        assert await synced(store) is None
        assert records(0, 5) == store.read("s", -1, 9)


async def test_a_group_in_doubt_whose_session_was_taken_over_is_fenced(url):
    """When another owner came before the connection did, what was in doubt is refused and the other's records stand."""
    with opened(PostgresStore(url, lease_s=0.2)) as one, opened(PostgresStore(url)) as two:
        one.append("s", records(0, 1))
        await synced(one)
        rows = one._commits._rows
        real_put = rows._put

        def put(db, entries, stored):
            rows._put = real_put
            time.sleep(0.5)
            db.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        rows._put = put
        one.append("s", records(1, 2))
        answer = asyncio.ensure_future(synced(one, "s"))
        await until(lambda: rows._put is real_put)
        await asyncio.sleep(0.3)
        assert await claimed(two, "s") is None
        two.append("s", records(1, 1))
        assert await synced(two) is None
        assert isinstance(await answer, Fenced)
        assert records(0, 2) == two.read("s", -1, 9)


async def test_connections_that_the_server_ends_are_made_anew(url, sql):
    """An idle connection that breaks is news of a retry at most: writing, reading and claiming go on."""
    told: list[Any] = []
    with opened(PostgresStore(url), told) as store:
        store.append("s", records(0, 1))
        await synced(store)
        assert 1 == len(store.read("s", -1, 9))
        for seq in range(1, 4):
            sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query <> ''")
            assert seq == len(store.read("s", -1, 9))
            store.append("s", records(seq, 1))
            assert await synced(store) is None
            assert await claimed(store, "s") is None
    assert all(one.retrying for one in told if isinstance(one, StoreFailed))


# Down, and up again.


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_server_that_is_down_is_told_and_then_mended(server, url, how):
    """While it is down who waits gets `LogError` by name; what was appended is kept, in order, and written later."""
    told: list[Any] = []
    with opened(PostgresStore(url, retry_s=RETRY_S), told) as store:
        store.append("s", records(0, 1))
        assert await synced(store) is None
        server.stop() if how == "stop" else server.kill()
        try:
            store.append("s", records(1, 1))
            store.append("t", records(0, 1))
            for error in await asyncio.gather(synced(store, "s"), synced(store, "t")):
                assert "cannot write to the database callboard at 127.0.0.1" in str(error)
                assert PASSWORD not in str(error)
            with pytest.raises(LogError, match="check that the server runs"):
                store.read("s", -1, 9)
            store.append("s", records(2, 1))
        finally:
            server.start()
        assert await synced(store) is None
        assert (records(0, 3), 1) == (store.read("s", -1, 9), store.header("t").events)
    failed = [one for one in told if isinstance(one, StoreFailed)]
    assert [True, False] == [one.retrying for one in failed]


async def test_a_server_that_restarts_in_time_is_no_error(server, url):
    """A restart within the bound: waiters hear of nothing but success, and a retry is told."""
    told: list[Any] = []
    with opened(PostgresStore(url), told) as store:
        store.append("s", records(0, 1))
        assert await synced(store) is None
        await asyncio.to_thread(server.stop)
        store.append("s", records(1, 1))
        answer = asyncio.ensure_future(synced(store))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(server.start)
        assert await answer is None
        assert records(0, 2) == store.read("s", -1, 9)
    assert [Flushed, StoreFailed, Flushed] == [type(one) for one in told]


async def test_a_restart_at_once_under_load_loses_nothing_acknowledged(server, url):
    """A server that ends as in a crash, while forty sessions write, has every acknowledged record once, in order."""
    acknowledged: dict[str, int] = {}
    with opened(PostgresStore(url, retry_s=20.0)) as store:
        ending = asyncio.Event()

        async def live(name):
            seq = 0
            while not ending.is_set():
                store.append(name, records(seq, 2))
                seq += 2
                assert await synced(store, name) is None
                acknowledged[name] = seq

        lives = [asyncio.create_task(live(f"s{n}")) for n in range(40)]
        for _ in range(3):
            await asyncio.sleep(0.2)
            await asyncio.to_thread(server.stop, signal.SIGQUIT)
            await asyncio.to_thread(server.start)
        await asyncio.sleep(0.2)
        ending.set()
        await asyncio.gather(*lives)
    looking = look_into(url)
    for name, seq in acknowledged.items():
        assert records(0, seq) == looking.records(name, -1, 99_999)
    looking.close()
    assert 40 == len(acknowledged)


async def test_records_that_a_crashed_server_lost_are_told(url, sql):
    """With `normal` a crash may take acknowledged records back: their session is told which, and others go on."""
    schema = url.partition("schema=")[2]
    with opened(PostgresStore(url, durability="normal")) as store:
        for session in ("s", "t"):
            store.append(session, records(0, 5))
        await synced(store)
        number = f"(SELECT number FROM {schema}.sessions WHERE id = 's')"
        sql(f"DELETE FROM {schema}.events WHERE seq > 2 AND session = {number}")
        sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query <> ''")
        for session in ("s", "t"):
            store.append(session, records(5, 1))
        for_s, for_t = await asyncio.gather(synced(store, "s"), synced(store, "t"))
        assert for_t is None
        assert "has lost records 3 to 4" in str(for_s)
        assert not isinstance(for_s, Fenced)
        assert [3, 6] == [store.header(session).events for session in ("s", "t")]


async def test_memory_is_bounded_while_the_server_is_down(server, url):
    """Beyond `pending_max` append raises `LogError` and takes nothing; after recovery it goes on."""
    store = PostgresStore(url, retry_s=RETRY_S, pending_max=200, pending_bytes_max=1 << 20)
    with opened(store):
        server.stop()
        try:
            store.append("s", records(0, 150, size=200))
            assert isinstance(await synced(store), LogError)
            store.append("s", records(150, 50))
            with pytest.raises(LogError, match="201 events"):
                store.append("s", records(200, 1))
            with pytest.raises(LogError, match="nothing more is taken"):
                store.append("t", records(0, 1, size=2 << 20))
        finally:
            server.start()
        assert await synced(store) is None
        store.append("s", records(200, 300))
        assert await synced(store) is None
        assert 500 == store.headers()[0].events


async def test_closing_over_a_server_that_is_down_answers_who_waits(server, url):
    """When the last commit fails too, each waiter gets `LogError` once, and the store opens again later."""
    answers: list[Any] = []
    with opened(PostgresStore(url, retry_s=RETRY_S)) as store:
        server.stop()
        try:
            for seq in range(5):
                store.append("s", records(seq, 1))
                store.sync(answers.append)
            await asyncio.to_thread(store.close)
        finally:
            server.start()
        await asyncio.sleep(PAUSE_S_MAX)
        assert [LogError] * 5 == [type(one) for one in answers]
    with opened(PostgresStore(url)) as again:
        assert [] == again.headers()


async def test_a_group_that_grew_large_has_time(server, url):
    """What gathered while the server was down may take longer than `retry_s` to write, and is written at once."""
    with opened(PostgresStore(url, retry_s=0.3)) as store:
        store.append("s", records(0, 1))
        assert await synced(store) is None
        server.stop()
        try:
            for first in range(1, 60_001, 1_000):
                store.append("s", records(first, 1_000, size=300))
            assert isinstance(await synced(store), LogError)
        finally:
            server.start()
        assert await synced(store) is None
        assert 60_001 == store.header("s").events
