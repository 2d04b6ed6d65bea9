"""The tables of a PostgreSQL store: whose the schema is, its version, and the steps to the newest one."""

from typing import Final

from callboard.actors.errors import LogError
from callboard.runtime.stores.postgres_place import Address, Bounded

LOCK_CODE = 0x43414C4C
"""The first half of the advisory lock that is held while the tables are made; the schema's name is the second."""

STEPS: Final = (
    (
        # Ids and texts are bytes, in UTF-8: compared like those of the other stores, and any character may be in them.
        """CREATE TABLE sessions(
            number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id bytea NOT NULL UNIQUE, parent bytea,
            root bytea NOT NULL DEFAULT '', path bytea NOT NULL DEFAULT '/root', title bytea,
            status bytea NOT NULL DEFAULT 'idle', due_ms bigint, created_ms bigint NOT NULL DEFAULT 0,
            updated_ms bigint NOT NULL DEFAULT 0, owner text, epoch bigint NOT NULL DEFAULT 0)""",
        "CREATE INDEX sessions_due ON sessions(due_ms, id) WHERE due_ms IS NOT NULL",
        """CREATE TABLE events(session bigint NOT NULL, seq bigint NOT NULL, at_ms bigint NOT NULL, turn bigint,
            body bytea NOT NULL, PRIMARY KEY(session, seq))""",
        "CREATE TABLE owners(owner text PRIMARY KEY, lease_ms bigint NOT NULL, about text NOT NULL)",
        """CREATE TABLE snapshots(session bigint NOT NULL, key bytea NOT NULL, version bigint NOT NULL,
            seq bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY(session, key))""",
    ),
)
"""The statements that lead from each version of the schema to the next, from the empty schema on."""

SCHEMA_VERSION = len(STEPS)


def settle(db: Bounded, address: Address) -> None:
    """Make or migrate the tables; programs that come at once do it one after the other.

    Raises `LogError` for a schema that is foreign or newer, `psycopg.Error` when the server refuses.
    """
    if version_of(db, address) == SCHEMA_VERSION:
        return
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s::int, hashtext(%s))", (str(LOCK_CODE), address.schema))
        version = version_of(db, address)
        if version is None:
            db.execute(_quoted(db, "CREATE SCHEMA {}", address))
        if not version:
            db.execute("CREATE TABLE callboard_version(version bigint NOT NULL)")
            db.execute("INSERT INTO callboard_version VALUES (0)")
        for statements in STEPS[version or 0 :]:
            for statement in statements:
                db.execute(statement)
        db.execute("UPDATE callboard_version SET version = %s", (SCHEMA_VERSION,))


def version_of(db: Bounded, address: Address) -> int | None:
    """The version of the schema, 0 when it is empty, None when it is not there.

    Raises `LogError` when it is foreign or newer.
    """
    schema, ours, others = db.execute(
        "SELECT n.oid, to_regclass(quote_ident(n.nspname) || '.callboard_version')::oid,"
        " (SELECT count(*) FROM pg_class WHERE relnamespace = n.oid)"
        " FROM (SELECT 1) one LEFT JOIN pg_namespace n ON n.nspname = %s",
        (address.schema,),
    ).fetchone() or (None, None, 0)
    if schema is None:
        return None
    if ours is None:
        if others:
            raise LogError(
                f"schema {address.schema} of the {address.shown} holds the tables of another program: "
                "name one of your own, as in ?schema=callboard."
            )
        return 0
    (version,) = db.execute("SELECT max(version) FROM callboard_version").fetchone() or (0,)
    if version > SCHEMA_VERSION:
        raise LogError(
            f"schema {address.schema} of the {address.shown} has version {version} and this build knows up to "
            f"{SCHEMA_VERSION}: install a newer callboard."
        )
    return int(version)


def _quoted(db: Bounded, statement: str, address: Address) -> bytes:
    (name,) = db.execute("SELECT quote_ident(%s)", (address.schema,)).fetchone() or ("",)
    return statement.format(name).encode()
