"""What tokens cost, and when a budget is used up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.budget import Price, overspent, priced
from callboard.actors.events import Usage

COUNTS = st.integers(0, 10**9)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS)


@pytest.mark.parametrize(
    ("usage", "price", "cost_usd"),
    [
        (Usage(1_000_000), Price(input=2.5), 2.5),
        (Usage(1_000_000, 400_000), Price(input=2, cached=0.5), 1.4),
        (Usage(1_000_000, 400_000), Price(input=2), 2.0),
        (Usage(0, 0, 1_000_000, 500_000), Price(output=10, reasoning=4), 7.0),
        (Usage(0, 0, 1_000_000, 500_000), Price(output=10), 10.0),
        (Usage(1_000_000, 0, 1_000_000), Price(input=1, output=2), 3.0),
        (Usage(100, 900, 100, 900), Price(input=1, cached=0, output=1, reasoning=0), 0.0),
        (Usage(1_000_000, cost_usd=0.25), Price(input=2), 0.25),
        (Usage(1_000_000), None, 0.0),
    ],
)
def test_cost(usage, price, cost_usd):
    """Cached input and reasoning have prices of their own where these are given; a provider's own figure stays."""
    assert pytest.approx(cost_usd) == priced(usage, price).cost_usd


@given(USAGES, st.floats(0, 100), st.floats(0, 100))
def test_cost_changes_no_count(usage, input_usd, output_usd):
    """Pricing leaves the counts alone and is never below zero."""
    found = priced(usage, Price(input=input_usd, cached=input_usd / 2, output=output_usd))
    assert (usage.input, usage.cached, usage.output, usage.reasoning) == (
        found.input,
        found.cached,
        found.output,
        found.reasoning,
    )
    assert found.cost_usd >= 0


@pytest.mark.parametrize(
    ("used", "tokens_max", "cost_usd_max", "asking", "reply"),
    [
        (Usage(60, 0, 40), None, None, False, False),
        (Usage(60, 0, 39), 100, None, False, False),
        (Usage(60, 0, 40), 100, None, True, False),
        (Usage(60, 0, 41), 100, None, True, True),
        (Usage(), 0, None, True, False),
        (Usage(cost_usd=0.99), None, 1.0, False, False),
        (Usage(cost_usd=1.0), None, 1.0, True, False),
        (Usage(cost_usd=1.01), None, 1.0, True, True),
        (Usage(1, cost_usd=1.01), 100, 1.0, True, True),
    ],
)
def test_overspent(used, tokens_max, cost_usd_max, asking, reply):
    """Nothing left is over before a request; only more than that is over after a reply; the words name the budget."""
    words = overspent(used, tokens_max, cost_usd_max, asking=True)
    assert (asking, reply) == (
        words is not None,
        overspent(used, tokens_max, cost_usd_max, asking=False) is not None,
    )
    assert words is None or words.startswith("cost_usd_max: " if cost_usd_max is not None else "tokens_max: ")
