"""What every store with more than one owner promises: one owner for a session, by claim, epoch and lease."""

import asyncio
import sys
from typing import Any

import pytest

from callboard.actors.errors import Fenced, LogError, UsageError
from callboard.actors.memory import MemoryStore
from callboard.actors.store import Due, Header
from callboard.runtime.stores import open_store
from callboard.runtime.stores.owners import LEASE_S
from callboard.runtime.stores.sqlite import SqliteStore

from .stored import at_disk, claimed, opened, record, records, schema_of, stopped, synced, until

SHORT_S = 0.2


@pytest.fixture(params=["full", "normal", "postgres full", "postgres normal"])
def make(request, tmp_path):
    """Makes stores that share what they keep; each of them is an owner."""
    kind, _, durability = request.param.rpartition(" ")
    if kind == "postgres":
        url = schema_of(request.getfixturevalue("postgres"))
        return lambda lease_s=LEASE_S: open_store(f"{url}&lease={lease_s}", durability)

    def maker(lease_s=LEASE_S) -> Any:
        return SqliteStore(tmp_path / "log.db", durability=request.param, lease_s=lease_s)

    return maker


async def fill(store, session, first=0, count=1):
    """Append records and wait for the disk."""
    store.append(session, records(first, count))
    return await synced(store, session)


async def test_the_maker_of_a_session_owns_it(make):
    """A session belongs to the store that wrote its first record; claiming it again there changes nothing."""
    with opened(make()) as one, opened(make()) as two:
        assert await fill(one, "s") is None
        assert await claimed(one, "s") is None
        error = await claimed(two, "s")
        assert isinstance(error, Fenced)
        assert all(piece in str(error) for piece in ("session 's'", "process ", "try again"))
        assert await fill(one, "s", 1) is None


async def test_a_claim_behind_the_lease_is_asked_of_the_store(make):
    """A program that was stopped and claims before it renews hears that another has the session now."""
    with opened(make(SHORT_S)) as one, opened(make(SHORT_S)) as two:
        assert await fill(one, "s") is None
        with stopped(one):
            await asyncio.sleep(1.5 * SHORT_S)
            assert await claimed(two, "s") is None
            asking = asyncio.ensure_future(claimed(one, "s"))
            await asyncio.sleep(0)
            assert not asking.done()
        assert isinstance(await asking, Fenced)


async def test_what_is_not_stored_needs_no_claim(make):
    """A session nobody has written to can be claimed by all; its first record decides."""
    with opened(make()) as one, opened(make()) as two:
        assert (None, None) == (await claimed(one, "s"), await claimed(two, "s"))
        assert await fill(one, "s") is None
        assert isinstance(await claimed(two, "s"), Fenced)


async def test_an_append_without_a_claim_claims(make):
    """Who appends to a session that another holds is refused as a claim would be, and nothing is written."""
    with opened(make()) as one, opened(make()) as two:
        await fill(one, "s")
        two.append("s", records(1, 1), Header("s", title="lost"), Due(5))
        assert isinstance(await synced(two, "s"), Fenced)
        assert (1, None, None) == (one.header("s").events, one.header("s").title, one.header("s").due_ms)
        one.release("s")
        assert await settled_claim(two, "s") is None
        assert await fill(two, "s", 1) is None


async def test_a_released_session_is_anybodys(make):
    """After `release` what was appended before is durable and another store claims the session at once."""
    with opened(make()) as one, opened(make()) as two:
        one.append("s", records(0, 3))
        one.release("s")
        await until(lambda: len(two.read("s", -1, 9)) == 3)
        assert await settled_claim(two, "s") is None
        assert await fill(two, "s", 3) is None
        assert isinstance(await fill(one, "s", 3), Fenced)


async def settled_claim(store, session):
    """The claim, once a release that is under way has arrived."""
    for _ in range(100):
        error = await claimed(store, session)
        if error is None:
            return None
        await asyncio.sleep(0.01)
    return error


async def test_releasing_what_is_not_ours_is_harmless(make):
    """A release by anybody else, or of an unknown session, takes nothing from its owner."""
    with opened(make()) as one, opened(make()) as two:
        await fill(one, "s")
        two.release("s")
        two.release("nobody")
        assert isinstance(await claimed(two, "s"), Fenced)
        assert await fill(one, "s", 1) is None


async def test_a_claim_after_a_release_is_asked_of_the_disk(make):
    """A session that was released and claimed again by the same store is held by it, not free."""
    with opened(make()) as one, opened(make()) as two:
        await fill(one, "s")
        one.release("s")
        assert await claimed(one, "s") is None
        assert isinstance(await claimed(two, "s"), Fenced)


async def test_closing_lets_everything_go(make):
    """What a store owned when it closed can be claimed at once, and the store itself claims it again when reopened."""
    one = make()
    with opened(make()) as two:
        with opened(one):
            for name in ("a", "b"):
                await fill(one, name)
        assert await claimed(two, "a") is None
        with opened(one):
            assert await claimed(one, "b") is None
            assert isinstance(await claimed(one, "a"), Fenced)


async def test_takeover_after_the_lease(make):
    """Who was not heard of for a lease loses the session; its next write is refused whole, the new owner's stand."""
    with opened(make(SHORT_S)) as one, opened(make()) as two:
        await fill(one, "s", 0, 2)
        with stopped(one):
            one.append("s", records(2, 3), Header("s", title="lost"))
            one.append("mine", records(0, 1))
            assert isinstance(await claimed(two, "s"), Fenced)
            await asyncio.sleep(1.5 * SHORT_S)
            assert await claimed(two, "s") is None
        assert isinstance(await synced(one, "s"), Fenced)
        assert await synced(one, "mine") is None
        assert await fill(two, "s", 2) is None
        assert (3, None) == (two.header("s").events, two.header("s").title)
        with pytest.raises(Fenced, match="taken over"):
            one.append("s", records(5, 1))
        assert isinstance(await claimed(one, "s"), Fenced)


async def test_a_stale_owner_is_refused_though_nothing_was_written_since(make):
    """The epoch alone refuses it: no record of the new owner has to be in the way."""
    with opened(make(SHORT_S)) as one, opened(make()) as two:
        await fill(one, "s")
        with stopped(one):
            await asyncio.sleep(1.5 * SHORT_S)
            assert await claimed(two, "s") is None
        error = await fill(one, "s", 1)
        assert isinstance(error, Fenced)
        assert "taken over" in str(error)
        assert 1 == two.header("s").events


async def test_a_stale_header_is_refused(make):
    """A header without records is an append like any other: a stale owner's changes nothing."""
    with opened(make(SHORT_S)) as one, opened(make()) as two:
        await fill(one, "s")
        with stopped(one):
            await asyncio.sleep(1.5 * SHORT_S)
            assert await claimed(two, "s") is None
        one.append("s", (), Header("s", title="x"))
        assert isinstance(await synced(one, "s"), Fenced)
        assert two.header("s").title is None


async def test_who_was_fenced_may_claim_again(make):
    """A session that was lost and then let go by its new owner is claimed, read and written to again."""
    with opened(make(SHORT_S)) as one, opened(make()) as two:
        await fill(one, "s")
        with stopped(one):
            await asyncio.sleep(1.5 * SHORT_S)
            assert await claimed(two, "s") is None
        assert isinstance(await fill(one, "s", 1), Fenced)
        assert await fill(two, "s", 1, 2) is None
        two.release("s")
        assert await settled_claim(one, "s") is None
        assert await fill(one, "s", 3) is None
        assert records(0, 4) == one.read("s", -1, 9)
        assert isinstance(await fill(two, "s", 3), Fenced)


async def test_a_lease_is_renewed(make):
    """A store that is alive holds what it owns for many leases, whether it writes or not."""
    with opened(make(SHORT_S)) as one, opened(make()) as two:
        await fill(one, "s")
        for _ in range(8):
            await asyncio.sleep(SHORT_S / 2)
            assert isinstance(await claimed(two, "s"), Fenced)
        assert await fill(one, "s", 1) is None


async def test_a_late_owner_keeps_what_nobody_took(make):
    """A lease that was over for a while costs nothing where nobody else came: the next record is written."""
    with opened(make(SHORT_S)) as one, opened(make()) as two:
        await fill(one, "taken")
        await fill(one, "kept")
        with stopped(one):
            await asyncio.sleep(1.5 * SHORT_S)
            assert await claimed(two, "taken") is None
        assert await fill(one, "kept", 1) is None
        assert isinstance(await fill(one, "taken", 1), Fenced)
        await asyncio.sleep(SHORT_S)
        assert isinstance(await claimed(two, "kept"), Fenced)
        assert await fill(one, "kept", 2) is None


async def test_two_owners_that_claim_at_once(make):
    """Of two that claim free sessions side by side each session has one winner, who alone can write."""
    with opened(make()) as maker:
        for n in range(40):
            maker.append(f"s{n}", records(0, 1))
        assert await synced(maker) is None
    with opened(make()) as one, opened(make()) as two:
        answers = await asyncio.gather(*(claimed(store, f"s{n}") for n in range(40) for store in (one, two)))
        pairs = [tuple(map(type, answers[2 * n : 2 * n + 2])) for n in range(40)]
        assert {(type(None), Fenced), (Fenced, type(None))} >= set(pairs)
        for n, pair in enumerate(pairs):
            winner, loser = (one, two) if pair[1] is Fenced else (two, one)
            assert await fill(winner, f"s{n}", 1) is None
            assert isinstance(await fill(loser, f"s{n}", 1), Fenced)


async def test_a_thousand_claims_share_a_commit(make):
    """Many sessions are claimed together in a few writes."""
    with opened(make()) as maker:
        for n in range(1_000):
            maker.append(f"s{n}", records(0, 1))
        assert await synced(maker) is None
    with opened(make()) as store:
        assert [None] * 1_000 == await asyncio.gather(*(claimed(store, f"s{n}") for n in range(1_000)))
        store.append("s7", records(1, 1))
        assert await synced(store) is None


KILLED = """
import sys
from callboard.actors.store import Record
from callboard.runtime.stores import open_store
store = open_store(sys.argv[1])
store.open(lambda fn: fn())
store.append("s", [Record(0, 1_000, None, b'{"type":"note_added"}')])
def said(error):
    print(error, flush=True)
store.sync(said)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_dead_program_of_this_machine_holds_nothing(tmp_path, request, kind):
    """A program that was killed leaves its sessions to the next one at once, however long its lease lasts."""
    if kind == "postgres":
        url = schema_of(request.getfixturevalue("postgres"), "&lease=3600")
    else:
        url = f"sqlite:///{tmp_path}/log.db?lease=3600"
    pipe = asyncio.subprocess.PIPE
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, url, stdin=pipe, stdout=pipe)
    assert other.stdout is not None
    assert b"None\n" == await asyncio.wait_for(other.stdout.readline(), 20)
    with opened(open_store(url)) as store:
        error = await claimed(store, "s")
        assert isinstance(error, Fenced)
        assert f"process {other.pid}" in str(error)
        other.kill()
        await other.wait()
        assert await claimed(store, "s") is None
        assert await fill(store, "s", 1) is None


async def test_a_closed_store_claims_nothing(make):
    """Before `open` and after `close` a claim is `LogError`, and a release is harmless."""
    store = make()
    assert isinstance(await claimed(store, "s"), LogError)
    with opened(store):
        await fill(store, "s")
    store.release("s")
    assert isinstance(await claimed(store, "s"), LogError)


async def test_half_a_surrogate_pair_is_no_id_to_claim(make):
    """An id that cannot be written is refused when it is claimed."""
    with opened(make()) as store, pytest.raises(UsageError, match="surrogate"):
        store.claim("\ud800", print)


async def test_any_text_can_be_claimed(make):
    """Ids with quotes, line breaks and NUL are claimed and released like others."""
    names = ["", "'; DROP TABLE owners; --", "100%_", "a\nb", "a\0b", "🎭"]
    with opened(make()) as one:
        for name in names:
            await fill(one, name)
    with opened(make()) as two, opened(make()) as three:
        assert [None] * 6 == [await claimed(two, name) for name in names]
        assert [Fenced] * 6 == [type(await claimed(three, name)) for name in names]


async def test_an_unowned_session_of_an_older_file_is_claimed(make):
    """What was written before sessions had owners belongs to whoever claims it first."""
    with opened(make()) as store:
        await fill(store, "s")
        at_disk(store, "UPDATE sessions SET owner = NULL, epoch = 0")
    with opened(make()) as one, opened(make()) as two:
        assert await claimed(one, "s") is None
        assert isinstance(await claimed(two, "s"), Fenced)
        assert await fill(one, "s", 1) is None


@pytest.mark.parametrize("about", ["", "{", "[]", '{"pid":"x"}', '{"boot":"b","pid":-1}', "\x00", '{"pid":1e400}'])
async def test_an_owner_that_cannot_be_read_holds_until_its_lease_is_over(make, about):
    """Damage in what is known of an owner is no reason to take its sessions before its lease is over."""
    with opened(make()) as one, opened(make()) as two:
        await fill(one, "s")
        at_disk(one, "UPDATE owners SET about = ?", about)
        error = await claimed(two, "s")
        assert isinstance(error, Fenced)
        assert "process 0" in str(error) or "process -1" in str(error)


@pytest.mark.parametrize("url", ["?lease=0", "?lease=x", "?lease=nan", "?lease=", "?lease=1&lease=2", "?leas=1"])
def test_a_wrong_lease_is_refused(tmp_path, url):
    """The length of the lease in a url is a number of seconds within bounds, said once."""
    with pytest.raises(UsageError, match="lease"):
        open_store(f"sqlite:///{tmp_path}/log.db{url}")


def test_a_lease_and_a_durability_may_stand_in_a_url(tmp_path):
    """Both options of a SQLite url can be given together."""
    store = open_store(f"sqlite:///{tmp_path}/log.db?lease=2.5&durability=normal")
    assert isinstance(store, SqliteStore)
    assert (False, 2.5) == (store._full, store._limits.lease_s)


async def test_the_memory_store_has_one_owner():
    """Nobody else reaches a store in memory, so each claim is granted at once, until it is closed."""
    store = MemoryStore()
    store.append("s", [record(0)])
    assert await claimed(store, "s") is None
    store.release("s")
    store.close()
    assert isinstance(await claimed(store, "s"), LogError)
