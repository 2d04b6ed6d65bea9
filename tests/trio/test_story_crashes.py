"""A day of an agent that dies at each of its appends, one after the other: whatever was promised is kept."""

from functools import partial

import pytest

from callboard.actors.testing import crash_at_each_append

from .storied import day, opens

DEATHS_MIN = 170  # a story that makes fewer appends shows less than it did


@pytest.mark.parametrize("recover", ["close", "continue"])
@pytest.mark.limit_s(180)
def test_a_day_that_ends_at_every_append(recover):
    """Three tools, an interrupt, a subagent, a reminder, an approved plan: enumerated, both sides of each append."""
    assert crash_at_each_append(day, opens=partial(opens, recover=recover)) >= DEATHS_MIN
