"""How tests run: async ones by their folder, each under a time limit, Hypothesis the same every time."""

import asyncio
import functools
import inspect
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import pytest
import trio
import trio.testing

TESTS = Path(__file__).resolve().parent
TEST_SECONDS_MAX = 60.0

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50, print_blob=True)
hypothesis.settings.register_profile("dev", deadline=None, max_examples=50, print_blob=True)
hypothesis.settings.register_profile("deep", deadline=None, max_examples=2000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


class TestHung(BaseException):
    """A test ran over its limit; not an Exception, so that no `except Exception` under test can hide it."""

    __test__ = False


def pytest_configure(config: pytest.Config) -> None:
    """Register the one marker of the house; programs that tests start meet Ctrl-C, also where this run ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as `make test &` in a script does
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "limit_s(seconds): how long the test may run")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test may not run for longer than the whole run may hang."""
    most_s = float(config.getini("faulthandler_timeout"))
    for item in items:
        if 0 < most_s <= _limit_s(item):
            raise pytest.UsageError(
                f"{item.nodeid} may run {_limit_s(item):g} s: give less than {most_s:g} to limit_s."
            )


def _limit_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("limit_s")
    return float(marker.args[0]) if marker else TEST_SECONDS_MAX


@pytest.fixture
def mock_clock() -> trio.testing.MockClock:
    """The clock of an async test under tests/trio: it jumps to the next deadline when every task waits."""
    return trio.testing.MockClock(autojump_threshold=0)


@pytest.fixture(scope="session")
def postgres() -> Iterator[object]:
    """A PostgreSQL server for all tests that ask for one; it starts with the first of them."""
    yield from _served()


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[object]:
    """A PostgreSQL server for one file of tests, which may end it."""
    yield from _served()


def _served() -> Iterator[object]:
    from .postgres_server import missing, serving  # this file is also tried out by itself

    if (why := missing()) is not None:
        pytest.skip(why)
    with serving() as server:
        yield server


def _ring(path: Path) -> str:
    parts = path.relative_to(TESTS).parts
    return parts[0] if len(parts) > 1 else ""


def _run(item: pytest.Function, test: Callable[..., Awaitable[object]], arguments: dict[str, Any]) -> None:
    """Run one async test by the ring its folder names."""
    ring = _ring(item.path)
    if ring == "trio":
        clock = item.funcargs.get("mock_clock")
        if not isinstance(clock, trio.testing.MockClock):
            clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(functools.partial(test, **arguments), clock=clock)
    elif ring == "host":
        asyncio.run(_awaited(test, arguments))
    else:
        pytest.fail(
            f"{item.nodeid} is async: move it to tests/trio (MockClock) or tests/host (asyncio).",
            pytrace=False,
        )


async def _awaited(test: Callable[..., Awaitable[object]], arguments: dict[str, Any]) -> None:
    await test(**arguments)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run async tests; everything else is pytest's."""
    test = pyfuncitem.obj
    inner = getattr(getattr(test, "hypothesis", None), "inner_test", None)
    if inner is not None and inspect.iscoroutinefunction(inner):
        # Hypothesis calls the inner test once per example; each example gets a run of its own.
        test.hypothesis.inner_test = lambda **arguments: _run(pyfuncitem, inner, arguments)
        return None
    if not inspect.iscoroutinefunction(test):
        return None
    _run(pyfuncitem, test, {n: pyfuncitem.funcargs[n] for n in pyfuncitem._fixtureinfo.argnames})
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Fail a test that hangs, with the place where it hangs.

    A hang outside Python ends the whole run a little later: `faulthandler_timeout` in pyproject.toml.
    """
    limit_s = _limit_s(item)

    def hung(_signal: int, _frame: FrameType | None) -> None:
        raise TestHung(f"{item.nodeid} ran over {limit_s:g} s")

    before = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, limit_s, 1.0)  # and again each second, should something swallow the first
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
