"""A program that appends to several sessions of a store for ever, and says each acknowledged record."""

import asyncio
import os
import random
import sys
from typing import Any

from callboard.actors.store import Header, Record
from callboard.runtime.stores import open_store


def body(session, seq):
    """The bytes of a record, which tell whose it is."""
    return b'{"type":"note_added","text":"%s %d %s"}' % (session.encode(), seq, b"x" * (seq * 37 % 3000))


async def synced(store, session):
    """What the store answers once what was appended is durable."""
    answer = asyncio.get_running_loop().create_future()
    store.sync(answer.set_result, session)
    return await answer


async def live(store, session, chance):
    """Append, wait, say."""
    header = await asyncio.to_thread(store.header, session)
    seq = header.events if header else 0
    while True:
        for _ in range(chance.choice((1, 1, 2))):
            count = chance.randint(1, 4)
            kept = [Record(n, n, None, body(session, n)) for n in range(seq, seq + count)]
            store.append(session, kept, Header(session, title=str(seq)) if chance.random() < 0.3 else None)
            seq += count
        while (error := await synced(store, session)) is not None:
            os.write(1, b"error %r\n" % str(error))
        os.write(1, b"%s %d\n" % (session.encode(), seq - 1))
        if chance.random() < 0.1:
            await asyncio.sleep(0.001)


async def main(url, seed, sessions):
    """All sessions side by side, for ever."""
    chance = random.Random(seed)
    store: Any = open_store(url)
    store.open(asyncio.get_running_loop().call_soon_threadsafe)
    await asyncio.gather(*(live(store, f"s{n}", chance) for n in range(sessions)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
