"""What one runtime is made of: plugins, tools and hooks put together, checked, and cut by the configuration."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import attrs

from callboard.actors.books import BUILT_IN
from callboard.actors.budget import Price
from callboard.actors.codec import Codec
from callboard.actors.errors import UsageError
from callboard.actors.events import Event
from callboard.actors.fold import Folds, Projection
from callboard.actors.plugin import Hook, Plugin, check_plugins
from callboard.actors.results import describe
from callboard.actors.stage import Limits
from callboard.actors.tool import Tool
from callboard.plugins import (
    AGENTS_PLUGIN,
    ASK_PLUGIN,
    CODE,
    DEFAULT,
    GOAL_PLUGIN,
    PLAN_MODE_PLUGIN,
    PLAN_PLUGIN,
    SCHEDULE_PLUGIN,
    TODO_PLUGIN,
)
from callboard.plugins.agents import agents_plugin
from callboard.plugins.ask import ask_plugin
from callboard.plugins.code import code_plugin
from callboard.plugins.goal import goal_plugin
from callboard.plugins.plan import plan_plugin
from callboard.plugins.plan_mode import plan_mode_plugin
from callboard.plugins.schedule import schedule_plugin
from callboard.plugins.search import tool_search
from callboard.plugins.todo import todo_plugin
from callboard.runtime.admission import TreeLimits
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.hooks.commands import command_hooks
from callboard.runtime.models import ModelNames

LOGGER = logging.getLogger("callboard")
GROUP = "callboard.plugins"
BROKEN_PLUGIN = (
    "the plugin {name!r:.80} of the installed package {package!r:.80} cannot be loaded ({error:.300}): "
    "repair the package or uninstall it."
)
NO_PLUGIN = (
    "the plugin {name!r:.80} of the installed package {package!r:.80} must be a Plugin value, "
    "and {value!r:.80} is {found!r:.80}: repair the package or uninstall it."
)


@attrs.frozen
class Assembly:
    """Plugins, tools, hooks, and what follows from them; `skipped` are external tools whose names were taken."""

    plugins: tuple[Plugin, ...]
    tools: Mapping[str, Tool]
    hooks: tuple[Hook, ...]
    codec: Codec
    folds: Folds
    skipped: tuple[Tool, ...] = ()


def assemble(
    config: RuntimeConfig,
    plugins: Sequence[Plugin],
    tools: Iterable[Tool],
    hooks: Iterable[Hook],
    instead: Iterable[Tool] = (),
    own: Sequence[Plugin] = (),
) -> Assembly:
    """Put a runtime together; `UsageError` for what is no plugin, tool or hook, and for a name used twice.

    With DEFAULT come the plugins of installed packages. `instead` are tools of a model's own (a replay's): they take
    the place of ours with the same names. `own` are the runtime's, which give way to others of the same names.
    """
    chosen = default_plugins(config) if plugins is DEFAULT else _configured(config, _listed("plugins", plugins))
    check_plugins(chosen)
    taken = {plugin.name for plugin in chosen} | {command.name for plugin in chosen for command in plugin.commands}
    chosen = (*chosen, *(plugin for plugin in own if plugin.name not in taken))
    given = (hook for plugin in chosen for hook in plugin.hooks)
    checked = (*given, *_listed("hooks", hooks), *command_hooks(config.hooks))
    for hook in checked:
        if not isinstance(hook, Hook):
            raise UsageError(f"hooks must be Hook values, got {hook!r:.80}.")
    named, skipped = _named([*(t for plugin in chosen for t in plugin.tools), *_listed("tools", tools)])
    catalogue = _gated(config, named)
    _check_roles(config, named)
    catalogue.update({tool.name: tool for tool in instead})
    events: tuple[type[Event], ...] = tuple(event for plugin in chosen for event in plugin.events)
    dues = [(alarm.projection, alarm.next_ms) for plugin in chosen for alarm in plugin.alarms]
    codec, folds = Codec(_without_known(events)), Folds(_projections(chosen), dues)
    return Assembly(chosen, catalogue, checked, codec, folds, skipped)


def _listed(what: str, values: Any) -> tuple[Any, ...]:
    """All of them, as a tuple; `UsageError` for what is no list of values."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise UsageError(f"{what} must be a list, got {values!r:.80}.")
    return tuple(values)


def default_plugins(config: RuntimeConfig) -> tuple[Plugin, ...]:
    """The shipped plugins, as configured, then what installed packages register in the entry-point group."""
    return (*_configured(config, DEFAULT), *(_registered(point) for point in entry_points(group=GROUP)))


def _configured(config: RuntimeConfig, plugins: Sequence[Plugin]) -> tuple[Plugin, ...]:
    """The plugins, the shipped ones among them as the configuration wants them."""
    settings = config.plugins
    plan = plan_plugin(one_in_progress=settings.plan.one_in_progress)
    todo = todo_plugin(allow_parallel_in_progress=settings.todo.allow_parallel_in_progress)
    shipped = (
        (PLAN_PLUGIN, plan),
        (TODO_PLUGIN, todo),
        (PLAN_MODE_PLUGIN, plan_mode_plugin(**attrs.asdict(settings.plan_mode))),
        (ASK_PLUGIN, ask_plugin(**attrs.asdict(settings.ask))),
        (SCHEDULE_PLUGIN, schedule_plugin(**attrs.asdict(settings.schedule))),
        (GOAL_PLUGIN, goal_plugin(**attrs.asdict(settings.goal))),
        (AGENTS_PLUGIN, _agents(config)),
        (CODE, code_plugin(**attrs.asdict(settings.code))),
    )
    return tuple(next((ours for given, ours in shipped if given is one), one) for one in plugins)


def _agents(config: RuntimeConfig) -> Plugin:
    agents = config.agents
    roles = {name: role.instructions or "" for name, role in agents.roles.items()}
    return agents_plugin(roles=roles, notify=agents.notify, detach=agents.detach)


def _registered(point: EntryPoint) -> Plugin:
    """What an installed package registers; `UsageError` names the package when that is no plugin, or breaks."""
    package = point.module.partition(".")[0] if point.dist is None else point.dist.name
    try:
        plugin = point.load()
    except Exception as error:
        said = describe(error)
        said = said if said.isprintable() else ascii(said)
        raise UsageError(BROKEN_PLUGIN.format(name=point.name, package=package, error=said)) from error
    if not isinstance(plugin, Plugin):
        raise UsageError(NO_PLUGIN.format(name=point.name, package=package, value=point.value, found=plugin))
    return plugin


def _named(tools: Iterable[Any]) -> tuple[dict[str, Tool], tuple[Tool, ...]]:
    """The tools by name, ours first; and the external ones whose names were taken, which are left out."""
    named: dict[str, Tool] = {}
    external: list[Tool] = []
    for tool in tools:
        if not isinstance(tool, Tool):
            raise UsageError(f"tools must be made with @tool, got {tool!r:.80}.")
        if tool.external is not None:
            external.append(tool)
        elif named.setdefault(tool.name, tool) is not tool:
            raise UsageError(f"two tools are named {tool.name!r}: rename one with @tool(name=...).")
    skipped = tuple(tool for tool in external if named.setdefault(tool.name, tool) is not tool)
    for tool in skipped:
        LOGGER.warning("the %s tool %r is left out: another tool has its name", tool.external, tool.name)
    return named, skipped


def of_a_server(config: RuntimeConfig, name: str) -> bool:
    """Whether a tool is one of a configured server, whose tools are known once it is connected."""
    prefix, _, rest = name.partition("__")
    return prefix == "mcp" and rest.partition("__")[0] in config.mcp


def _gated(config: RuntimeConfig, named: Mapping[str, Tool]) -> dict[str, Tool]:
    """The tools as the configuration wants them; one to find others, when any is to be found."""
    catalogue = dict(named)
    for name, setting in config.tools.items():
        if of_a_server(config, name):
            continue
        if name not in catalogue:
            raise UsageError(f"[tools.{name}] names no tool: there are {', '.join(sorted(catalogue)) or 'none'}.")
        if not setting.enabled:
            del catalogue[name]
        elif setting.exposure is not None:
            catalogue[name] = attrs.evolve(catalogue[name], exposure=setting.exposure)
    exposures = {tool.exposure for tool in catalogue.values()} | {one.exposure for one in config.mcp.values()}
    if "deferred" in exposures:
        if tool_search.name in named:
            raise UsageError(f"{tool_search.name} finds deferred tools: rename yours with @tool(name=...).")
        catalogue[tool_search.name] = tool_search
    return catalogue


def _check_roles(config: RuntimeConfig, named: Mapping[str, Tool]) -> None:
    """A role that leaves a tool which does not exist was meant to leave another one."""
    for name, role in config.agents.roles.items():
        for tool in role.tools or ():
            if tool not in named and not of_a_server(config, tool):
                known = ", ".join(sorted(named)) or "none"
                raise UsageError(f"[agents.roles.{name}] names the tool {tool!r:.80}: there are {known}.")


def _projections(plugins: Sequence[Plugin]) -> tuple[Projection[Any], ...]:
    found: dict[str, Projection[Any]] = {projection.key: projection for projection in BUILT_IN}
    for plugin in plugins:
        for projection in plugin.projections:
            if found.setdefault(projection.key, projection) is not projection:
                raise UsageError(f"plugin {plugin.name!r}: a projection with key {projection.key!r} exists already.")
    return tuple(found.values())


def _without_known(events: Iterable[type[Event]]) -> tuple[type[Event], ...]:
    """Events of plugins, each once, without those that the codec knows anyway."""
    known = set(Codec().kinds.values())
    return tuple(event for event in dict.fromkeys(events) if event not in known)


def limits_of(config: RuntimeConfig, steps_max: int = 0) -> Limits:
    """The bounds of a session, from the configuration; at least `steps_max` steps, which a recording needs."""
    bounds, agents = config.runtime, config.agents
    return Limits(
        abort_window_s=bounds.abort_window_s,
        mailbox_max=bounds.mailbox_max,
        steps_max=max(bounds.steps_max, steps_max),
        turn_seconds_max=bounds.turn_seconds_max,
        flush_stall_s=bounds.flush_stall_s,
        shutdown_s=bounds.shutdown_s,
        threads_max=bounds.threads_max,
        threads_abandoned_max=bounds.threads_abandoned_max,
        keep_partial_text=bounds.keep_partial_text,
        recover=bounds.recover,
        interrupt_message=agents.interrupt_message,
        marker_role=agents.marker_role,
        retries_max=config.model.retries_max,
        idle_timeout_s=config.model.idle_timeout_s,
        context_window=config.model.context_window,
        compact_tokens_max=config.model.compact_tokens_max,
        tokens_max=config.budget.tokens_max,
        cost_usd_max=config.budget.cost_usd_max,
        review_model=agents.review_model,
    )


def prices_of(config: RuntimeConfig, models: ModelNames) -> Callable[[str | None], Price | None]:
    """What the tokens of a model cost: by its name, else by its provider; None where no price is given."""
    prices = {name: Price(**attrs.asdict(price)) for name, price in config.prices.items()}

    def price_of(name: str | None) -> Price | None:
        if not prices:
            return None
        known = models.default_name if name is None else name
        return prices.get(known) or prices.get(known.partition(":")[0])

    return price_of


def tree_limits_of(config: RuntimeConfig, agents_max: int = 0) -> TreeLimits:
    """The bounds of a tree of agents, from the configuration; room for `agents_max`, which a recording needs."""
    agents = config.agents
    return TreeLimits(
        depth_max=agents.depth_max,
        running_max=max(agents.running_max, agents_max),
        breadth_max=max(agents.breadth_max, agents_max),
        spawned_max=max(agents.spawned_max, agents_max),
        tokens_max=agents.tokens_max,
        cost_usd_max=agents.cost_usd_max,
        seconds_max=agents.seconds_max,
    )
