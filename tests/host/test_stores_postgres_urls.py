"""What the url of a PostgreSQL store may say, and that no error tells its secrets."""

import subprocess
import sys
from typing import Any

import pytest

from callboard.actors.errors import MissingExtra, UsageError
from callboard.runtime.stores import look_into, open_store

pytest.importorskip("psycopg")
SECRET = "hush-hush"
FULL = f"postgresql://me:{SECRET}@db.example:6000/work"


def named(url, *durability) -> Any:
    """The store of a url, to look inside."""
    return open_store(url, *durability)


@pytest.mark.parametrize(
    ("url", "shown", "schema"),
    [
        (FULL, "database work at db.example:6000", "callboard"),
        (f"postgres://me:{SECRET}@db.example/work?schema=a%20b", "database work at db.example:5432", "a b"),
        (f"postgresql://me:{SECRET}@[::1]:6000/work", "database work at ::1:6000", "callboard"),
        (f"postgresql://me:{SECRET}@/?host=/run/pg&schema=%C3%A9", "database me at /run/pg:5432", "é"),
        (f"postgresql://db.example/work?user=me&password={SECRET}", "database work at db.example:5432", "callboard"),
        ("postgresql://", "database  at localhost:5432", "callboard"),
    ],
)
def test_a_url_names_a_database_and_a_schema(url, shown, schema):
    """Database, host, port and schema are read from the url, with their defaults, and shown without the password."""
    address = named(url).address
    assert (shown, schema) == (address.shown, address.schema)
    assert SECRET not in repr(address) + str(address)


def test_our_options_are_read_and_those_of_postgresql_left():
    """`durability` and `lease` of the url beat the arguments, and what is not ours goes to PostgreSQL."""
    store = named(f"{FULL}?sslmode=disable&durability=normal&lease=2.5&application_name=mine", "full")
    assert (False, 2.5) == (store._full, store._limits.lease_s)
    assert store.address.conninfo == f"{FULL}?sslmode=disable&application_name=mine"
    assert (True, False) == (named(FULL, "full")._full, named(FULL, "normal")._full)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"postgresql://me:{SECRET}%zz@db/work", "cannot be read: write postgresql://USER:PASSWORD@HOST"),
        (f"postgresql://me:{SECRET}@[::1/work", "cannot be read"),
        (f"{FULL}?nothing=1", "cannot be read"),
        (f"{FULL}?{SECRET}", "cannot be read"),
        (f"postgresql:{SECRET}", "cannot be read"),
        *((f"{FULL}{odd}", "cannot be read") for odd in ("\0", "%00", "\ud800")),
        (f"{FULL}?durability=none", "full or normal"),
        (f"{FULL}?durability=", "full or normal"),
        (f"{FULL}?schema=a&schema=b", "schema twice"),
        (f"{FULL}?lease=1&lease=2", "lease twice"),
        (f"{FULL}?lease=soon", "no number of seconds"),
        (f"{FULL}?lease=0", "a lease lasts"),
        (f"{FULL}?lease=nan", "a lease lasts"),
        *((f"{FULL}?schema={name}", "is no name") for name in ("", "pg_mine", "x" * 64, "%C3%A9" * 40, "a%00b")),
        (f"postgre://me:{SECRET}@db/work", "is not known"),
        (f"postgresql+psycopg://me:{SECRET}@db/work", "is not known"),
    ],
)
def test_a_wrong_url_is_refused_without_its_secrets(url, says):
    """What is wrong is one sentence that holds neither the password nor what may be one."""
    with pytest.raises(UsageError, match=says) as caught:
        open_store(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_store_in_memory_cannot_be_looked_into():
    """What keeps nothing between programs has nothing to look at."""
    with pytest.raises(UsageError, match="keeps nothing between programs"):
        look_into("memory")


def test_without_the_client_the_extra_is_named():
    """Where psycopg is not installed the error names the extra, and nothing else of the package misses it."""
    program = (
        "import sys\n"
        "sys.modules['psycopg'] = None\n"
        "import callboard.runtime.doors.cli\n"
        "from callboard.actors.errors import MissingExtra\n"
        "from callboard.runtime.stores import open_store\n"
        "try:\n    open_store('postgresql://me:hush-hush@db/work')\n"
        "except MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30)
    assert (f"{MissingExtra('a PostgreSQL store', 'postgres')}\n", "") == (done.stdout, done.stderr)
    assert "callboard[postgres]" in done.stdout
