"""Every error a caller can meet, ordered by whose fault it is."""

from typing import Literal


class CallboardError(Exception):
    """Base of all errors raised on purpose; never raised itself."""


class UsageError(CallboardError):
    """The caller wrote something that cannot work; the text says what to write instead."""


class ConfigError(UsageError):
    """A configuration has mistakes; `mistakes` lists all of them as `what @ $.path`."""

    def __init__(self, source: str, mistakes: tuple[str, ...]) -> None:
        self.source, self.mistakes = source, mistakes
        super().__init__(f"{source}: " + "; ".join(mistakes))


class MissingExtra(UsageError):
    """A feature needs a package that is not installed; the text names the extra to install."""

    def __init__(self, feature: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{feature} needs more packages: install callboard[{extra}].")


class MailboxFull(CallboardError):
    """The session's mailbox is at `mailbox_max`; nothing was accepted, try again later."""


class SessionClosed(CallboardError):
    """The session was stopped, or the runtime is shutting down; nothing was accepted."""


class SessionNotFound(CallboardError, KeyError):
    """No session of that id is live or in the store."""

    def __str__(self) -> str:
        return str(self.args[0])


class ToolError(CallboardError):
    """A tool could not do what was asked; the model reads the text and the turn goes on."""


class FatalToolError(CallboardError):
    """A tool met something no later step can mend; the call fails and the turn ends with this error."""


class CallOver(CallboardError):
    """The call this view was lent to has ended; nothing it does can reach the log any more."""


class ModelError(CallboardError):
    """The model or its provider failed; `retryable` says whether the same request may succeed later.

    `retry_after_s` is the provider's advice in seconds, None without any. `kind` "overflow" says that the prompt does
    not fit the model's window: the history is compacted and the request made once more.
    """

    def __init__(
        self,
        text: str,
        *,
        retryable: bool = False,
        retry_after_s: float | None = None,
        kind: Literal["other", "overflow"] = "other",
    ) -> None:
        super().__init__(text)
        self.retryable, self.retry_after_s, self.kind = retryable, retry_after_s, kind


class LogError(CallboardError):
    """The store is not ours, not whole, or cannot be written."""


class Fenced(LogError):
    """Another owner took the session; this one wrote nothing and ends itself."""


class IntensityReached(CallboardError):
    """A supervisor restarted its children too often and gave up; for the operator."""


class Expected(Exception):
    """An end that a supervised child is made for: it is told as a warning, in its own words."""


class Dropped(BaseException):
    """Thrown into a tool that swallowed its cancellation; a BaseException, so that `except Exception` lets it by."""
