"""What the body of a call came to, as its one result: receipt and words for the model, never a traceback."""

from typing import Any

import attrs
import msgspec
import trio

from callboard.actors.errors import Dropped, FatalToolError, ToolError
from callboard.actors.events import Cause, Receipt
from callboard.actors.host import LOGGER, Host
from callboard.actors.pit import leaves, only_cancels
from callboard.actors.plugin import Concluded, Failed, Partial
from callboard.actors.receipts import aborted_text

ERROR_MAX_CHARS = 2_000


@attrs.frozen
class Returned:
    """What a call came to, before it is written; `fatal` is the error that ends the turn.

    `concludes`: the turn has nothing more to do.
    """

    receipt: Receipt
    text: str
    fatal: str | None = None
    concludes: bool = False


def judge(host: Host, cause: Cause | None) -> Returned:
    """What a body came to; `cause` is that of the open abort window, None without one.

    A value or an error that was there before the abort reached the body stands.
    """
    seconds = host.ended_s - host.started_s if host.ended else trio.current_time() - host.started_s
    if host.has_value and not (host.late and cause is not None):
        return completed(host.value)
    if not host.ended or (host.abandoned and not host.has_value):
        return _abandoned(host, cause, seconds)
    if host.has_value:
        assert cause is not None
        if type(host.value) is Partial:
            return Returned("interrupted", str(host.value.text))
        partial_text = completed(host.value).text
        return Returned("interrupted", aborted_text(cause, "interrupted", seconds, partial_text))
    if host.error is not None and not only_cancels(host.error):
        if cause is None or not (host.late or _from_clean_up(host.error)):
            return failed(host.error)
        LOGGER.warning("%s raised while it was being interrupted: %s", host.name, describe(host.error))
    if cause is None:
        return _timed_out(host, seconds)
    receipt: Receipt = "interrupted" if host.started else "not_started"
    return Returned(receipt, aborted_text(cause, receipt, seconds))


def _from_clean_up(error: BaseException) -> bool:
    """Whether it was raised on the way out of a cancellation."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, trio.Cancelled | Dropped):
            return True
        waiting.extend(leaf for leaf in (*leaves(one), one.__cause__, one.__context__) if leaf is not None)
    return False


def _abandoned(host: Host, cause: Cause | None, seconds: float) -> Returned:
    """A body that outlived its time."""
    if cause is None:
        return _timed_out(host, seconds)
    return Returned("abandoned", aborted_text(cause, "abandoned", seconds))


def _timed_out(host: Host, seconds: float) -> Returned:
    """A body that its own `timeout_s` ended, or that ended by a cancellation nobody here asked for."""
    if host.timeout_s is None:
        return Returned("failed", f"{host.name} was cancelled from inside after {seconds:.1f}s")
    left = " It did not stop and was left behind." if host.abandoned else ""
    return Returned("failed", f"{host.name} timed out after {host.timeout_s:g}s.{left}")


def completed(value: Any) -> Returned:
    """What the model reads of a returned value: text as it is, None as nothing, anything else as JSON."""
    try:
        match value:
            case str():
                return Returned("completed", value)
            case Failed():
                return Returned("failed", str(value.text))
            case Partial():
                return Returned("completed", str(value.text))
            case Concluded():
                inner = completed(value.value)
                return attrs.evolve(inner, concludes=inner.receipt == "completed")
            case None:
                return Returned("completed", "")
        return Returned("completed", msgspec.json.encode(value).decode())
    except Exception as error:  # a value of the tool's own class may raise anything while it is looked at
        return Returned("failed", f"the result cannot be written as JSON: {describe(error)}"[:ERROR_MAX_CHARS])


def failed(error: BaseException) -> Returned:
    """What the model reads of an error: its text; of a group the first that is no cancellation, and the count."""
    real = [leaf for leaf in leaves(error) if not isinstance(leaf, trio.Cancelled | Dropped)]
    first = real[0] if real else error
    text = describe(first)
    if len(real) > 1:
        text = f"{text[: ERROR_MAX_CHARS - 20]} (and {len(real) - 1} more)"
    text = text[:ERROR_MAX_CHARS]
    fatal = next((leaf for leaf in real if isinstance(leaf, FatalToolError)), None)
    return Returned("failed", text, fatal=None if fatal is None else describe(fatal)[:ERROR_MAX_CHARS])


def describe(error: BaseException) -> str:
    """An error in one line: the text alone when it was written for the model, else the class too."""
    try:
        text = str(error)
    except Exception as broken:  # an error of the tool's own class may not even be printable
        text = f"(its text cannot be read: {type(broken).__name__})"
    if isinstance(error, ToolError | FatalToolError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
