"""Planted secrets: a story with errors of all kinds, and nothing that comes out of it holds one of them."""

import contextlib
import json
import logging
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from tests.sse_server import Answer, Heard, Piece, refusal, sse_server
from tests.wires import WIRES, Line, Spoken, Wire, serve

from callboard.actors import CallboardError, Enter, Plugin, tool
from callboard.plugins import CODE, DEFAULT, MACHINE
from callboard.runtime import open_runtime
from callboard.runtime.config import config_of
from callboard.runtime.doors.cli import main

OPENAI, ANTHROPIC, OTHER, PASSWORD = (
    f"sk-proj-{name}-0123456789abcdef" for name in ("openai", "anthropic", "other", "password")
)
SECRETS = (OPENAI, ANTHROPIC, OTHER, PASSWORD)
TAKEN = Answer(headers={"content-type": "application/x-protobuf"}, framing="length")
PRINT_ALL = "import os; print(sorted(os.environ.items()))"


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of providers, a token of something else, and one that a host program set for itself."""
    for name, value in (
        ("OPENAI_API_KEY", OPENAI),
        ("ANTHROPIC_API_KEY", ANTHROPIC),
        ("GITHUB_TOKEN", OTHER),
        ("DATABASE_URL", f"postgresql://me:{PASSWORD}@db/x"),
    ):
        monkeypatch.setenv(name, value)


@tool(name="breaks")
async def breaks() -> str:
    """Raise."""
    raise LookupError("a bug in a tool")


async def nervous(view: Any, messages: Any) -> Enter:
    """A plugin that brings its session down where it is asked to."""
    if any("crash" in one.text for one in messages):
        raise LookupError("a bug in a plugin")
    return Enter(messages)


def play(lines: list[Line]) -> Spoken:
    """Calls everything that could show the environment, then says what it saw."""
    results = [line.text for line in lines if line.who == "result"]
    if "all" in [line.text for line in lines if line.who == "user"][-1] and len(results) < 3:
        calls: tuple[tuple[str, dict[str, str]], ...] = (
            ("shell", {"command": "env; set; cat /proc/self/environ"}),
            ("code", {"code": PRINT_ALL}),
            ("breaks", {}),
        )
        return Spoken(thought="Show it.", calls=calls)
    return Spoken(text=" ".join(results)[:2_000] or "nothing")


def echoing(wire: Wire) -> Any:
    """A provider whose second and third answers are errors that repeat the key and the whole request's headers."""
    whole = serve(wire, play)
    count = 0

    def script(heard: Heard) -> Answer:
        nonlocal count
        count += 1
        if count in (2, 3):
            message = f"key {heard.headers} is not allowed, nor {OPENAI} or {ANTHROPIC}"
            return refusal(500 if count == 2 else 401, {"error": {"message": message, "type": "authentication_error"}})
        if count == 4:
            return Answer(
                pieces=(b'data: {"error": {"message": "broke: %s"}}\n\n' % OPENAI.encode(), Piece(cut="close"))
            )
        return whole(heard)

    return script


def findings(*texts: str | bytes) -> list[tuple[str, str]]:
    """Which secrets stand in which texts, also as others would write them."""
    found = []
    for text in texts:
        shown = text.decode("latin-1") if isinstance(text, bytes) else text
        found += [(one, shown[:80]) for one in SECRETS for form in (one, urllib.parse.quote(one)) if form in shown]
    return found


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
async def test_no_secret_comes_out(wire, tmp_path, caplog, capfd):
    """Log, events, errors, state, metrics, traces, health, children and exports are without any of them."""
    caplog.set_level(logging.INFO)
    store = f"sqlite:///{tmp_path / 'x.db'}"
    hook = tmp_path / "hook.sh"
    hook.write_text(f"env > {tmp_path}/hook.txt; env >&2; exit 1\n")
    with sse_server([TAKEN]) as collector, sse_server(echoing(wire)) as server:
        config = config_of(
            {
                "model": {"name": wire.model, "base_url": server.url + wire.base, "retries_max": 1, **wire.settings},
                "hooks": {"look": {"event": "PreToolUse", "command": f"sh {hook}"}},
                "otel": {"endpoint": collector.url, "content": True},
                "store": {"url": store},
            }
        )
        told: list[str] = []
        plugins = (*DEFAULT, *MACHINE, CODE, Plugin("nervous", before_step=nervous))
        async with open_runtime(config, tools=[breaks], plugins=plugins, folder=tmp_path, peek=True) as rt:
            s = await rt.create("s")
            ends = [await s.run(text) for text in ("show all", "again", "and again")]
            with contextlib.suppress(CallboardError):
                ends.append(await s.run("crash"))
            s = await rt.open("s")
            ends.append(await s.run("show all of it"))
            told += [
                repr(ends),
                repr(rt.models.default),
                repr(vars(rt)),
                rt.metrics_text(),
                json.dumps(s.state(), default=repr),
            ]
            told += [repr(rt.statistics()), repr(rt.health()), repr(rt.config), str(await s.command("/model"))]
            kinds = {one.tool for end in ends for one in end.receipts}
            assert {"shell", "code", "breaks"} <= kinds
            assert any(end.error for end in ends)
        assert main(["log", "export", "s", "--out", str(tmp_path / "out.jsonl"), "--store", store]) == 0
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != hook]
    assert any(b"PATH=" in one for one in files)
    shown = capfd.readouterr()
    logged = [record.getMessage() + (record.exc_text or "") for record in caplog.records]
    bodies = [heard.body for heard in (*collector.heard, *server.heard)]
    assert bodies
    assert findings(*told, *files, *logged, *bodies, shown.out, shown.err, caplog.text) == []


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{PASSWORD}@127.0.0.1:9/x",
        f"postgresql://me:{PASSWORD}@127.0.0.1:9/x?schema=%zz",
        f"postgres://me:{PASSWORD}@127.0.0.1:9/x",
        f"sqlite://me:{PASSWORD}@x",
    ],
)
def test_no_password_of_a_store_is_told(url, caplog, capfd):
    """An address that cannot be used is told without its password."""
    assert main(["log", "list", "--store", url]) != 0
    shown = capfd.readouterr()
    assert shown.err
    assert findings(shown.out, shown.err, caplog.text) == []


def test_a_key_in_a_file_is_read_and_not_told(tmp_path, monkeypatch):
    """Its path may be told, its text not."""
    from callboard.runtime.models import AnthropicModel
    from callboard.runtime.settings import ModelConfig

    monkeypatch.delenv("ANTHROPIC_API_KEY")
    path = Path(tmp_path / "key")
    path.write_text(ANTHROPIC + "\n")
    monkeypatch.setenv("ANTHROPIC_API_KEY_FILE", str(path))
    model = AnthropicModel("claude-x", ModelConfig())
    assert model._key == ANTHROPIC
    assert findings(repr(model), repr(model._asked)) == []
