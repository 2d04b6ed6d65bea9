"""Which file a store's url names, and whose file it must be."""

import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callboard.actors.errors import LogError, UsageError
from callboard.actors.memory import MemoryStore
from callboard.runtime.stores import open_store
from callboard.runtime.stores.sqlite import SqliteStore

from .stored import mounted, opened, records, synced


@pytest.mark.parametrize(
    "url",
    [
        *("", "log.db", "sqlite", "sqlite:", "sqlite://", "sqlite:///", "sqlite://log.db", "sqlite:log.db"),
        *("sqlite:///:memory:", "sqlite:///a%00b", "memory:", "file:///x", "postgres+x://host/db"),
        *("sqlite:///x.db?durability=none", "sqlite:///x.db?mode=ro", "sqlite:///x.db?durability=full&durability=full"),
    ],
)
def test_an_unknown_url_is_refused(url):
    """A url that names no store is the caller's mistake, and the text says what to write."""
    with pytest.raises(UsageError, match=r"memory|durability=full"):
        open_store(url)


def test_a_url_names_its_store(tmp_path, monkeypatch):
    """Three slashes begin a relative path, four an absolute one, and percent escapes are read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert isinstance(open_store("memory"), MemoryStore)
    named = {
        "sqlite:///a/log.db": Path("a/log.db"),
        f"sqlite:///{tmp_path}/log.db?durability=normal": tmp_path / "log.db",
        "sqlite:///100%25%23%3F.db": Path("100%#?.db"),
        "sqlite:///~/log.db": tmp_path / "log.db",
    }
    assert named == {url: getattr(open_store(url), "path", None) for url in named}


async def test_odd_file_names_work(tmp_path):
    """A name with every sign that means something in a url opens that very file, for writing and reading."""
    path = tmp_path / "a b#c?d%20é.db"
    with opened(SqliteStore(path)) as store:
        store.append("s", records(0, 1))
        assert await synced(store) is None
        assert 1 == len(store.read("s", -1, 9))
    assert [path] == list(tmp_path.iterdir())


async def test_the_file_and_its_folders_are_private(tmp_path):
    """The file is made 0600 and the folders that missed 0700; a folder that was there keeps its mode."""
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    path = there / "new" / "newer" / "log.db"
    with opened(SqliteStore(path)) as store:
        store.append("s", records(0, 1))
        await synced(store)
        files = {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
        assert ({0o600}, 3) == (files, len(list(path.parent.iterdir())))
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (there, there / "new", there / "new" / "newer")]
    assert [0o755, 0o700, 0o700] == modes


def test_a_place_where_no_file_can_be_is_refused(tmp_path):
    """A folder, a path through a file, and a path nobody can make are `UsageError`."""
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file" / "log.db"):
        with pytest.raises(UsageError, match="folder"):
            open_store(f"sqlite:///{place}")
    with pytest.raises(UsageError, match="another path"):
        SqliteStore(Path("/proc/callboard.db")).open(lambda fn: fn())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_refused(tmp_path):
    """A folder without write permission is `UsageError`."""
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="cannot be written"):
        open_store(f"sqlite:///{tmp_path}/log.db")


def test_a_read_only_disk_is_refused(tmp_path):
    """A disk mounted for reading is `UsageError`, whoever asks."""
    with mounted(tmp_path, "ro,size=1m"), pytest.raises(UsageError, match="cannot be written"):
        open_store(f"sqlite:///{tmp_path}/log.db")


def make_foreign(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs(x)")


def make_tagged(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA application_id=77")


def make_newer(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA application_id={0x43414C4C}")
        db.execute("PRAGMA user_version=99")


def make_text(path):
    path.write_text("this is a diary and no database\n" * 100)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (make_foreign, "belongs to another program"),
        (make_tagged, "application id 77"),
        (make_newer, "has version 99 and this build knows up to 3"),
        (make_text, "not a SQLite database"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_untouched(tmp_path, make, says):
    """A file of another program or of a newer version is `LogError` in one sentence, and keeps every byte."""
    path = tmp_path / "log.db"
    make(path)
    before = path.read_bytes()
    with pytest.raises(LogError, match=says) as raised:
        SqliteStore(path).open(lambda fn: fn())
    assert (before, [path]) == (path.read_bytes(), list(tmp_path.iterdir()))
    assert str(path) in str(raised.value)


def test_a_damaged_file_is_refused(tmp_path):
    """A file whose first page is torn is `LogError`."""
    path = tmp_path / "log.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t(x)")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(LogError, match=r"log\.db"):
        SqliteStore(path).open(lambda fn: fn())


async def test_an_empty_file_becomes_a_store(tmp_path):
    """A file of no bytes is as good as none."""
    path = tmp_path / "log.db"
    path.touch()
    with opened(SqliteStore(path)) as store:
        store.append("s", records(0, 1))
        assert await synced(store) is None


def test_programs_that_make_one_file_together_all_succeed(tmp_path):
    """Eight programs that open a new file at the same moment and write a session each lose nothing."""
    path = tmp_path / "new" / "log.db"
    program = (
        "import sys\n"
        "from callboard.actors.store import Record\n"
        "from callboard.runtime.stores.sqlite import SqliteStore\n"
        "store = SqliteStore(sys.argv[1], durability=sys.argv[3])\n"
        "sys.stdin.readline()\n"
        "store.open(lambda fn: fn())\n"
        "errors = []\n"
        "for seq in range(50):\n"
        "    store.append(sys.argv[2], [Record(seq, 0, None, b'{}')])\n"
        "    store.sync(errors.append)\n"
        "store.close()\n"
        "assert errors == [None] * 50, errors\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path), f"s{n}", ("full", "normal")[n % 2]],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for n in range(8)
    ]
    for one in started:
        assert one.stdin is not None
        one.stdin.write(b"go\n")
        one.stdin.flush()
    assert [(b"", 0)] * 8 == [(one.communicate(timeout=30)[1], one.returncode) for one in started]
    store = SqliteStore(path)
    store.open(lambda fn: fn())
    assert [50] * 8 == [one.events for one in store.headers()]
    store.close()


def test_programs_that_make_one_file_at_once_all_get_it(tmp_path):
    """Several programs that open the same new file in the same moment share it, and none takes it for foreign."""
    program = (
        "import sys, time\n"
        "from callboard.runtime.stores import open_store\n"
        "while time.time() < float(sys.argv[2]): pass\n"
        "store = open_store(sys.argv[1])\n"
        "store.open(lambda fn: fn())\n"
        "store.close()\n"
    )
    for round_ in range(3):
        at_s = str(time.time() + 1.0)
        command = [sys.executable, "-c", program, f"sqlite:///{tmp_path / str(round_)}.db", at_s]
        running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        said = [one.communicate(timeout=30)[1] for one in running]
        assert [(0, "")] * 4 == [(one.returncode, text) for one, text in zip(running, said, strict=True)]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:quiet@please@127.0.0.1:1/db",
        "postgresql://me:quiet/please@127.0.0.1:1/db",
        "postgresql://me:quiet/ple@ase@127.0.0.1:1/db",
        "sqlite://me:quiet-please@127.0.0.1/db",
        "postgres+x://me:quiet-please@127.0.0.1/db",
    ],
)
def test_no_part_of_a_password_is_told(url):
    """A password whose `@` or `/` is not written as %XX, or under the wrong scheme, is refused and not repeated."""
    pytest.importorskip("psycopg")
    with pytest.raises(UsageError) as raised:
        open_store(url)
    assert not any(part in str(raised.value) for part in ("quiet", "please", "ase@"))
