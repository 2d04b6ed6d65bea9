"""How a server of tools is reached, as it is configured: a command or an address, and what it is given of secrets."""

import ipaddress
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import attrs

from callboard.plugins.mcp_tools import Belief
from callboard.plugins.shell import ENVIRONMENT, allowed

CONNECT_S = 30.0
SECRET_MAX_BYTES = 16 * 1024
SECRET_MIN_CHARS = 4  # a shorter one would be hidden in every text
HIDDEN = "[hidden]"

NO_VARIABLE = "the variable {name} is not set, and {name}_FILE names no file that can be read"
NO_PROGRAM = "there is no program {program!r:.200}"
NO_FOLDER = "there is no folder {folder!r:.200}"
NOT_A_HEADER = "the header {name!r:.80} has characters that no header has"

_VARIABLE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})")


class NotReachable(Exception):
    """What is configured cannot be used as things are; the text says what is missing."""


@attrs.frozen(kw_only=True)
class Server:
    """One server: `argv` or `url`; in `env` and `headers` `$NAME` stands for a variable of this program."""

    name: str
    argv: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = attrs.field(factory=dict)
    headers: Mapping[str, str] = attrs.field(factory=dict)
    folder: str = "."
    connect_s: float = CONNECT_S
    belief: Belief = attrs.field(factory=Belief)


@attrs.frozen(kw_only=True)
class Reach:
    """The same, ready to be used; it is never shown."""

    argv: tuple[str, ...] = ()
    folder: str = "."
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    url: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    direct: bool = False
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)

    def hide(self, text: str) -> str:
        """A text of the server's without what is secret."""
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return text


def reach_of(server: Server, environ: Mapping[str, str] | None = None) -> Reach:
    """Where a server is; `NotReachable` says what is missing."""
    environ = os.environ if environ is None else environ
    secrets: set[str] = set()
    env = {name: filled(value, environ, secrets) for name, value in server.env.items()}
    headers = {name: filled(value, environ, secrets) for name, value in server.headers.items()}
    hidden = tuple(sorted(secrets, key=len, reverse=True))
    if server.url:
        for name, value in headers.items():
            if not (name + value).isprintable() or not (name + value).isascii():
                raise NotReachable(NOT_A_HEADER.format(name=name))
        return Reach(url=server.url, headers=headers, direct=on_loopback(server.url), secrets=hidden)
    environment = {**allowed(environ, ENVIRONMENT), **env}
    folder = Path(server.folder).absolute()
    if not folder.is_dir():
        raise NotReachable(NO_FOLDER.format(folder=str(folder)))
    program, *arguments = server.argv
    path = environment.get("PATH")
    found = shutil.which(folder / program) if "/" in program else shutil.which(program, path=path)
    if found is None:
        raise NotReachable(NO_PROGRAM.format(program=program))
    argv = (str(Path(found).absolute()), *arguments)
    return Reach(argv=argv, folder=str(folder), environment={**environment, "PWD": str(folder)}, secrets=hidden)


def filled(value: str, environ: Mapping[str, str], secrets: set[str]) -> str:
    """A value with its variables put in; what they hold counts as secret."""

    def put(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name is None:
            return "$"
        secret = environ.get(name) or _filed(name, environ)
        if len(secret) >= SECRET_MIN_CHARS:
            secrets.add(secret)
        return secret

    return _VARIABLE.sub(put, value)


def _filed(name: str, environ: Mapping[str, str]) -> str:
    path = environ.get(f"{name}_FILE", "")
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(SECRET_MAX_BYTES).strip()
    except (OSError, ValueError):
        raise NotReachable(NO_VARIABLE.format(name=name)) from None


def on_loopback(url: str) -> bool:
    """Whether an address stays on this machine: then no proxy stands between."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
