"""A session that changes its model between turns: checked at once, on its log, heard by agents, priced as it is."""

import asyncio

import msgspec
import pytest
import trio
from tests.sse_server import sse_server
from tests.wires import USED, WIRES, Line, Spoken, serve

from callboard.actors import Accepted, ModelChosen, ModelSaid, Refused, Reply, Told, TurnEnded
from callboard.actors.plugin import Command, Did, Plugin
from callboard.actors.testing import ScriptedModel
from callboard.runtime import ModelConfig, RuntimeConfig, open_runtime
from callboard.runtime.doors.cli import main
from callboard.runtime.settings import PriceConfig

from .hosted import events, until
from .parents import of

KEY = "sk-planted-0123456789"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted keys."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)


def says(lines: list[Line]) -> Spoken:
    """Starts an agent where it is asked to, and says how much it was told."""
    asked = [line.text for line in lines if line.who == "user"]
    if "an agent" in asked[-1] and lines[-1].who != "result":
        return Spoken(calls=(("spawn_agent", {"task_name": "a", "message": "go"}), ("wait_agent", {})))
    return Spoken(text=f"{len(lines)} lines")


async def test_from_the_next_turn_on_another_model_answers():
    """Idle it holds at once; chosen in a turn, that turn ends with the model it began with."""
    gate = trio.Event()

    async def reply(prompt):
        if prompt.turn == 3:
            await gate.wait()
        return Reply("first")

    async with open_runtime(model=ScriptedModel(reply)) as rt:
        s = await rt.create("s")
        assert s.state()["model"] is None
        assert await s.command("/model") == Told("model: scripted")
        assert (await s.run("one")).last_message == "first"
        assert await s.use("model", "scripted:demo") == Told("model: scripted:demo, from now on")
        assert s.state()["model"] == "scripted:demo"
        assert (await s.run("two")).last_message != "first"
        assert await s.command("/model default") == Told("model: scripted, from now on")
        running = asyncio.create_task(s.run("three"))
        await until(lambda: s.state()["phase"] == "running")
        assert await s.command("/model scripted:demo") == Told("model: scripted:demo, from the next turn on")
        rt._ground.guest.run_soon(gate.set)
        assert (await running).last_message == "first"
        assert (await s.run("four")).last_message != "first"
        assert await s.command("/model scripted:demo") == Told("model: scripted:demo, as before")
        assert [ModelChosen("scripted:demo"), ModelChosen(None), ModelChosen("scripted:demo")] == of(
            ModelChosen, rt, "s"
        )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nobody:x", "model 'nobody:x' is not known"),
        ("replay:/no/such/file", "There is no file"),
        ("openai: ", "is not known"),
        ({"model": 1}, "/model takes the name of a model"),
        (7, "/model takes the name of a model"),
        ("x" * 9_999, "is not known"),
    ],
)
async def test_a_model_that_there_is_not(name, why):
    """It is refused with a sentence, and nothing changes."""
    async with open_runtime(model=ScriptedModel(lambda prompt: Reply("first"))) as rt:
        s = await rt.create("s")
        answer = await s.use("model", name)
        assert isinstance(answer, Refused)
        assert answer.reason == "invalid_command"
        assert why in answer.detail
        assert len(answer.detail) < 500
        assert (await s.run("one")).last_message == "first"


async def test_a_choice_outlives_its_process_and_is_made_once(tmp_path):
    """Under its id it is answered the same again; what is opened again goes on with it, and so do forks and agents."""
    store = f"sqlite:///{tmp_path / 'x.db'}"
    with sse_server(serve(WIRES["messages"], says)) as server:
        model = ModelConfig(name="scripted:demo")
        async with open_runtime(RuntimeConfig(model=model), store=store) as rt:
            s = await rt.create("s")
            told = await s.command("/model scripted:demo", id="m")
            assert told == await s.command("/model scripted:demo", id="m")
        config = RuntimeConfig(model=ModelConfig(name="anthropic:claude-x", base_url=server.url))
        async with open_runtime(config, store=store) as rt:
            s = await rt.open("s")
            assert s.state()["model"] is None  # it was the runtime's own then
            await s.use("model", "anthropic:claude-y")
            assert (await s.run("one")).last_message == "1 lines"
        async with open_runtime(config, store=store) as rt:
            s = await rt.open("s")
            assert s.state()["model"] == "anthropic:claude-y"
            forked = await s.fork()
            assert forked.state()["model"] == "anthropic:claude-y"
            assert (await s.run("an agent, please")).reason == "completed"
            assert (await rt.open("s.a")).state()["model"] == "anthropic:claude-y"
        assert {heard.json["model"] for heard in server.heard} == {"claude-y"}


async def test_each_model_at_its_own_price(tmp_path):
    """A turn costs what the model that answered costs; session, tree and metrics add up what two of them took."""
    prices = {
        "openai:gpt-x": PriceConfig(input=1.0, cached=0.0, output=10.0),
        "openai:gpt-y": PriceConfig(input=100.0, output=1000.0),
    }
    fresh, output = USED["input"] - USED["cached"], USED["output"]
    cheap = (fresh * 1.0 + output * 10.0) / 1e6
    dear = (USED["input"] * 100.0 + output * 1000.0) / 1e6
    with sse_server(serve(WIRES["chat"], says)) as server:
        model = ModelConfig(name="openai:gpt-x", api="chat", base_url=server.url + "/v1")
        async with open_runtime(RuntimeConfig(model=model, prices=prices)) as rt:
            s = await rt.create("s")
            one = await s.run("one")
            await s.use("model", "openai:gpt-y")
            two = await s.run("an agent, please")
            assert one.usage.cost_usd == pytest.approx(cheap)
            assert two.usage.cost_usd == pytest.approx(2 * dear)
            agent = await rt.open("s.a")
            assert agent.state()["usage"]["cost_usd"] == pytest.approx(dear)
            assert s.state()["usage"]["cost_usd"] == pytest.approx(cheap + 2 * dear)
            spent = sum(one.usage.cost_usd for name in ("s", "s.a") for one in of(ModelSaid, rt, name))
            assert spent == pytest.approx(cheap + 3 * dear)
            for told in (s.state()["tree_usage"], msgspec.to_builtins(two.tree_usage)):
                assert told["cost_usd"] == pytest.approx(cheap + 3 * dear)
                assert (told["input"], told["output"]) == (4 * USED["input"], 4 * USED["output"])
            assert one.tree_usage == one.usage
            lines = [
                line for line in rt.metrics_text().splitlines() if line.startswith("callboard_model_cost_usd_total")
            ]
            assert sum(float(line.rpartition(" ")[2]) for line in lines) == pytest.approx(cheap + 3 * dear)
            assert len(of(TurnEnded, rt, "s")) == 2


async def test_a_command_of_somebody_elses_with_that_name():
    """Ours gives way."""
    theirs = Plugin("mine", commands=(Command("model", lambda view, rest: Did((), "theirs")),))
    async with open_runtime(plugins=[theirs]) as rt:
        s = await rt.create()
        assert await s.command("/model x") == Told("theirs")


async def test_a_session_out_of_memory_chooses_too():
    """It comes back for that."""
    config = RuntimeConfig()
    async with open_runtime(config, model=ScriptedModel(lambda prompt: Reply("first"))) as rt:
        s = await rt.create("s")
        await s.run("one")
        rt._sessions.registry.actor("s")
        await s.use("model", "scripted:demo")
        assert isinstance(await s.submit("two"), Accepted)
        await s.wait_idle()
        assert [type(one).__name__ for one in events(rt, "s")].count("ModelChosen") == 1


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("/model", 0, "model: scripted:demo"),
        ("/model scripted:demo", 0, "model: scripted:demo, as before"),
        ("/model nobody:x", 1, "model 'nobody:x' is not known"),
    ],
)
def test_the_command_line_takes_it_too(line, code, says, capfd):
    """As any other command of a session."""
    assert main(["run", line, "--model", "scripted:demo", "--store", "memory"]) == code
    shown = capfd.readouterr()
    assert says in shown.out + shown.err
