"""Snapshots in the stores that keep them on a disk: a cache that is never ahead of the records, nor another owner's."""

import asyncio

import pytest

from callboard.actors.store import Change, Header, Snapshot
from callboard.runtime.stores import open_store

from .stored import at_disk, claimed, opened, records, schema_of, synced, until

SHORT_S = 0.3


@pytest.fixture(params=["full", "normal", "postgres"])
def make(request, tmp_path):
    """Opens the store under test: each is another owner of the same records."""
    if request.param == "postgres":
        url = schema_of(request.getfixturevalue("postgres"))
        return lambda lease_s=10.0: open_store(f"{url}&lease={lease_s}")
    url = f"sqlite:///{tmp_path / 'log.db'}?durability={request.param}"
    return lambda lease_s=10.0: open_store(f"{url}&lease={lease_s}")


async def test_snapshots_are_kept_until_newer_ones_come(make):
    """The last snapshot of each key is read back, also by another store."""
    with opened(make()) as store:
        store.append("s", records(0, 5))
        await synced(store)
        store.snap("s", [Snapshot("todo", 1, 2, b"old"), Snapshot("plan\0", 7, 3, b"\0")])
        store.snap("s", [Snapshot("todo", 2, 4, b"new")])
        expected = {Snapshot("todo", 2, 4, b"new"), Snapshot("plan\0", 7, 3, b"\0")}
        await until(lambda: expected == set(store.snapshots("s")))
        assert [] == store.snapshots("unknown")
    with opened(make()) as other:
        assert expected == set(other.snapshots("s"))


async def test_a_snapshot_waits_for_its_records(make):
    """What is ahead of the stored records is kept with them, not before, and closing keeps it too."""
    with opened(make()) as store:
        store.append("s", records(0, 1))
        await synced(store)
        store.append("s", records(1, 1))
        store.snap("s", [Snapshot("todo", 1, 1, b"x")])
        await asyncio.sleep(0)
        assert [] == store.snapshots("s")
    with opened(make()) as store:
        assert [Snapshot("todo", 1, 1, b"x")] == store.snapshots("s")
        at_disk(store, "DELETE FROM events WHERE seq = 1")
        assert [] == store.snapshots("s")


async def test_a_snapshot_of_a_session_that_was_lost_is_not_kept(make):
    """Whose session was taken over keeps nothing of it, since its records may be others than the new owner's."""
    with opened(make(SHORT_S)) as one, opened(make()) as two:
        one.append("s", records(0, 1))
        await synced(one)
        with one._commits._disk:
            await asyncio.sleep(1.5 * SHORT_S)
            assert await claimed(two, "s") is None
            two.append("s", records(1, 3))
            assert await synced(two) is None
            one.snap("s", [Snapshot("todo", 1, 1, b"x")])
        one.append("t", records(0, 1))
        await synced(one)
        await asyncio.sleep(0.1)
        assert [] == one.snapshots("s")


async def test_a_snapshot_nobody_can_hold_is_lost_alone(make):
    """A version beyond 64 bits costs the snapshots that wait, and nothing else."""
    with opened(make()) as store:
        store.append("s", records(0, 1))
        store.snap("s", [Snapshot("todo", 2**70, 0, b"x")])
        assert await synced(store) is None
        store.append("s", records(1, 1))
        assert await synced(store) is None
        await until(lambda: not store._rows.wants_rest())
        store.snap("s", [Snapshot("todo", 1, 1, b"x")])
        await until(lambda: [Snapshot("todo", 1, 1, b"x")] == store.snapshots("s"))


async def test_a_session_that_is_let_go_keeps_its_snapshot(make):
    """What was snapped just before the session was released is kept, and the next owner goes on from it."""
    with opened(make()) as one, opened(make()) as two:
        one.append("s", records(0, 3))
        await synced(one)
        one.snap("s", [Snapshot("todo", 1, 2, b"x")])
        one.release("s")
        await until(lambda: [Snapshot("todo", 1, 2, b"x")] == two.snapshots("s"))
        assert await claimed(two, "s") is None


async def test_a_snapshot_follows_no_name(make):
    """What waits for a session that is renamed meanwhile becomes no other's of that name."""
    with opened(make()) as store:
        for name, count in (("s", 3), ("t", 5)):
            store.append(name, records(0, count), Header(name))
        await synced(store)
        renamed = asyncio.get_running_loop().create_future()
        with store._commits._disk:
            store.snap("s", [Snapshot("todo", 1, 2, b"of the first")])
            store.rename([Change("s", Header("old")), Change("t", Header("s"))], renamed.set_result)
        assert await renamed is None
        store.append("u", records(0, 1))
        await synced(store)
        await until(lambda: not store._rows.wants_rest())
        assert [] == store.snapshots("s")


async def test_a_spoilt_row_is_only_read(make):
    """Rows that somebody else changed come back as they are, and whoever reads them decides."""
    with opened(make()) as store:
        store.append("s", records(0, 3))
        await synced(store)
        store.snap("s", [Snapshot("todo", 1, 2, b"x")])
        await until(lambda: store.snapshots("s"))
        at_disk(store, "UPDATE snapshots SET version = 77")
        assert [Snapshot("todo", 77, 2, b"x")] == store.snapshots("s")
        at_disk(store, "DELETE FROM snapshots")
        assert [] == store.snapshots("s")
