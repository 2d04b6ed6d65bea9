"""What happens while a PostgreSQL server lets nobody in, refuses, or stands still."""

import asyncio
import contextlib
import os
import time
from typing import Any

import pytest

from callboard.actors.errors import Fenced, LogError
from callboard.actors.store import Record

from .stored import claimed, mounted, opened, records, schema_of, synced, until

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


def complaint(url, retry_s=RETRY_S):
    """What opening says; never the password."""
    with pytest.raises(LogError) as caught:
        PostgresStore(url, retry_s=retry_s).open(lambda fn: fn())
    said = str(caught.value)
    assert PASSWORD not in said
    assert "wrong-pass" not in said
    assert "://" not in said
    assert said.count("\n") == 0
    return said


# Not let in.


def test_a_wrong_password_is_told(server):
    """A password that the server does not take is named as such, without telling it."""
    assert "correct the url" in complaint(server.url(password="wrong-pass"))
    assert "password authentication failed" in complaint(server.url(password="wrong-pass"))


def test_an_unknown_user_and_an_unknown_database_are_told(server):
    """What the server does not have is said with what to do."""
    assert 'user "nobody"' in complaint(server.url(user="nobody"))
    said = complaint(server.url(database="nowhere"))
    assert "cannot open the database nowhere at 127.0.0.1" in said
    assert "no such database; create it" in said


def test_a_server_that_is_not_there_is_told():
    """Where nobody listens, and where no host is, the sentence names both to be looked at."""
    said = complaint("postgresql://me:wrong-pass@127.0.0.1:1/work")
    assert "cannot open the database work at 127.0.0.1" in said
    assert "check that the server runs, and the host and port of the url" in said
    assert "check that the server runs" in complaint("postgresql://me:wrong-pass@/work?host=/nowhere")


def test_a_user_without_permission_is_told(server, sql):
    """A user who may not make the schema is told what is missing."""
    sql("DROP ROLE IF EXISTS guest")
    sql("CREATE ROLE guest LOGIN PASSWORD 'wrong-pass'")
    said = complaint(server.url(user="guest", password="wrong-pass", more="?schema=guests"))
    assert "permission denied" in said
    assert "grant it what it needs" in said


def test_too_many_connections_are_told(server, sql):
    """A server without a free connection says so, and what to do about it."""
    sql("DROP ROLE IF EXISTS lonely")
    sql("CREATE ROLE lonely LOGIN PASSWORD 'wrong-pass' CONNECTION LIMIT 0")
    assert "no connection left" in complaint(server.url(user="lonely", password="wrong-pass"))


def test_a_database_that_only_reads_is_told(server, sql):
    """Where nothing may be written, as on a copy that follows another server, that is named."""
    more = "?schema=onlyreads&options=-c%20default_transaction_read_only%3Don"
    assert "name the server that writes" in complaint(server.url(more=more))


# Standing still.


async def test_a_server_that_stands_still_is_given_up(server, url):
    """A server that takes everything and answers nothing is `LogError` within the bound, and the loop stays free."""
    loop = asyncio.get_running_loop()
    with opened(PostgresStore(url, retry_s=RETRY_S)) as store:
        store.append("s", records(0, 1))
        await synced(store)
        with server.pause():
            began_s = loop.time()
            store.append("s", records(1, 1))
            answer = asyncio.ensure_future(synced(store))
            await asyncio.sleep(0)
            assert loop.time() - began_s < 0.1
            assert "does not answer" in str(await answer) or "timeout" in str(await answer)
            assert loop.time() - began_s < 6
        assert await synced(store) is None
        assert records(0, 2) == store.read("s", -1, 9)


async def test_closing_over_a_server_that_stands_still_ends(server, url):
    """`close` returns within its bound, and who waits gets `LogError` once."""
    answers: list[Any] = []
    store = PostgresStore(url, retry_s=RETRY_S)
    with opened(store), server.pause():
        store.append("s", records(0, 1))
        store.sync(answers.append)
        began_s = time.monotonic()
        await asyncio.to_thread(store.close)
        assert time.monotonic() - began_s < 8
        await until(lambda: answers)
    assert [LogError] == [type(one) for one in answers]


async def test_a_program_that_stands_still_in_a_transaction_holds_nobody_up(url):
    """Rows that another owner locked and forgot are let go of by the server after a moment, and taken over."""
    with opened(PostgresStore(url, lease_s=0.2, retry_s=1.0)) as one, opened(PostgresStore(url)) as two:
        one.append("s", records(0, 1))
        await synced(one)
        with one._commits._disk:
            db = one._commits._rows._db
            db.execute("BEGIN")
            db.execute("SELECT 1 FROM sessions FOR UPDATE")
            await asyncio.sleep(0.3)
            assert await claimed(two, "s") is None
        assert isinstance(await synced_append(one), Fenced)


async def synced_append(store):
    """What an append to `s` comes to."""
    store.append("s", records(1, 1))
    return await synced(store, "s")


# Refused.


async def test_a_statement_that_takes_too_long_is_told(server, sql):
    """The server's own limit on statements is named, and mends when it is raised."""
    sql("DROP ROLE IF EXISTS hasty")
    sql("CREATE ROLE hasty LOGIN SUPERUSER PASSWORD 'wrong-pass'")
    url = schema_of(server).replace(f"callboard:{PASSWORD}", "hasty:wrong-pass")
    with opened(PostgresStore(url, retry_s=RETRY_S)) as store:
        store.append("s", records(0, 1))
        await synced(store)
        with store._commits._disk:
            store._commits._rows._db.execute("SET statement_timeout = 1")
        store.append("s", records(1, 20_000, size=500))
        assert "its statement_timeout" in str(await synced(store))
        with store._commits._disk:
            store._commits._rows._db.execute("SET statement_timeout = 0")
        assert await synced(store) is None
        assert 20_001 == store.header("s").events


async def test_a_full_disk_is_told_and_then_mended(server, sql):
    """A server without space is named by what it lacks; reads go on, nothing is written in part, room mends it."""
    with mounted_for(server) as place:
        sql(f"CREATE TABLESPACE small LOCATION '{place}'")
        url = schema_of(server, "&options=-c%20default_tablespace%3Dsmall")
        try:
            with opened(PostgresStore(url, retry_s=RETRY_S)) as store:
                store.append("s", records(0, 1))
                await synced(store)
                (place / "ballast").write_bytes(b"x" * (5 << 20))
                store.append("s", [Record(seq, 0, None, os.urandom(1_500)) for seq in range(1, 3_001)])
                assert "the server's disk is full; free some space" in str(await synced(store))
                assert records(0, 1) == store.read("s", -1, 9)
                (place / "ballast").unlink()
                assert await synced(store) is None
                assert 3_001 == store.header("s").events
        finally:
            sql(f"DROP SCHEMA {url.partition('schema=')[2].partition('&')[0]} CASCADE")
            sql("DROP TABLESPACE small")


@contextlib.contextmanager
def mounted_for(server):
    """A small disk of the server's user."""
    place = server._folder / "small"
    place.mkdir()
    with mounted(place, "size=8m"):
        server._give(place)
        inner = place / "space"
        inner.mkdir(mode=0o700)
        server._give(inner)
        yield inner
