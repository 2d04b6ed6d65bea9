"""The configuration: every mistake at once, each with its place, whatever the file is."""

import tomllib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, get_args, get_origin

import attrs
import pytest

from callboard.actors.errors import ConfigError, UsageError
from callboard.actors.tool import Exposure
from callboard.runtime.config import TEXT_MAX_BYTES, RuntimeConfig, config_of, load_config
from callboard.runtime.settings import PriceConfig, RoleConfig, ToolConfig

EVERYTHING_WRONG = """
zzz = 1
[runtime]
abort_window_s = nan
mailbox_max = 0
steps_max = "x"
turn_seconds_max = -1
shutdown_s = true
flush_stall_s = inf
keep_partial_text = 1
foo = 1
threads_max = 1.5
threads_abandoned_max = []
[model]
name = 3
nam = "x"
context_window = 0
compact_tokens_max = 1.5
idle_timeout_s = 0
retries_max = -1
[store]
durability = "half"
url = []
[agents]
notify = []
cascade = "yes"
depth_max = -1
running_max = 1979-05-27
marker_role = "system"
[supervisor]
period_s = 0
restarts_max = -4
[tools]
x = 5
y = { enabled = 3, exposure = "zz", bar = 1 }
[plugins]
plan = 3
[plugins.todo]
allow_parallel_in_progress = 2
[plugins.other]
[budget]
tokens_max = -1
cost_usd_max = nan
[prices]
a = 1
"openai:x" = { input = -1, output = "free", per = 3 }
[metrics]
port = 99999
host = 1
"""
MISTAKES = {
    "unknown key 'zzz' @ $",
    "abort_window_s must be at least 0.001, got nan @ $.runtime.abort_window_s",
    "mailbox_max must be at least 1, got 0 @ $.runtime.mailbox_max",
    "expected int, got str @ $.runtime.steps_max",
    "turn_seconds_max must be at least 0.001, got -1.0 @ $.runtime.turn_seconds_max",
    "expected float, got bool @ $.runtime.shutdown_s",
    "flush_stall_s must be at least 0.001, got inf @ $.runtime.flush_stall_s",
    "expected bool, got int @ $.runtime.keep_partial_text",
    "unknown key 'foo' @ $.runtime",
    "expected int, got float @ $.runtime.threads_max",
    "expected int, got list @ $.runtime.threads_abandoned_max",
    "expected str, got int @ $.model.name",
    "unknown key 'nam' @ $.model",
    "context_window must be at least 1, got 0 @ $.model.context_window",
    "expected int, got float @ $.model.compact_tokens_max",
    "idle_timeout_s must be at least 0.001, got 0.0 @ $.model.idle_timeout_s",
    "retries_max must be at least 0, got -1 @ $.model.retries_max",
    "expected one of 'full', 'normal', got 'half' @ $.store.durability",
    "expected str, got list @ $.store.url",
    "expected one of 'wake', 'queue', got [] @ $.agents.notify",
    "expected bool, got str @ $.agents.cascade",
    "depth_max must be at least 0, got -1 @ $.agents.depth_max",
    "expected int, got date @ $.agents.running_max",
    "expected one of 'user', 'developer', got 'system' @ $.agents.marker_role",
    "period_s must be at least 0.001, got 0.0 @ $.supervisor.period_s",
    "restarts_max must be at least 0, got -4 @ $.supervisor.restarts_max",
    "expected a table, got int @ $.tools['x']",
    "expected bool, got int @ $.tools['y'].enabled",
    f"expected one of {', '.join(map(repr, get_args(Exposure)))}, got 'zz' @ $.tools['y'].exposure",
    "unknown key 'bar' @ $.tools['y']",
    "expected a table, got int @ $.plugins.plan",
    "expected bool, got int @ $.plugins.todo.allow_parallel_in_progress",
    "unknown key 'other' @ $.plugins",
    "tokens_max must be at least 0, got -1 @ $.budget.tokens_max",
    "cost_usd_max must be at least 0, got nan @ $.budget.cost_usd_max",
    "expected a table, got int @ $.prices['a']",
    "input must be at least 0, got -1.0 @ $.prices['openai:x'].input",
    "expected float, got str @ $.prices['openai:x'].output",
    "unknown key 'per' @ $.prices['openai:x']",
    "port must be 0 to 65535, got 99999 @ $.metrics.port",
    "expected str, got int @ $.metrics.host",
}


def mistakes_of(table: Any) -> tuple[str, ...]:
    """What is wrong with a configuration."""
    with pytest.raises(ConfigError) as raised:
        config_of(table)
    return raised.value.mistakes


def test_every_mistake_at_once():
    """Wrong kinds, ranges, choices and unknown keys of a file are all reported together, each with its path."""
    found = mistakes_of(tomllib.loads(EVERYTHING_WRONG))
    assert sorted(MISTAKES) == sorted(found)


NAMED: dict[str, type] = {
    "tools": ToolConfig,
    "prices": PriceConfig,
    "roles": RoleConfig,
}  # tables of tables, by names of anything


def leaves(kind: type, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all settings that are no tables."""
    found: list[tuple[str, ...]] = []
    for field in attrs.fields(kind):
        inner: Any = field.type
        here = (*path, field.name)
        named = NAMED.get(field.name) if get_origin(inner) is Mapping else None
        if field.name in ("hooks", "mcp"):  # what they need is in test_config_hooks.py and test_mcp_results.py
            continue
        if named is not None:
            found += leaves(named, (*here, "t"))
        else:
            found += leaves(inner, here) if attrs.has(inner) else [here]
    return found


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A table with one setting."""
    for name in reversed(path):
        value = {name: value}
    return value  # type: ignore[no-any-return]


def shown(path: tuple[str, ...]) -> str:
    """The path as an error shows it."""
    return "$" + "".join(f"['{name}']" if name == "t" else f".{name}" for name in path)


@pytest.mark.parametrize(
    "path", [path for path in leaves(RuntimeConfig) if path[-1] not in ("rules", "extra_body")], ids=".".join
)
@pytest.mark.parametrize("wrong", [{}, [1], {"a": 1}, b"bytes", object], ids=repr)
def test_wrong_kind_at_every_setting(path, wrong):
    """Each setting refuses what is of no kind it could be, and says where."""
    (mistake,) = mistakes_of(nested(path, wrong))
    assert mistake.endswith(f" @ {shown(path)}")


@pytest.mark.parametrize(
    ("rules", "mistake"),
    [
        (3, "expected a table, got int @ $.plugins.ask.rules"),
        ({"shell": "maybe"}, "expected one of 'ask', 'allow', 'deny', got 'maybe' @ $.plugins.ask.rules['shell']"),
    ],
)
def test_rules_are_one_word_for_each_tool(rules, mistake):
    """Each tool has one of three words, and another value is a mistake that says where."""
    assert (mistake,) == mistakes_of({"plugins": {"ask": {"rules": rules}}})
    taken = config_of({"plugins": {"ask": {"rules": {"shell": "ask", "*": "deny"}}}}).plugins.ask.rules
    assert {"shell": "ask", "*": "deny"} == dict(taken)


def test_more_for_requests_is_no_part_of_what_they_have():
    """`extra_body` takes a table of anything, without what the runtime itself puts there."""
    assert {"top_k": 40, "a": [1]} == config_of({"model": {"extra_body": {"top_k": 40, "a": [1]}}}).model.extra_body
    (mistake,) = mistakes_of({"model": {"extra_body": {"stream": False, "top_k": 40}}})
    assert "extra_body takes what requests do not have already, and they have stream @ $.model.extra_body" == mistake
    assert ("expected a table, got int @ $.model.extra_body",) == mistakes_of({"model": {"extra_body": 3}})


@pytest.mark.parametrize("path", leaves(RuntimeConfig), ids=".".join)
def test_default_at_every_setting(path):
    """Each setting takes its own default."""
    default: Any = RuntimeConfig()
    for above, name in pairwise(("", *path)):
        default = NAMED[above]() if name == "t" else getattr(default, name)
    config = config_of({} if default is None else nested(path, default))
    assert config == (
        config_of(nested(path[: path.index("t") + 1], {})) if "t" in path and default is not None else RuntimeConfig()
    )


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(RuntimeConfig)])
@pytest.mark.parametrize("wrong", [3, "x", [], None, True], ids=repr)
def test_value_in_place_of_a_table(name, wrong):
    """Where a table belongs, nothing else is taken."""
    assert (f"expected a table, got {type(wrong).__name__} @ $.{name}",) == mistakes_of({name: wrong})


@pytest.mark.parametrize("wrong", [3, "x", [], None, {1: 2}], ids=repr)
def test_what_is_no_configuration_at_all(wrong):
    """What is no table of names is one mistake."""
    assert 1 == len(mistakes_of(wrong))


def test_whole_number_for_seconds():
    """A whole number is as good as a fraction for seconds."""
    config = config_of({"runtime": {"shutdown_s": 3, "turn_seconds_max": 60}})
    assert (3.0, 60.0) == (config.runtime.shutdown_s, config.runtime.turn_seconds_max)
    assert isinstance(config.runtime.shutdown_s, float)


@pytest.mark.parametrize("value", ["'\\u001b[31m'", "'" + "x" * 5000 + "'"], ids=["control characters", "long"])
def test_mistakes_are_bounded(value):
    """A mistake repeats no more than the beginning of what was written."""
    (mistake,) = mistakes_of(tomllib.loads(f"[store]\ndurability = {value}"))
    assert len(mistake) < 200
    assert mistake.isprintable()


# -- files -------------------------------------------------------------------------------------------------------------


def test_file(tmp_path):
    """A file is read, with or without the mark that some editors put first."""
    path = tmp_path / "callboard.toml"
    for mark in ("", "\ufeff"):
        path.write_text(f'{mark}[model]\nname = "scripted:demo"\n', encoding="utf-8")
        assert "scripted:demo" == load_config(path).model.name
        assert "scripted:demo" == load_config(str(path)).model.name


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"[runtime", "is not TOML"),
        (b"a = 1\na = 2", "is not TOML"),
        (b"a = " + b"[" * 100_000, "is not TOML"),
        (b"\x00\x01\x02", "is not TOML"),
        (b"\xff\xfe\x00", "is not TOML"),
        (b"\x7fELF" + bytes(range(256)), "is not TOML"),
        (b"#" + b"x" * TEXT_MAX_BYTES, "is larger than"),
        (b"zzz = 1", "unknown key 'zzz' @ $"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_file_that_is_no_configuration(data, words, tmp_path):
    """A file that is damaged, binary or huge is an error that names the file and what is wrong, in one line."""
    path = tmp_path / "callboard.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    assert str(raised.value).startswith(f"{path}: {words}")
    assert 1 == len(raised.value.mistakes)
    assert len(str(raised.value)) < 400
    assert isinstance(raised.value, UsageError)


@pytest.mark.parametrize("name", ["missing.toml", ".", "no/such/folder.toml", "a\0b", "x" * 5000], ids=lambda n: n[:20])
def test_file_that_cannot_be_read(name, tmp_path):
    """A file that is not there, or is a folder, is an error that names it."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / name)


def test_empty_file_is_the_defaults(tmp_path):
    """An empty file configures nothing."""
    path = tmp_path / "empty.toml"
    path.write_text("")
    assert RuntimeConfig() == load_config(path)
