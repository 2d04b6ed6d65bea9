"""Two runtimes on one PostgreSQL database: a session has one of them at a time, and goes over when that one ends."""

import asyncio
import os

from callboard.actors import Fenced, Reply
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime

URL = "CALLBOARD_POSTGRES_URL"


async def main(url: str) -> None:
    """The second runtime may have the session once the first one is closed."""
    async with open_runtime(model=ScriptedModel([Reply("From there.")]), store=url) as there:
        async with open_runtime(model=ScriptedModel([Reply("From here.")]), store=url) as here:
            session = await here.create()
            print((await session.run("Where are you?")).last_message)
            try:
                await there.open(session.id)
            except Fenced:
                print("Not there yet: it is held by another.")
        session = await there.open(session.id)
        print((await session.run("And now?")).last_message)


if __name__ == "__main__":
    if URL in os.environ:
        asyncio.run(main(os.environ[URL]))
    else:
        print(f"Name a database: {URL}=postgresql://USER:PASSWORD@HOST:PORT/DATABASE python examples/postgres.py")
