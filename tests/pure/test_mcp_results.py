"""What servers answer, as text; messages of any length; what is configured and what is hidden of it."""

import pytest

from callboard.actors.errors import ConfigError
from callboard.plugins.mcp_lines import Splitter, TooLong
from callboard.plugins.mcp_results import has_failed, text_of
from callboard.plugins.mcp_server import NotReachable, Server, filled, reach_of
from callboard.plugins.mcp_talk import backoff_s
from callboard.runtime.config import config_of

NOT_SHOWN = "[content of the kind 'structured content': not shown]"
PNG = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
LINK = {"type": "resource_link", "name": "n\x1b", "uri": "u:1", "mimeType": "m"}
TEXT = {"type": "text", "text": "a"}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [TEXT, TEXT]}, "a\na"),
        ({"content": []}, ""),
        ({"content": "nonsense"}, ""),
        ({"content": [TEXT], "structuredContent": {"b": 1}}, "a"),
        ({"content": [], "structuredContent": {"b": 1}}, '{"b":1}'),
        ({"content": [], "structuredContent": {"b": object()}}, NOT_SHOWN),
        ({"content": [PNG]}, "[image, image/png, 3 bytes: not shown]"),
        ({"content": [{"type": "audio", "data": 5}]}, "[audio, of no stated kind, 0 bytes: not shown]"),
        ({"content": [LINK]}, "[resource n: u:1 (m)]"),
        ({"content": [{"type": "resource", "resource": {"uri": "u:1", "text": "hello"}}]}, "[resource u:1]\nhello"),
        (
            {"content": [{"type": "resource", "resource": {"uri": "u:1", "blob": "QUJD"}}]},
            "[resource u:1, of no stated kind, 3 bytes: not shown]",
        ),
        ({"content": [{"type": "hologram"}, None]}, "[content of the kind 'hologram': not shown]"),
    ],
)  # fmt: skip
def test_results(result, text):
    """Texts are joined, and what is no text is named with its size."""
    assert text == text_of(result)


def test_much_in_a_result():
    """A long resource is cut, and of very many parts only the first are read."""
    long = {"type": "resource", "resource": {"uri": "u:1", "text": "x" * 20_000}}
    assert text_of({"content": [long]}).endswith("x\n[3,616 more characters]")
    assert text_of({"content": [TEXT] * 1_500}).endswith("a\n[500 more parts of the result: not shown]")


def test_what_failed():
    """Only a plain yes is a failure."""
    assert [True, False, False] == [has_failed(one) for one in ({"isError": True}, {"isError": "yes"}, {})]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_lines_of_any_length(size):
    """Lines come out whole however the bytes are cut; of one that is too long the ends are kept."""
    long = b'{"jsonrpc":"2.0","id":12,"result":{"a":"' + b"x" * 3_000 + b'"}}'
    late = b'{"result":{"a":"' + b"x" * 3_000 + b'"},"jsonrpc":"2.0","id":13}'
    data = b"one\n\n  \n" + long + b"\ntwo\n" + late + b"\n" + b"y" * 2_001 + b"\nend"
    splitter = Splitter(2_000)
    found = [line for at in range(0, len(data), size) for line in splitter.feed(data[at : at + size])]
    kept = [line for line in found if isinstance(line, bytes)]
    cut = [line for line in found if isinstance(line, TooLong)]
    assert [b"one", b"two"] == kept
    assert [(len(long), 12), (len(late), 13), (2_001, None)] == [(line.size, line.answers) for line in cut]
    assert [b"end"] == list(splitter.feed(b"\n"))
    assert all(len(line.head) <= 512 and len(line.tail) <= 512 for line in cut)


@pytest.mark.parametrize("bad", ['{"method":"a","id":1,"x":"', '{"id":"1",', '{"a":{"id":1},'])
def test_what_a_long_message_does_not_answer(bad):
    """A request, or an id inside the message, is no answer."""
    splitter = Splitter(600)
    (line,) = splitter.feed(bad.encode() + b"x" * 2_000 + b'{"id":1},"b":1}\n')
    assert isinstance(line, TooLong)
    assert line.answers is None


def test_variables(tmp_path):
    """`$NAME` stands for a variable or for what its file holds, and `$$` for a dollar; what they hold is secret."""
    (tmp_path / "key").write_text("from file\n")
    secrets: set[str] = set()
    environ = {"TOKEN": "s3cret", "KEY_FILE": str(tmp_path / "key"), "N": "1"}
    assert "Bearer s3cret" == filled("Bearer $TOKEN", environ, secrets)
    assert "from file, $5, 1" == filled("${KEY}, $$5, $N", environ, secrets)
    assert {"s3cret", "from file"} == secrets
    with pytest.raises(NotReachable, match="the variable MISSING is not set"):
        filled("$MISSING", environ, secrets)


def test_what_a_program_is_given(tmp_path):
    """It gets an allow-list of variables and those that are configured, and no secret is shown."""
    environ = {"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": "sk-never", "TOKEN": "s3cret"}
    server = Server(name="a", argv=("sh", "-c", "x"), env={"GIVEN": "is $TOKEN"}, folder=str(tmp_path))
    reach = reach_of(server, environ)
    assert "is s3cret" == reach.environment["GIVEN"]
    assert not {"OPENAI_API_KEY", "TOKEN"} & set(reach.environment)
    assert "s3cret" not in repr(reach)
    assert "it is [hidden]" == reach.hide("it is s3cret")
    for bad in (Server(name="a", argv=("nowhere-at-all",)), Server(name="a", argv=("sh",), folder="/nowhere")):
        with pytest.raises(NotReachable):
            reach_of(bad, environ)
    with pytest.raises(NotReachable, match="X-Key"):
        reach_of(Server(name="a", url="http://h/", headers={"X-Key": "$T"}), {"T": "a\nb"})


def test_when_it_is_tried_again():
    """At once, then after half a second, doubled up to a minute."""
    assert [0.0, 0.5, 1.0, 2.0, 60.0] == [backoff_s(n, 1.0) for n in (1, 2, 3, 4, 100)]
    assert 0.25 == backoff_s(2, 0.0)


@pytest.mark.parametrize(
    ("table", "mistake"),
    [
        ({"a": {}}, "mcp.a needs either a command or a url"),
        ({"a": {"command": "x", "url": "http://h/"}}, "mcp.a needs either a command or a url"),
        ({"a": {"url": "ftp://h/"}}, "url must be like https://host/mcp"),
        ({"a": {"url": "http://user:pw@h/"}}, "url must be like https://host/mcp"),
        ({"a": {"url": "http://h/", "env": {"A": "b"}}}, "env and cwd are for a command"),
        ({"a": {"command": "x", "headers": {"A": "b"}}}, "headers are for a url"),
        ({"A b": {"command": "x"}}, "a server is named with"),
        ({"a__b": {"command": "x"}}, "a server is named with"),
        ({"a": {"command": "x", "env": {"A": 1}}}, "expected str, got int"),
        ({"a": {"command": "x", "args": "y"}}, "expected a list of texts"),
        ({"a": {"command": "x", "trust": "yes"}}, "expected bool"),
        ({"a": {"command": "x", "colour": 1}}, "unknown key 'colour'"),
    ],
)
def test_mistakes_in_a_configuration(table, mistake):
    """Each is told by name."""
    with pytest.raises(ConfigError, match=mistake):
        config_of({"mcp": table})
