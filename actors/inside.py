"""Inside: whose turn it is that the code belongs to which runs now; what it starts to run beside the session does not.

A context variable, because foreign code is reached in tasks of its own, in threads and on asyncio, and these carry it.
"""

from contextvars import ContextVar
from typing import Final

INSIDE: Final[ContextVar[tuple[str, int] | None]] = ContextVar("INSIDE", default=None)
"""The session and the number of the turn that cannot end before this code has, None outside of turns."""
