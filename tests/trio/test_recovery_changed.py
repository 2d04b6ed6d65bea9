"""A turn that goes on behind a crash in a program whose tools have changed since."""

import pytest
import trio

from callboard.actors.events import ToolCalled, ToolReturned, TurnEnded
from callboard.actors.memory import MemoryStore
from callboard.actors.model import Reply
from callboard.actors.plugin import Call, View
from callboard.actors.receipts import MAY_REPEAT
from callboard.actors.testing import ScriptedModel, check_log, of_kind, open_lab
from callboard.actors.tool import tool

from .test_recovery import GO_ON, copy_of, decoded


def mover(effect, kind):
    """The tool `move`, whose argument is of this kind; and what ran of it."""
    ran = []

    @tool(name="move", effect=effect)
    async def move(amount: kind, view: View) -> str:  # type: ignore[valid-type]
        """Move something."""
        ran.append((amount, view.key))
        await trio.sleep(0.01)
        return "moved"

    return move, ran


def answers():
    """One call, then the last word."""
    return ScriptedModel([Reply("", [Call("move", {"amount": 5})]), Reply("Done.")])


async def cut_off(effect):
    """The records of a turn that was killed while `move` ran."""
    store, (move, _) = MemoryStore(), mover(effect, int)
    async with open_lab(answers(), tools=[move], store=store) as lab:
        await (await lab.session("s")).run("go")
    records = store.read("s", -1, 1_000)
    called = next(at for at, event in enumerate(decoded(records)) if isinstance(event, ToolCalled))
    return records[: called + 1]


@pytest.mark.parametrize("effect", ["none", "idempotent"])
async def test_what_may_have_been_done_is_not_called_failed(effect):
    """A call that had begun and does not fit its tool any more was interrupted, not failed; its text says both."""
    records, (move, ran) = await cut_off(effect), mover(effect, list[str])
    store = copy_of(records)
    async with open_lab(ScriptedModel([Reply("Done.")]), tools=[move], store=store, limits=GO_ON) as lab:
        s = await lab.session("s", fresh=False)
        with trio.fail_after(60):
            await s.wait_idle()
    events = decoded(store.read("s", -1, 1_000))
    check_log(events)
    (returned,), (ended,) = of_kind(events, ToolReturned), of_kind(events, TurnEnded)
    assert ("interrupted", "completed", []) == (returned.receipt, ended.reason, ran)
    assert returned.text.startswith(f"{MAY_REPEAT} It was to run again here, and could not: ")


async def test_what_fits_runs_again_under_its_key():
    """The same tool gets the same arguments under the same key, and its result is the call's."""
    records, (move, ran) = await cut_off("idempotent"), mover("idempotent", int)
    store = copy_of(records)
    async with open_lab(ScriptedModel([Reply("Done.")]), tools=[move], store=store, limits=GO_ON) as lab:
        with trio.fail_after(60):
            await (await lab.session("s", fresh=False)).wait_idle()
    (returned,) = of_kind(decoded(store.read("s", -1, 1_000)), ToolReturned)
    assert ("completed", "moved", [(5, "s/1/t1s1c1")]) == (returned.receipt, returned.text, ran)
