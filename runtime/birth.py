"""Birth: how the log of a subagent begins: what it is given of its parent, of its role, of what was asked for."""

from collections.abc import Mapping
from types import MappingProxyType

from callboard.actors.books import HISTORY
from callboard.actors.errors import ToolError
from callboard.actors.eventlog import EventLog
from callboard.actors.events import NoteAdded, SessionOpened
from callboard.actors.forked import forked
from callboard.actors.receipts import clean_text
from callboard.actors.stage import SpawnRequest
from callboard.runtime.settings import RoleConfig

NAMES_SHOWN_MAX = 20
REPORT = "report"  # how an agent speaks to its parent: no role takes that away

Roles = Mapping[str, RoleConfig]
NO_ROLES: Roles = MappingProxyType({})
NO_ROLE = RoleConfig()


def role_of(request: SpawnRequest, roles: Roles) -> RoleConfig:
    """The role that is asked for; a `ToolError` that lists the known ones when there is no such role."""
    if request.role is None:
        return NO_ROLE
    role = roles.get(request.role)
    if role is None:
        known = f"choose one of {', '.join(sorted(roles)[:NAMES_SHOWN_MAX])}" if roles else "this runtime has none"
        raise ToolError(f"there is no role {clean_text(request.role)!r:.80}: {known}, or leave it out.")
    return role


def opening_of(request: SpawnRequest, opened: SessionOpened, role: RoleConfig) -> SessionOpened:
    """The first event of the child's log. Its tools are never more than those of its parent."""
    withheld = tuple(dict.fromkeys((*opened.withheld, *request.withheld)))
    given = (opened.system, role.instructions) if request.system is None else (request.system,)
    return SessionOpened(
        parent=request.parent,
        root=opened.root or request.parent,
        depth=opened.depth + 1,
        path=f"{opened.path}/{request.name}",
        policy=opened.policy,
        system="\n\n".join(part for part in given if part) or None,
        model=request.model or role.model or opened.model,
        title=request.name,
        withheld=withheld,
        only=_only(opened.only, role.tools),
    )


def _only(above: tuple[str, ...] | None, tools: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if tools is None:
        return above
    kept = dict.fromkeys((*tools, REPORT))
    return tuple(kept) if above is None else tuple(name for name in kept if name in above)


def copied(request: SpawnRequest, parent: EventLog) -> tuple[NoteAdded, ...]:
    """What of its parent's history the child begins with."""
    return forked(tuple(parent[HISTORY].messages), request.turns) if request.turns else ()
