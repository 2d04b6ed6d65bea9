"""What is passed to open_runtime and to create, checked where it comes in: each mistake is a `UsageError`."""

import secrets
from pathlib import Path
from typing import Any

import attrs
from prometheus_client import CollectorRegistry

from callboard.actors.errors import UsageError
from callboard.actors.receipts import clean_text
from callboard.actors.store import Store
from callboard.runtime.clock import Wall, WallClock
from callboard.runtime.config import RuntimeConfig, load_config
from callboard.runtime.registry import AGENTS_OF

SESSION_ID_MAX_CHARS = 200
TITLE_MAX_CHARS = 200
STORE_VERBS = ("open", "append", "sync", "read", "header", "headers", "last", "close")


def with_peek(settings: RuntimeConfig, peek: Any) -> RuntimeConfig:
    """The settings with what the caller says about the local socket."""
    if peek is None:
        return settings
    if not isinstance(peek, bool):
        raise UsageError(f"peek is True or False, got {peek!r:.80}.")
    runtime = attrs.evolve(settings.runtime, tree_socket=peek)
    changed: RuntimeConfig = attrs.evolve(settings, runtime=runtime)
    return changed


def settings_of(config: Any) -> RuntimeConfig:
    """A RuntimeConfig as it is, or read from the path of a TOML file; the defaults for None."""
    if config is None:
        return RuntimeConfig()
    if isinstance(config, RuntimeConfig):
        return config
    if isinstance(config, str | Path) and str(config):
        return load_config(config)
    raise UsageError(f"config must be a RuntimeConfig or the path of a TOML file, got {config!r:.80}.")


def checked_store(store: Any, settings: RuntimeConfig) -> Store | str:
    """A url, or an object that does what a Store does."""
    if store is None:
        return settings.store.url or "memory"
    fits = not isinstance(store, type) and all(callable(getattr(store, verb, None)) for verb in STORE_VERBS)
    if not fits and not isinstance(store, str):
        raise UsageError(f"store must be 'memory', 'sqlite:///FILE', 'postgresql://...' or a Store, got {store!r:.80}.")
    found: Store | str = store
    return found


def checked_registry(registry: Any) -> CollectorRegistry:
    """The registry that metrics go to; a private one for None."""
    if registry is None:
        return CollectorRegistry()
    if not isinstance(registry, CollectorRegistry):
        raise UsageError(f"registry must be a prometheus_client.CollectorRegistry, got {registry!r:.80}.")
    return registry


def checked_clock(clock: Any) -> Wall:
    """Who tells the wall time; the machine for None."""
    if clock is None:
        return WallClock()
    if isinstance(clock, type) or not callable(getattr(clock, "now_ms", None)):
        raise UsageError(f"clock must have now_ms(), as a FakeWall has, got {clock!r:.80}.")
    found: Wall = clock
    return found


def checked_folder(folder: Any) -> str:
    """The absolute path of the folder that tools work in."""
    if not isinstance(folder, str | Path) or "\0" in str(folder):
        raise UsageError(f"folder must be the path of a folder, got {folder!r:.80}.")
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        raise UsageError(f"folder {str(path)!r:.200} is no folder: make it, or name another.")
    return str(path)


def new_session_id(session_id: Any) -> str:
    """The id as it was chosen, or a random one for None."""
    if session_id is None:
        return f"s-{secrets.token_hex(6)}"
    fits = isinstance(session_id, str) and 0 < len(session_id) <= SESSION_ID_MAX_CHARS and session_id.isprintable()
    if not fits:
        raise UsageError(f"a session id is 1 to {SESSION_ID_MAX_CHARS} printable characters, got {session_id!r:.80}.")
    if session_id.startswith(AGENTS_OF):
        raise UsageError(f"ids that begin with {AGENTS_OF!r} are those of supervisors, got {session_id!r:.80}.")
    return str(session_id)


def checked_text(what: str, text: Any, max_chars: int) -> str | None:
    """A text as it can be kept, or None."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise UsageError(f"{what} takes text, got {type(text).__name__}.")
    if len(text) > max_chars:
        raise UsageError(f"{what} got {len(text):,} characters: at most {max_chars:,}.")
    return clean_text(text)


def checked_title(title: Any) -> str | None:
    """One line for lists of sessions, or None."""
    if title is None:
        return None
    if not isinstance(title, str) or not 0 < len(title) <= TITLE_MAX_CHARS or not title.isprintable():
        raise UsageError(f"a title is one line of 1 to {TITLE_MAX_CHARS} printable characters, got {title!r:.80}.")
    return str(title)
