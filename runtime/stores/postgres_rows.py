"""The statements that write rows of PostgreSQL, each over arrays, so that a group of any size is one of them."""

from typing import Final

NOW_MS: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""The server's clock is the one that all leases go by."""

# Rows are locked in the order of their numbers, by all, so that nobody waits in a circle. A row that another program
# is just taking over is waited for, and then read as it is by then: an append with an old epoch finds nothing.
HELD: Final = """WITH held AS MATERIALIZED (
    SELECT s.number FROM unnest(%b::bigint[], %b::bigint[]) AS mine(number, epoch)
    JOIN sessions s ON s.number = mine.number AND s.epoch = mine.epoch
    ORDER BY s.number FOR NO KEY UPDATE OF s),
whole AS MATERIALIZED (SELECT count(*) = %b::bigint AS all_ours FROM held),
put AS (
    INSERT INTO events(session, seq, at_ms, turn, body)
    SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
    WHERE (SELECT all_ours FROM whole))"""

PLAIN: Final = f"{HELD} SELECT count(*) FROM held"  # noqa: S608 - no value in it
"""Events alone; of whose sessions how many are ours: all, or nothing was written."""

WHOLE: Final = f"""{HELD},
heads AS (
    UPDATE sessions s SET parent = h.parent, root = h.root, path = h.path, title = h.title, status = h.status,
        due_ms = h.due_ms, created_ms = h.created_ms, updated_ms = h.updated_ms
    FROM unnest(%b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bigint[],
        %b::bigint[], %b::bigint[])
        AS h(number, parent, root, path, title, status, due_ms, created_ms, updated_ms)
    WHERE s.number = h.number AND (SELECT all_ours FROM whole)),
dues AS (
    UPDATE sessions s SET due_ms = d.due_ms FROM unnest(%b::bigint[], %b::bigint[]) AS d(number, due_ms)
    WHERE s.number = d.number AND (SELECT all_ours FROM whole))
SELECT count(*) FROM held"""  # noqa: S608 - no value in it
"""Events, headers and due times."""

NEW: Final = """INSERT INTO sessions(id, created_ms, owner, epoch)
    SELECT id, created_ms, %b, 1 FROM unnest(%b::bytea[], %b::bigint[]) AS new(id, created_ms)
    WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = new.id) ORDER BY id ON CONFLICT (id) DO NOTHING"""

LOCK: Final = "SELECT number FROM sessions WHERE id = ANY(%b::bytea[]) ORDER BY number FOR NO KEY UPDATE"
"""A statement of its own: one that waits for a lock sees that row as it is by then, but the rows beside it as they
were when it began, as if a new owner were on no list."""

STANDINGS: Final = f"""SELECT s.id, s.number, s.epoch, s.owner, o.lease_ms, o.about, {NOW_MS},
    (SELECT seq FROM events WHERE session = s.number ORDER BY seq DESC LIMIT 1)
    FROM sessions s LEFT JOIN owners o ON o.owner = s.owner WHERE s.id = ANY(%b::bytea[])"""  # noqa: S608 - no value in it

TAKE: Final = "UPDATE sessions SET owner = %b, epoch = epoch + 1 WHERE number = ANY(%b::bigint[])"
RELEASE: Final = "UPDATE sessions SET owner = NULL WHERE owner = %b AND id = ANY(%b::bytea[])"
SNAP: Final = """INSERT INTO snapshots(session, key, version, seq, body)
    SELECT n.session, n.key, n.version, n.seq, n.body
    FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[], %b::bigint[], %b::bigint[], %b::bytea[])
        AS n(session, epoch, key, version, seq, body)
    JOIN sessions s ON s.number = n.session AND s.epoch = n.epoch
    WHERE EXISTS (SELECT 1 FROM events e WHERE e.session = n.session AND e.seq = n.seq)
    ON CONFLICT (session, key) DO UPDATE SET version = excluded.version, seq = excluded.seq, body = excluded.body
    RETURNING session, key"""
"""With the epoch being ours, the records up to a stored one are those that the snapshot was made of."""

RENEW: Final = f"""INSERT INTO owners(owner, lease_ms, about) VALUES (%b, {NOW_MS} + %b::bigint, %b)
    ON CONFLICT (owner) DO UPDATE SET lease_ms = excluded.lease_ms"""  # noqa: S608 - no value in it
FORGET: Final = "DELETE FROM owners WHERE owner = %b"
SWEEP: Final = f"DELETE FROM owners WHERE lease_ms < {NOW_MS}"  # noqa: S608 - no value in it
