"""Async tests run where their folder says, and a test that hangs fails with the place where it hangs."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parent / "conftest.py"

RUNS = {
    "trio/test_clock.py": """
        import trio
        async def test_jumps(mock_clock):
            before = mock_clock.current_time()
            await trio.sleep(3600)
            assert trio.current_time() - before == 3600
    """,
    "trio/test_given.py": """
        import trio
        from hypothesis import given, strategies as st
        @given(st.integers())
        async def test_each_example(n):
            await trio.sleep(abs(n))
    """,
    "host/test_loop.py": """
        import asyncio
        async def test_asyncio():
            await asyncio.sleep(0)
            assert asyncio.get_running_loop()
    """,
}
FAILS = {
    "pure/test_async.py": ("async def test_a(): ...", "move it to tests/trio"),
    "trio/test_red.py": ("async def test_red():\n    assert 1 == 2", "assert 1 == 2"),
    "test_hang.py": (
        """
        import pytest, threading
        @pytest.mark.limit_s(0.3)
        def test_hang():
            lock = threading.Lock()
            with lock:
                lock.acquire()  # here
        """,
        "lock.acquire()  # here",
    ),
    "host/test_hang.py": (
        """
        import asyncio, pytest
        @pytest.mark.limit_s(0.3)
        async def test_hang():
            await asyncio.Future()
        """,
        "ran over 0.3 s",
    ),
    "trio/test_hang.py": (
        """
        import trio, pytest
        @pytest.mark.limit_s(0.3)
        async def test_hang():
            try:
                while True:
                    await trio.sleep(0)
            except Exception:
                pass
        """,
        "ran over 0.3 s",
    ),
}


def pytest_of(folder: Path, files: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of pytest over some files under this conftest."""
    (folder / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"), encoding="utf-8")
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    command = (sys.executable, "-m", "pytest", "--import-mode=importlib", "-W", "error", "-p", "no:cacheprovider")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_async_tests_run_in_their_ring(tmp_path):
    """Under trio/ a test has a clock that jumps, under host/ it has asyncio, and Hypothesis works with both."""
    code, output = pytest_of(tmp_path, RUNS)
    assert (0, True) == (code, f"{len(RUNS)} passed" in output), output


@pytest.mark.parametrize("name", FAILS)
def test_failures_are_failures(tmp_path, name):
    """A failing, hanging or misplaced async test fails, and says where and why."""
    text, said = FAILS[name]
    code, output = pytest_of(tmp_path, {name: text})
    assert (1, True) == (code, said in output and "1 failed" in output), output
