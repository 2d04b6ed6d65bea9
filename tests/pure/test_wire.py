"""Addresses and keys: which are taken, where keys come from, and that they are hidden."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.errors import UsageError
from callboard.runtime.models.wire import (
    ID_PATTERN,
    NAME_PATTERN,
    NO_KEY,
    checked_url,
    find_key,
    hidden,
    on_loopback,
    plain_id,
    plain_name,
)

FAR = "https://models.example/v1"
NEAR = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("url", "local"),
    [
        (NEAR, True),
        ("http://localhost:1/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://127.8.9.1/v1", True),
        ("http://models.localhost/v1", True),
        (FAR, False),
        ("http://localhost.example/v1", False),
        ("http://127.0.0.1.example/v1", False),
        ("http://10.0.0.1/v1", False),
    ],
)
def test_what_stays_on_this_machine(url, local):
    """Only loopback addresses and their names do."""
    assert local is on_loopback(url)


@pytest.mark.parametrize("url", [FAR, NEAR, "http://[::1]:8/v1", "https://models.example"])
def test_addresses_that_are_taken(url):
    """An address is taken as it is, without a slash at its end."""
    assert url == checked_url(url + "/")


@pytest.mark.parametrize(
    "url",
    [
        *("", "models.example", "ftp://models.example", "https://", "https:///v1", "https://a b/v1"),
        *("https://models.example:99999", "https://models.example:x", "https://models.example/\n", "https://é/v1"),
        *(
            "https://user:sk-planted@models.example",
            "https://models.example/v1?key=sk-planted",
            "https://a/#sk-planted",
        ),
    ],
)
def test_addresses_that_are_refused(url):
    """What is no address, or holds more than one, is refused without repeating a key."""
    with pytest.raises(UsageError, match="base_url") as refused:
        checked_url(url)
    assert "sk-planted" not in str(refused.value)


def test_where_a_key_comes_from(tmp_path):
    """The variable comes first, then the file that its _FILE names; spaces around a key are none of it."""
    file = tmp_path / "key"
    file.write_text("filed\n")
    both = {"K": " named ", "K_FILE": str(file)}
    assert "named" == find_key("K", FAR, named=False, environ=both)
    assert "filed" == find_key("K", FAR, named=False, environ={"K_FILE": str(file)})
    assert "named" == find_key("K", NEAR, named=False, environ=both)


def test_where_no_key_is_needed():
    """A server on this machine needs none, and over plain http none leaves it unless it was chosen for that."""
    assert NO_KEY == find_key("K", NEAR, named=False, environ={})
    assert NO_KEY == find_key("K", "http://models.example/v1", named=False, environ={"K": "secret"})
    assert "secret" == find_key("K", "http://models.example/v1", named=True, environ={"K": "secret"})


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({}, "there is no key for models.example: set K, or K_FILE to the path of a file."),
        ({"K": "  "}, "there is no key for models.example: set K, or K_FILE to the path of a file."),
        ({"K": "two words"}, "K holds no key: it has characters that no key has, or too many."),
        ({"K": "a\nb"}, "K holds no key: it has characters that no key has, or too many."),
        ({"K": "k" * 20_000}, "K holds no key: it has characters that no key has, or too many."),
    ],
)
def test_keys_that_are_none(environ, text):
    """The error names the variable and what to do, and never what it holds."""
    with pytest.raises(UsageError) as refused:
        find_key("K", FAR, named=False, environ=environ)
    assert text == str(refused.value)


def test_a_key_file_that_is_not_there(tmp_path):
    """The path is named."""
    with pytest.raises(UsageError, match=r"K_FILE names a file that cannot be read: '.*none'"):
        find_key("K", FAR, named=False, environ={"K_FILE": str(tmp_path / "none")})


@given(before=st.text(max_size=50), after=st.text(max_size=50))
def test_a_key_is_never_said(before, after):
    """Whatever stands around it, a known key is hidden, and so is what looks like one."""
    said = hidden(f"{before}tok-8f3a{after} sk-proj-abcdefgh {before}", ("tok-8f3a",))
    assert "tok-8f3a" not in said
    assert "proj-abcdefgh" not in said
    assert "\n" not in said


@given(id_=st.text(max_size=80))
def test_ids_that_every_provider_takes(id_):
    """An id that fits stays, every other becomes one that fits, always the same."""
    made = plain_id(id_)
    assert ID_PATTERN.fullmatch(made)
    assert (made, made if not ID_PATTERN.fullmatch(id_) else id_) == (plain_id(id_), made)


@given(names=st.sets(st.text(max_size=80), max_size=5))
def test_names_that_every_provider_takes(names):
    """Names that fit stay, others get the letters that are allowed, and different ones stay different."""
    made = {plain_name(name) for name in names}
    assert all(NAME_PATTERN.fullmatch(name) for name in made)
    assert len(names) == len(made)
