"""What tokens cost, and whether a session has used up what it may: pure arithmetic."""

import attrs

from callboard.actors.events import Usage

PRICED_TOKENS = 1_000_000


@attrs.frozen(kw_only=True)
class Price:
    """US dollars for a million tokens; `cached` is as dear as `input`, `reasoning` as `output`, unless it is said."""

    input: float = 0.0
    cached: float | None = None
    output: float = 0.0
    reasoning: float | None = None


def priced(usage: Usage, price: Price | None) -> Usage:
    """The usage with its cost, which a provider's own figure is where there is one."""
    if price is None or usage.cost_usd:
        return usage
    cached, reasoning = min(usage.cached, usage.input), min(usage.reasoning, usage.output)  # parts of them
    cost_usd = (
        (usage.input - cached) * price.input
        + cached * (price.input if price.cached is None else price.cached)
        + (usage.output - reasoning) * price.output
        + reasoning * (price.output if price.reasoning is None else price.reasoning)
    ) / PRICED_TOKENS
    return Usage(usage.input, usage.cached, usage.output, usage.reasoning, cost_usd)


def overspent(used: Usage, tokens_max: int | None, cost_usd_max: float | None, *, asking: bool) -> str | None:
    """Which budget of a session is used up, in words; None while there is some left.

    Before a request (`asking`) a budget that is used up to the last token is over, after a reply only one that was
    exceeded.
    """
    if tokens_max is not None and used.total + asking > tokens_max:
        return f"tokens_max: the session has used {used.total:,} of {tokens_max:,} tokens"
    if cost_usd_max is not None and (used.cost_usd > cost_usd_max or (asking and used.cost_usd == cost_usd_max)):
        return f"cost_usd_max: the session has cost {used.cost_usd:.4f} of {cost_usd_max:g} US dollars"
    return None
