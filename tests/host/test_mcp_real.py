"""Servers that others wrote: two of npm, where they are installed, and the SDK's own over stdio and HTTP."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from callboard.actors.plugin import Failed
from callboard.plugins.mcp_tools import Belief

from .mcp_kit import HTTP, SDK, Kept, descendants, kept

PLACE = os.environ.get("CALLBOARD_MCP_SERVERS", "")


def program(name: str) -> str:
    """The path of a server of npm's; the test is skipped where there is none."""
    found = shutil.which(name, path=f"{PLACE}/node_modules/.bin") if PLACE else None
    found = found or shutil.which(name)
    if found is None or shutil.which("node") is None:
        pytest.skip(f"no {name} here: set CALLBOARD_MCP_SERVERS to the folder where npm installed it")
    return found


def test_everything():
    """The reference server: calls, progress, pictures, resources, structured content, a cancelled call."""

    async def test(one: Kept) -> None:
        assert 10 <= len(one.of.tools)
        assert "Echo: hi" == await one.call("echo", message="hi")
        assert "The sum of 1 and 2 is 3." == await one.call("get-sum", a=1, b=2)
        image = await one.call("get-tiny-image")
        assert "image/png" in image
        assert len(image) < 1_000
        assert "temperature" in await one.call("get-structured-content", location="Chicago")
        assert isinstance(await one.call("get-sum", a="one"), Failed)
        await one.call("trigger-long-running-operation", duration=0.3, steps=3)
        assert one.shown
        begun_s = trio.current_time()
        with trio.move_on_after(0.1):
            await one.call("trigger-long-running-operation", duration=30, steps=3)
        assert trio.current_time() - begun_s < 0.4
        assert "Echo: on" == await one.call("echo", message="on")

    kept(test, (program("mcp-server-everything"), "stdio"))
    assert not descendants()


def test_filesystem(tmp_path):
    """The reference server of files: it reads what it may read, refuses what it may not, and says what only reads."""
    (tmp_path / "a.txt").write_text("hello")

    async def test(one: Kept) -> None:
        folder = str(tmp_path.resolve())
        assert "hello" in await one.call("read_text_file", path=f"{folder}/a.txt")
        assert isinstance(await one.call("read_text_file", path="/etc/passwd"), Failed)
        effects = {tool.name[10:]: tool.effect for tool in one.of.tools}
        assert ("none", "once") == (effects["read_text_file"], effects["edit_file"])

    argv = (program("mcp-server-filesystem"), str(tmp_path.resolve()))
    kept(test, argv, belief=Belief(trust=True))
    assert not descendants()


@contextmanager
def http_server(port: int = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The SDK's server with streamable HTTP."""
    with subprocess.Popen([*HTTP, str(port)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server
        finally:
            server.kill()


async def _used(one: Kept) -> None:
    assert {"mcp__srv__add", "mcp__srv__pid", "mcp__srv__slow", "mcp__srv__grow", "mcp__srv__large"} == {
        tool.name for tool in one.of.tools
    }
    assert "5" == await one.call("add", a=2, b=3)
    wrong = await one.call("add", a="x")
    assert isinstance(wrong, Failed)
    assert "slept" == await one.call("slow", seconds=0.3)
    assert len(one.shown) > 2
    begun_s = trio.current_time()
    with trio.move_on_after(0.1):
        await one.call("slow", seconds=30)
    assert trio.current_time() - begun_s < 0.4
    large = await one.call("large", megabytes=6)
    assert isinstance(large, Failed)
    assert 1_000_000 == len(await one.call("large", megabytes=1))
    await one.call("grow")
    await one.met(lambda: "mcp__srv__extra" in {tool.name for tool in one.of.tools})


def test_the_sdk_over_stdio():
    """A server of the SDK speaks the newest revision over its pipes."""
    kept(_used, SDK)
    assert not descendants()


@pytest.mark.limit_s(50)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK leaves its generators open
def test_the_sdk_over_http(monkeypatch):
    """The same with streamable HTTP and past any proxy; a server that goes away is found again when it is back."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with http_server() as (url, server):

        async def test(one: Kept) -> None:
            await _used(one)
            server.kill()
            server.wait()
            gone = await one.call("add", a=1, b=2)
            assert isinstance(gone, Failed)
            assert gone.text.startswith("The MCP server srv was lost during this call")
            await one.met(lambda: one.of.phase == "waiting")
            with http_server(int(url.rpartition(":")[2].partition("/")[0])):
                await one.ready()
                assert "3" == await one.call("add", a=1, b=2)

        kept(test, url=url, headers={"X-Key": "$$none"})


def test_nobody_listens():
    """An address where nobody is says so."""

    async def test(one: Kept) -> None:
        await one.met(lambda: one.lost)
        down = await one.call("add")
        assert isinstance(down, Failed)
        assert "srv" in down.text

    kept(test, url="http://127.0.0.1:9/mcp", wait=False)
