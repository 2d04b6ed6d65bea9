"""What the wires to providers share: addresses, keys, and what is hidden of them."""

import ipaddress
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from callboard.actors.errors import UsageError

SAID_MAX_CHARS = 300  # of what a provider says about an error
KEY_MAX_CHARS = 16_384
NO_KEY: Final = "none"  # sent where a server asks for none
CUT_ARGUMENTS: Final = "the answer was cut at its token limit before these arguments were complete"
PARTS_GAP: Final = "\n\n"  # between two messages of one answer, or two parts of what is shown of a thought
HIDDEN: Final = "[key]"
ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")  # all providers take these; one refuses longer ones
NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # the same for names of tools, which have no dot there

_KEY_LIKE = re.compile(r"(?i)\bsk-[A-Za-z0-9_*.-]{4,}|(?<=bearer )[^\s\"',}]+")
_LOCAL = ("localhost", "localhost.", "ip6-localhost")


def on_loopback(url: str) -> bool:
    """Whether an address stays on this machine."""
    host = urlsplit(url).hostname or ""
    if host in _LOCAL or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def checked_url(url: str) -> str:
    """A base_url that requests can be sent to, without a slash at its end; `UsageError` says what is wrong with it."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits or not url.isascii() or not url.isprintable() or " " in url:
        shown = hidden(url, ()) if "@" not in url else "an address with @"
        raise UsageError(f"base_url must be like https://host/v1, got {shown!r}.")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError("base_url holds a user, a query or a fragment: leave them out, keys come from api_key_env.")
    return url.rstrip("/")


def find_key(variable: str, url: str, *, named: bool, environ: Mapping[str, str] | None = None) -> str:
    """The key in the environment variable, or in the file that VARIABLE_FILE names; `UsageError` where there is none.

    A server on this machine needs none. Over plain http a key goes to another machine only where `named` says that the
    variable was chosen for it; else none is sent.
    """
    environ = os.environ if environ is None else environ
    local = on_loopback(url)
    if not local and not named and urlsplit(url).scheme == "http":
        return NO_KEY
    key = environ.get(variable, "").strip() or _filed_key(variable, environ)
    if not key:
        if local:
            return NO_KEY
        raise UsageError(f"there is no key for {_host(url)}: set {variable}, or {variable}_FILE to the path of a file.")
    if len(key) > KEY_MAX_CHARS or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{variable} holds no key: it has characters that no key has, or too many.")
    return key


def _filed_key(variable: str, environ: Mapping[str, str]) -> str:
    path = environ.get(f"{variable}_FILE", "")
    if not path:
        return ""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(KEY_MAX_CHARS + 2).strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"{variable}_FILE names a file that cannot be read: {path!r:.200} ({error!r:.80}).") from None


def _host(url: str) -> str:
    return urlsplit(url).hostname or url


def hidden(text: str, secrets: tuple[str, ...]) -> str:
    """A provider's words on one line, cut, without the keys: those that are known, and what looks like one."""
    for secret in secrets:
        if secret and secret != NO_KEY:
            text = text.replace(secret, HIDDEN)
    said = _KEY_LIKE.sub(HIDDEN, text[: SAID_MAX_CHARS * 8])
    line = " ".join("".join(char if char.isprintable() else " " for char in said).split())
    return line if len(line) <= SAID_MAX_CHARS else line[: SAID_MAX_CHARS - 1] + "…"


def plain_id(id_: str) -> str:
    """The id of a call as every provider takes it: itself where it fits, else one made from it, always the same."""
    return id_ if ID_PATTERN.fullmatch(id_) else "call_" + _digest(id_, 24)


def plain_name(name: str) -> str:
    """The name of a tool as every provider takes it, always the same for one name."""
    if NAME_PATTERN.fullmatch(name):
        return name
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:52]}_{_digest(name, 8)}"


def _digest(text: str, chars: int) -> str:
    return sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:chars]
