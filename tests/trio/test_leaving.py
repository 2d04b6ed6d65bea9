"""A session that is about to be stopped, while those below it end: it asks nothing, and loses nothing by that."""

import trio

from callboard.actors.books import QUEUE
from callboard.actors.errors import ModelError
from callboard.actors.messages import Interrupt
from callboard.actors.model import Prompt, Reply
from callboard.actors.testing import ScriptedModel, open_lab


async def test_no_request_is_tried_again():
    """A request that failed waits with its next attempt, and goes on when the session is not stopped after all."""
    leaving = list[str]()

    def reply(prompt: Prompt) -> Reply:
        if len(model.prompts) == 1:
            leaving.append(prompt.session)
            raise ModelError("busy", retryable=True)
        return Reply("at last")

    model = ScriptedModel(reply)
    async with open_lab(model) as lab:
        lab.stage.leaving = leaving.__contains__
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(60)
        assert 1 == len(model.prompts)
        leaving.clear()
        await session.wait_idle()
        ended = session.actor.last_ended
        assert ended is not None
        assert ("completed", "at last") == (ended.reason, ended.last_message)


async def test_what_would_start_a_turn_stays():
    """A turn that begins then claims nothing: its message is queued still when it has been ended."""
    model = ScriptedModel(lambda prompt: Reply("done"))
    async with open_lab(model) as lab:
        lab.stage.leaving = lambda session: True
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(60)
        session.actor.tell(Interrupt(None, "shutdown"))
        await session.wait_idle()
        ended = session.actor.last_ended
        assert ended is not None
        assert ("aborted", "shutdown", 0) == (ended.reason, ended.cause, ended.steps)
        assert ["go"] == [message.text for message in session.actor.log[QUEUE]]
        assert [] == model.prompts
        lab.stage.leaving = lambda session: False
