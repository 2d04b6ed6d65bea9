"""What a runtime's configuration says of models and money reaches its sessions, their readers and the metrics."""

import pytest

from callboard.actors.envelope import Envelope
from callboard.actors.errors import ModelError
from callboard.actors.events import Compacted, Usage
from callboard.actors.model import Prompt, Reply
from callboard.actors.notices import ModelRetrying
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime
from callboard.runtime.assembly import limits_of, prices_of
from callboard.runtime.config import config_of
from callboard.runtime.models import ModelNames

USED = Usage(1_000, 500, 100, 0)


class Named(ScriptedModel):
    """A model with a name."""

    provider = "acme"
    name = "large"


def test_limits_are_the_configurations():
    """Each key of [model] and [budget] becomes a limit of the sessions."""
    config = config_of(
        {
            "model": {"context_window": 9, "compact_tokens_max": 8, "idle_timeout_s": 7, "retries_max": 6},
            "budget": {"tokens_max": 5, "cost_usd_max": 4},
        }
    )
    limits = limits_of(config)
    assert (9, 8, 7.0, 6) == (
        limits.context_window,
        limits.compact_tokens_max,
        limits.idle_timeout_s,
        limits.retries_max,
    )
    assert (5, 4.0) == (limits.tokens_max, limits.cost_usd_max)


@pytest.mark.parametrize(
    ("default", "name", "dollars"),
    [
        ("scripted:demo", None, 1),
        (None, "scripted:demo", 1),
        (None, None, 2),
        (None, "scripted:other", 2),
        pytest.param(Named(), None, 3, id="named"),
        (None, "acme:small", None),
    ],
    ids=str,
)
def test_price_of_a_model(default, name, dollars):
    """A session's model has the price of its name, else of its provider; a model object has PROVIDER:NAME."""
    config = config_of(
        {"prices": {"scripted:demo": {"input": 1}, "scripted": {"input": 2}, "acme:large": {"input": 3}}}
    )
    price = prices_of(config, ModelNames(default))(name)
    assert dollars == (None if price is None else price.input)
    assert prices_of(config_of({}), ModelNames(default))(name) is None


async def test_prices_and_budget_of_a_runtime():
    """A session pays by the table, its spending is in the metrics, and more than its budget aborts its next turn."""
    config = config_of({"prices": {"scripted": {"input": 1_000, "output": 5_000}}, "budget": {"cost_usd_max": 1.5}})
    async with open_runtime(config, model=ScriptedModel([Reply("ok")] * 3, usage=USED)) as rt:
        s = await rt.create()
        first, second = await s.run("one"), await s.run("two")
        assert "completed" == first.reason
        assert pytest.approx(1.5) == first.usage.cost_usd
        assert ("aborted", "budget", 0) == (second.reason, second.cause, second.steps)
        assert 'callboard_model_cost_usd_total{provider="scripted"} 1.5' in rt.metrics_text()


async def test_reader_with_deltas_hears_of_retries_and_compactions():
    """The notice comes between two events to readers with deltas alone; a compaction is an event like any other."""
    errors = [ModelError("busy", retryable=True)]

    def answer(prompt: Prompt) -> Reply:
        if errors:
            raise errors.pop()
        return Reply("ok", usage=USED)

    config = config_of({"model": {"context_window": 1_000}})
    async with open_runtime(config, model=ScriptedModel(answer)) as rt:
        s = await rt.create()
        async with s.events(deltas=True) as wide, s.events() as narrow:
            await s.run("one")
            await s.run("two")
            await s.stop()
            heard = [item async for item in wide]
            kept = [item async for item in narrow]
    assert [ModelRetrying(s.id, 1, 1, 3, 0.5, "busy")] == [i for i in heard if isinstance(i, ModelRetrying)]
    assert {Envelope} == {type(item) for item in kept}
    assert 1 == sum(isinstance(item, Envelope) and isinstance(item.event, Compacted) for item in kept)
