"""What the tests of stores share: records, a store open on the running loop, and disks and locks that refuse."""

import asyncio
import contextlib
import secrets
import sqlite3
import subprocess

import pytest

from callboard.actors.store import Record


def record(seq, kind="note_added", at_ms=1_000, turn=None):
    """One record that says its kind and number."""
    return Record(seq, at_ms, turn, f'{{"type":"{kind}","n":{seq}}}'.encode())


def records(first, count, size=0):
    """`count` records from `first` on, each with `size` more bytes."""
    return [Record(seq, 1_000, None, b'{"type":"note_added"}' + b" " * size) for seq in range(first, first + count)]


async def synced(store, session=None):
    """What `sync` answers, once it does."""
    answer = asyncio.get_running_loop().create_future()
    store.sync(answer.set_result, session)
    return await asyncio.wait_for(answer, 20)


async def claimed(store, session):
    """What `claim` answers, once it does."""
    answer = asyncio.get_running_loop().create_future()
    store.claim(session, answer.set_result)
    return await asyncio.wait_for(answer, 20)


@contextlib.contextmanager
def stopped(store):
    """The store's thread does nothing meanwhile, as when its program is stopped: not even renew the lease."""
    with store._commits._disk:
        yield


def at_disk(store, statement, *values):
    """Change something behind the back of a SQLite or PostgreSQL store, on its own connection."""
    rows = store._commits._rows
    with store._commits._disk:
        if hasattr(rows, "db"):
            rows.db.execute(statement, values)
        else:  # PostgreSQL's text holds no NUL
            kept = [one.replace("\0", "\1") if isinstance(one, str) else one for one in values]
            rows._db.execute(statement.replace("?", "%b"), kept)


async def until(true, limit_s=5.0):
    """Wait for something the store's thread brings about."""
    async with asyncio.timeout(limit_s):
        while not true():
            await asyncio.sleep(0.002)


@contextlib.contextmanager
def opened(store, told=None):
    """The store, open on the running loop, and closed again; `told` gets its notices."""
    if told is not None:
        store.on_notice = told.append
    store.open(asyncio.get_running_loop().call_soon_threadsafe)
    try:
        yield store
    finally:
        store.close()


def schema_of(server, more=""):
    """The url of a PostgreSQL store that nobody used before."""
    return server.url(more=f"?schema=t{secrets.token_hex(6)}{more}")


@contextlib.contextmanager
def locking(path):
    """Another connection that holds the write lock."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield other
    finally:
        if other.in_transaction:
            other.execute("ROLLBACK")
        other.close()


@contextlib.contextmanager
def full_disk(store, spare_pages=0):
    """No page more for this store's file than the spare ones."""
    db = store._commits._rows.db
    with store._commits._disk:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count={pages + spare_pages}")
    yield
    with store._commits._disk:
        db.execute("PRAGMA max_page_count=1073741823")


@contextlib.contextmanager
def mounted(folder, options):
    """A small disk of its own at `folder`, where that is allowed."""
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("mounting needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=10)
