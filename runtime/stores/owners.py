"""Owners: which program holds a session, whether another may take it now, and how a dead one is told."""

import os
import platform
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import msgspec

from callboard.actors.errors import Fenced

LEASE_S: Final = 10.0
"""So long another machine waits for an owner that is not heard of; on the same machine a dead one is seen at once."""

LEASE_S_MIN, LEASE_S_MAX = 0.05, 86_400.0

RENEWALS_MIN: Final = 3
"""So often an owner renews in the length of its lease."""

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
SPACE: Final = Path("/proc/self/ns/pid")
PID_MAX: Final = 2**31


class About(msgspec.Struct, frozen=True):
    """Which program an owner is; empty texts where the machine does not say.

    `boot` is another one after each start of the machine, `space` tells containers apart, whose process numbers mean
    something else, and `started` is when the process was, so that its number means nobody else.
    """

    host: str = ""
    boot: str = ""
    space: str = ""
    pid: int = 0
    started: str = ""
    length_ms: int = int(LEASE_S * 1000)


@attrs.frozen
class Seen:
    """A process as the machine shows it; empty texts where it hides that."""

    state: str = ""
    started: str = ""


Look = Callable[[int], Seen | None]  # the process of a number, None when there is none


@attrs.frozen
class Holder:
    """Who holds a session: until when, on the store's clock, None for an owner that is not on its list; and who."""

    lease_ms: int | None
    about: About


def may_take(holder: Holder, here: About, now_ms: int, look: Look) -> bool:
    """Whether another owner may take what this one holds; who still writes after that is fenced, so no harm is done.

    A lease that lasts longer than its own length tells of a clock that was set back: a living owner renews it soon.
    """
    if holder.lease_ms is None or not now_ms < holder.lease_ms <= now_ms + holder.about.length_ms:
        return True
    return is_dead(holder.about, here, look)


def is_dead(about: About, here: About, look: Look) -> bool:
    """Whether it was a process of this machine that is no more; False where that cannot be known."""
    if not about.boot or (about.boot, about.space) != (here.boot, here.space):
        return False
    seen = look(about.pid)
    return seen is None or seen.state in ("Z", "X") or bool(seen.started and seen.started != about.started)


def held(session: str, holder: Holder, now_ms: int) -> Fenced:
    """What to say to who may not have a session."""
    about, left_s = holder.about, max((holder.lease_ms or 0) - now_ms, 0) / 1000
    host = f" on {about.host:.80}" if about.host else ""
    return Fenced(
        f"session {session!r} is held by another program (process {about.pid}{host}) until that closes it, or for "
        f"{left_s:.0f} s more if it is not heard of: go on there, or try again then."
    )


def taken_over(session: str, name: str) -> Fenced:
    """What to say to who had a session and lost it."""
    return Fenced(
        f"session {session!r} of {name} was taken over by another program, and nothing more of this one was written: "
        "use that program, or open the session again when it has ended."
    )


def new_owner() -> str:
    """A random id for one opening of a store."""
    return secrets.token_hex(8)


def written(about: About) -> str:
    """The form in which it stands in the store."""
    return msgspec.json.encode(about).decode()


def read_about(text: str | None) -> About:
    """What stands in the store; about nobody when it cannot be read."""
    try:
        return msgspec.json.decode(text or "{}", type=About)
    except (msgspec.MsgspecError, UnicodeError):
        return About()


# -- probing -----------------------------------------------------------------------------------------------------------


def this_program(lease_s: float) -> About:
    """This process, as far as the machine tells."""
    try:
        boot, space = BOOT.read_text().strip(), str(SPACE.readlink())
    except OSError:  # no Linux: others wait for the lease
        boot = space = ""
    pid = os.getpid()
    seen = process(pid) or Seen()
    return About(platform.node(), boot, space, pid, seen.started, int(lease_s * 1000))


def process(pid: int) -> Seen | None:
    """The process of that number, None when there is none."""
    if not 0 < pid < PID_MAX:
        return Seen()
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:  # it is another user's
        pass
    try:
        # The name in parentheses may hold anything; behind it stand the state and, as the 20th, the start time.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return Seen(fields[0], fields[19])
    except (OSError, IndexError):  # hidden, or just gone
        return Seen()
