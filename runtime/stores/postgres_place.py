"""Where a PostgreSQL store is: its url taken apart without telling a secret, connections to it, its errors in words."""

from collections.abc import Generator
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import unquote

import attrs
import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8BinaryDumper

from callboard.actors.errors import LogError, UsageError
from callboard.runtime.clock import steady_s

T = TypeVar("T")
Durability: TypeAlias = Literal["full", "normal"]

FORM: Final = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
OPTIONS: Final = "schema=NAME, durability=full, durability=normal and lease=SECONDS"
SCHEMA = "callboard"
SCHEMA_MAX_BYTES = 63  # PostgreSQL cuts longer names, and two could become one
SHOWN_MAX_CHARS = 200
DETAIL_MAX_CHARS = 200
CONNECT_S_MIN = 2  # libpq waits no shorter
IDLE_MIN_MS = 2_000  # that a transaction may wait for its program, which may be about to write a large group

# What PostgreSQL says, by the code of its answer or by how the code begins.
ADVICE: Final = MappingProxyType(
    {
        "53100": "the server's disk is full; free some space",
        "53200": "the server is out of memory; give it more",
        "53300": "the server has no connection left; close others or raise its max_connections",
        "57014": "the server ended the statement, as for its statement_timeout; raise that for this user",
        "57P": "the server was ended or is not up; start it",
        "55P03": "another program holds the rows; end it",
        "25006": "the database only reads; name the server that writes",
        "42501": "the user may not do this; grant it what it needs, or name another user",
        "42P01": "a table is gone; restore a copy of the database",
        "3F000": "the schema is gone; restore a copy of the database",
        "28": "the server lets nobody in with this user and password; correct the url",
        "3D000": "the server has no such database; create it, or correct the url",
        "58": "the server's disk reports an error; check it",
        "XX": "the server reports damage; restore a copy of the database",
        "08": "the connection broke; check the server and the network",
    }
)
# A server that lets nobody in says so in words alone, as does a connection that is gone.
SAYINGS: Final = (
    (("too many", "connection slots"), "53300"),
    (("password authentication failed", "no password supplied", "pg_hba.conf"), "28"),
    (('database "',), "3D000"),
    (("starting up", "shutting down", "recovery mode", "terminating connection"), "57P"),
    (("permission denied",), "42501"),
)
UNREACHED: Final = "check that the server runs, and the host and port of the url"
LASTING: Final = ("28", "3D", "3F", "42", "25006", "0A", "XX")
"""Codes that no second try mends."""


@attrs.frozen
class Address:
    """A database and a schema in it; `shown` is what people may read of it."""

    conninfo: str = attrs.field(repr=False)
    shown: str
    schema: str
    durability: Durability | None = None
    lease_s: float | None = None


def address_of(url: str) -> Address:
    """Take a url apart. Raises `UsageError`, which never tells the url: it may hold a password."""
    head, _, query = url.partition("?")
    ours, others = dict[str, str](), list[str]()
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if unquote(name) not in ("schema", "durability", "lease"):
            others.append(part)
        elif unquote(name) in ours:
            raise UsageError(f"the store's url says {unquote(name)} twice: say it once.")
        else:
            ours[unquote(name)] = unquote(value)
    conninfo = head + ("?" + "&".join(others) if others else "")
    try:
        _check_marks(head)
        found = conninfo_to_dict(conninfo.replace("\0", "%00"))  # which is refused: libpq ends a text there
    except (psycopg.Error, ValueError):
        raise UsageError(
            f"the store's url cannot be read: write {FORM}, other characters than letters and digits as %XX; options "
            f"are {OPTIONS}, and those of PostgreSQL."
        ) from None
    where = f"{found.get('host') or 'localhost'}:{found.get('port') or 5432}"
    shown = f"database {found.get('dbname') or found.get('user') or ''} at {where}"[:SHOWN_MAX_CHARS]
    schema, durability = _schema(ours.get("schema", SCHEMA)), _durability(ours.get("durability"))
    return Address(conninfo, shown, schema, durability, _lease(ours.get("lease")))


def _check_marks(head: str) -> None:
    """Refuse a password with `@` or `/` as they are: its rest would be taken, and shown, as a host or a database."""
    where, _, path = head.partition("://")[2].partition("/")
    if where.count("@") > 1 or "@" in path:
        raise ValueError("more than one @")


def _schema(name: str) -> str:
    if not 0 < len(name.encode(errors="replace")) <= SCHEMA_MAX_BYTES or "\0" in name or name.startswith("pg_"):
        raise UsageError(
            f"schema={name:.80} of the store's url is no name: 1 to {SCHEMA_MAX_BYTES} bytes, not beginning with pg_."
        )
    return name


def _durability(said: str | None) -> Durability | None:
    if said is None:
        return None
    if said == "full":
        return "full"
    if said == "normal":
        return "normal"
    raise UsageError(f"durability of the store's url is full or normal, got {said!r:.80}.")


def _lease(said: str | None) -> float | None:
    try:
        return None if said is None else float(said)
    except ValueError:
        raise UsageError(f"lease={said:.80} of the store's url is no number of seconds, such as lease=10.") from None


# -- errors ------------------------------------------------------------------------------------------------------------


def code_of(error: psycopg.Error) -> str:
    """PostgreSQL's code of an error; one that comes without is told by its words; "" for what cannot be told."""
    if error.sqlstate:
        return error.sqlstate
    said = str(error)
    return next((code for words, code in SAYINGS if any(word in said for word in words)), "")


def is_passing(error: psycopg.Error) -> bool:
    """Whether the same may succeed later, without anybody changing what it asks for."""
    return isinstance(error, psycopg.OperationalError | psycopg.InternalError) and not code_of(error).startswith(
        LASTING
    )


def explained(address: Address, doing: str, error: psycopg.Error) -> LogError:
    """One sentence: what failed, where, why, and what to do."""
    code = code_of(error)
    advice = next((text for begin, text in ADVICE.items() if code.startswith(begin)), "check the server")
    return LogError(f"cannot {doing} the {address.shown}: {_detail(error)}: {advice if code else UNREACHED}.")


def _detail(error: psycopg.Error) -> str:
    """The first thing that was said; libpq names the server before it, and lists what it tried behind it."""
    said = error.diag.message_primary or (str(error).splitlines() or [type(error).__name__])[0]
    for before in ("FATAL:", " failed: "):
        said = said.rpartition(before)[2]
    return said.strip().rstrip(".")[:DETAIL_MAX_CHARS]


# -- connections -------------------------------------------------------------------------------------------------------


class Bounded(psycopg.Connection[Any]):
    """A connection that gives up on a server that does not answer within `limit_s`; it is of no use then."""

    limit_s = 5.0

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """(psycopg) Every exchange with the server goes through here."""
        return super().wait(_until(gen, steady_s() + self.limit_s), *args, **options)


def _until(exchange: Generator[Any, Any, T], limit_s: float) -> Generator[Any, Any, T]:
    """The same exchange, with an end: psycopg asks for more each tenth of a second."""
    try:
        wanted = next(exchange)
        while True:
            ready = yield wanted
            if not ready and steady_s() > limit_s:
                raise psycopg.errors.ConnectionFailure("the server does not answer")
            wanted = exchange.send(ready)
    except StopIteration as ended:
        answer: T = ended.value
        return answer


# Text is kept as bytes: PostgreSQL's own text holds no NUL, and a database may have any encoding.
COMMON: Final = (
    "SELECT set_config('search_path', quote_ident(%s), false), set_config('jit', 'off', false),"
    " set_config('lock_timeout', %s, false), set_config('bytea_output', 'hex', false)"
)
# What is looked for is a few rows by their keys, whatever the planner thinks of an array's length. A transaction that
# is left open, as by a program that was stopped, lets go of its rows before anybody waits for them in vain.
WRITER: Final = (
    "SELECT set_config('synchronous_commit', CASE WHEN NOT %s THEN 'off' WHEN current_setting('synchronous_commit')"
    " = 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false),"
    " set_config('idle_in_transaction_session_timeout', %s, false), set_config('plan_cache_mode',"
    " 'force_generic_plan', false), set_config('enable_hashjoin', 'off', false),"
    " set_config('enable_mergejoin', 'off', false), set_config('enable_seqscan', 'off', false)"
)
READER: Final = "SELECT set_config('default_transaction_read_only', 'on', false)"


def connect(address: Address, limit_s: float) -> Bounded:
    """A connection of which each exchange ends within `limit_s`; each statement is a transaction of its own."""
    db = Bounded.connect(
        address.conninfo,
        autocommit=True,
        prepare_threshold=0,
        connect_timeout=max(CONNECT_S_MIN, round(limit_s)),
        fallback_application_name="callboard",
        client_encoding="UTF8",
    )
    db.limit_s = limit_s
    db.adapters.register_dumper(int, Int8BinaryDumper)  # one type for all numbers, so one statement for all
    return _set(db, COMMON, address.schema, f"{max(round(limit_s * 900), 1)}ms")


def connect_writer(address: Address, limit_s: float, *, full: bool) -> Bounded:
    """The one connection that writes."""
    return _set(connect(address, limit_s), WRITER, full, f"{max(round(limit_s * 500), IDLE_MIN_MS)}ms")


def connect_reader(address: Address, limit_s: float) -> Bounded:
    """A connection that cannot write."""
    return _set(connect(address, limit_s), READER)


def _set(db: Bounded, settings: str, *values: object) -> Bounded:
    """A connection with settings of ours; closed when the server does not take them."""
    with ExitStack() as undo:
        undo.callback(db.close)
        db.execute(settings.encode(), values)
        undo.pop_all()
    return db
