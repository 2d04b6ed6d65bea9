"""What must hold of every log and every history, and what floats and waiting tests need."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from callboard.actors.testing import check_history, check_log, of_kind

__all__ = ["about", "check_history", "check_log", "of_kind", "until"]


def about(seconds: float) -> Any:
    """Equal but for what floats lose."""
    return pytest.approx(seconds, abs=0.001)


async def until(met: Callable[[], object], within_s: float = 60.0) -> None:
    """Return once it is true, looked at every millisecond of Trio's clock."""
    with trio.fail_after(within_s):
        while not met():
            await trio.sleep(0.001)
