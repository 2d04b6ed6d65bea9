"""A connection to a server of tools over real pipes: calls, results, and servers that are slow, silent, mad or dead."""

import json
import logging

import pytest
import trio

from callboard.actors.plugin import Failed

from .mcp_kit import RAW, Kept, descendants, is_alive, kept


def test_calls_and_their_results():
    """Text comes back as it is, pictures by their size, structured content as JSON, and failures as such."""

    async def test(one: Kept) -> None:
        names = ("echo", "image", "data", "failing", "wrong", "answer_and_die")
        assert [
            "hi",
            "here\n[image, image/png, 300 bytes: not shown]",
            '{"a":[1,2]}',
            Failed("disk full"),
            Failed("The MCP server srv refused the call: the server's answer does not follow the protocol (19 errors)"),
            "last words",
        ] == [await one.call(name, text="hi") for name in names]

    kept(test)


def test_progress_is_shown():
    """What a server tells of its progress is shown piece by piece, and a flood of it is thinned."""

    async def test(one: Kept) -> None:
        assert "stepped" == await one.call("steps")
        assert ["0/3 step[2J 0\n", "1/3 step[2J 1\n", "2/3 step[2J 2\n"] == one.shown
        assert "stepped" == await one.call("many")
        assert len(one.shown) < 200

    kept(test)


def test_what_a_server_asks_of_us_is_declined():
    """Elicitation is not offered, and a server that asks all the same is told so in the middle of its call."""

    async def test(one: Kept) -> None:
        answer = await one.call("ask")
        assert "not supported" in json.loads(answer)["message"]
        assert "initialize" in json.loads(await one.call("heard"))

    kept(test)


def test_a_cancelled_call_reaches_the_server_and_holds_nobody():
    """Its caller is gone at once, the server is told which request it was, and other calls go on."""

    async def test(one: Kept) -> None:
        begun_s = trio.current_time()
        with trio.move_on_after(0.05):
            await one.call("hang")
        assert trio.current_time() - begun_s < 0.3
        assert 0 == one.of.record().calls
        cancelled: list[int] = []
        with trio.fail_after(5):
            while not cancelled:
                cancelled = json.loads(await one.call("cancelled"))
        assert 1 == len(cancelled)

    kept(test)


def test_a_server_that_does_not_read():
    """Calls to one that reads nothing any more can be left like any other, and it is ended with force."""

    async def test(one: Kept) -> None:
        begun_s = trio.current_time()
        with trio.move_on_after(0.1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.call, "deaf")
                for _ in range(20):
                    nursery.start_soon(one.of.call, "echo", {"text": "x" * 100_000}, one.shown.append)
        assert trio.current_time() - begun_s < 0.6

    kept(test)
    assert not descendants()


def test_a_server_dies_in_a_call():
    """The call ends with one sentence, the next ones say what is the matter, and the server is started again."""

    async def test(one: Kept) -> None:
        first = await one.call("pid")
        died = await one.call("die")
        assert died == Failed(
            "The MCP server srv was lost during this call (it ended: Exit code: 3): "
            "whether the call took effect is not known."
        )
        down = await one.call("echo", text="x")
        assert isinstance(down, Failed)
        assert down.text.startswith("The MCP server srv is ")
        assert down.text.endswith("The call did not run.")
        await one.ready()
        assert first != await one.call("pid")
        assert ["MCP server srv: it ended: Exit code: 3"] == one.lost

    kept(test)


def test_an_answer_of_a_hundred_megabytes():
    """It fails its own call and no other; one that answers nothing that can be told is the end of the connection."""

    async def test(one: Kept) -> None:
        begun_s = trio.current_time()
        large = await one.call("huge")
        assert large == Failed(
            "The MCP server srv refused the call: the answer was larger than 4,194,304 bytes and was not kept"
        )
        assert "hi" == await one.call("echo", text="hi")
        lost = await one.call("hugeless")
        assert isinstance(lost, Failed)
        assert "it sent a message of 100,000,008 bytes, which is too large, and was ended" in lost.text
        assert trio.current_time() - begun_s < 15

    kept(test)


def test_a_list_that_changes():
    """A server that says so is asked for its list again."""

    async def test(one: Kept) -> None:
        before = {tool.name for tool in one.of.tools}
        await one.call("grow")
        await one.met(lambda: {tool.name for tool in one.of.tools} != before)
        after = {tool.name for tool in one.of.tools}
        assert ({"mcp__srv__extra"}, {"mcp__srv__many"}) == (after - before, before - after)

    kept(test)


@pytest.mark.parametrize(("variant", "count"), [("junk", 25), ("liar", 11), ("endless", 256)])
def test_servers_that_say_nonsense(variant, count, caplog):
    """Lines that are no messages are passed over, lies are replaced, and a list without an end has one."""
    caplog.set_level(logging.INFO, "callboard.mcp")

    async def test(one: Kept) -> None:
        assert count == len(one.of.tools)

    kept(test, (*RAW, variant))
    assert all(len(record.getMessage()) < 500 for record in caplog.records)


def test_a_server_that_says_nothing():
    """It is given up after `connect_s`, and tried again."""

    async def test(one: Kept) -> None:
        await one.met(lambda: len(one.lost) > 1)
        assert "MCP server srv: it did not answer within 0.2 s" == one.lost[0]
        down = await one.call("echo")
        assert isinstance(down, Failed)
        assert "it did not answer within 0.2 s" in down.text

    kept(test, (*RAW, "silent"), wait=False, connect_s=0.2)
    assert not descendants()


def test_a_server_that_ends_at_once(monkeypatch, caplog):
    """Its last line says why, without what is secret in it."""
    monkeypatch.setenv("SECRET_OF_OURS", "hunter2-and-more")
    caplog.set_level(logging.INFO, "callboard.mcp")

    async def test(one: Kept) -> None:
        await one.met(lambda: len(one.lost) > 0)

    one = kept(test, (*RAW, "exits"), wait=False, env={"SECRET": "$SECRET_OF_OURS"})
    said = "MCP server srv: it ended: Exit code: 3; it said: there is no licence for key [hidden]"
    assert said == one.lost[0]
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("argv", "why"),
    [(("nowhere-at-all",), "there is no program 'nowhere-at-all'"), (("./no",), "there is no program './no'")],
)
def test_a_program_that_is_not_there(argv, why):
    """That is said to whoever calls."""

    async def test(one: Kept) -> None:
        await one.met(lambda: len(one.lost) > 0)
        assert f"MCP server srv: {why}" == one.lost[0]

    kept(test, argv, wait=False)


def test_what_a_server_is_given(monkeypatch):
    """It gets no variable of ours but those that are allowed or configured."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-never")
    monkeypatch.setenv("TOKEN_OF_OURS", "hunter2-and-more")

    async def test(one: Kept) -> None:
        environment = json.loads(await one.call("env"))
        assert "hunter2-and-more" == environment["TOKEN"]
        assert not {"OPENAI_API_KEY", "TOKEN_OF_OURS"} & set(environment)
        refused = await one.call("refuse")
        assert isinstance(refused, Failed)
        assert len(refused.text) < 400

    kept(test, env={"TOKEN": "$TOKEN_OF_OURS", "SECRET": "$TOKEN_OF_OURS"})


def test_noise_on_its_standard_error(caplog):
    """It is logged up to a bound, and holds nothing up."""
    caplog.set_level(logging.INFO, "callboard.mcp")

    async def test(one: Kept) -> None:
        assert "quiet" == await one.call("noise")

    kept(test)
    assert len(caplog.records) < 210


def test_what_a_server_started_goes_with_it():
    """Its children go too, those in a session of their own as well."""
    pids: list[int] = []

    async def test(one: Kept) -> None:
        pids.append(int(await one.call("child")))
        assert is_alive(pids[0])

    kept(test)
    assert not is_alive(pids[0])
    assert not descendants()
