"""House rules about imports: directions, reading order, purity, and the homes of asyncio and the clock."""

import ast
import re
from collections.abc import Iterator, Mapping

from .tidy_tree import Function, Imported, Source, Tables, imports

# A package may import itself and these.
SEES: Mapping[str, tuple[str, ...]] = {
    "actors": (),
    "plugins": ("actors",),
    "metrics": ("actors",),
    "runtime": ("actors", "plugins", "metrics"),
}
IMPURE = ("trio", "asyncio", "time", "random", "os")
ORDER_LINE = re.compile(r"^\s*`{0,2}([A-Za-z_][\w./]*?)(?:\.py|/)?`{0,2}(?:\s{2,}|\s*:\s|\s+[-–—]\s|\s*$)")


def target(imported: Imported, tree: Mapping[str, Source]) -> str:
    """The module an import reaches: the name itself if it is one, else where it is taken from."""
    return imported.whole if imported.whole in {s.module for s in tree.values()} else imported.module


def ours(source: Source, tree: Mapping[str, Source]) -> Iterator[tuple[Imported, str]]:
    """Imports of `callboard.<package>...` with the module they reach."""
    for imported in imports(source):
        reached = target(imported, tree)
        if reached == "callboard" and imported.name in SEES:
            reached = imported.whole
        if reached.startswith("callboard."):
            yield imported, reached


def directions(source: Source, tree: Mapping[str, Source], tables: Tables) -> Iterator[str]:
    """actors <- plugins, actors <- metrics (events only), and runtime sees all."""
    if not source.in_package:
        return
    for imported, reached in ours(source, tree):
        package = reached.split(".")[1]
        if package != source.folder and package not in SEES[source.folder]:
            yield source.finding(
                imported.node,
                f"{source.folder} imports {reached}",
                f"{source.folder} may import {' and '.join(SEES[source.folder]) or 'nothing of ours'}: "
                "put what is needed, or a Protocol for it, into actors",
            )
        elif source.folder == "metrics" and package == "actors" and reached not in tables.metrics_sees:
            yield source.finding(
                imported.node,
                f"metrics imports {reached}",
                f"metrics listens to events: import {' or '.join(tables.metrics_sees)}",
            )


def modules_of(package: str, tree: Mapping[str, Source]) -> dict[str, Source]:
    """Modules directly in a package and its direct subpackages, by their short name."""
    prefix = package + "."
    return {s.module[len(prefix) :]: s for s in tree.values() if s.module.startswith(prefix)}


def reading_order(package: str, tree: Mapping[str, Source]) -> list[str]:
    """A package's modules as its docstring lists them; a listed subpackage brings its own list.

    A line reads `name  what it knows`, with two spaces; in a subpackage `sub/module` or `sub.module`.
    """
    init = next((s for s in tree.values() if s.is_init and s.module == package), None)
    known = modules_of(package, tree)
    order: list[str] = []
    for line in (ast.get_docstring(init.tree) or "").splitlines() if init else ():
        match = ORDER_LINE.match(line)
        name = match.group(1).replace("/", ".") if match else ""
        if name not in known or name in order:
            continue
        if known[name].is_init:
            inner = (f"{name}.{m}" for m in reading_order(f"{package}.{name}", tree))
            order.extend(m for m in inner if m not in order)
        order.append(name)
    return order


def listed(source: Source, tree: Mapping[str, Source], _: Tables) -> Iterator[str]:
    """Every module stands in the reading order of its package's docstring."""
    if not source.in_package or source.path.count("/") != 1 or not source.is_init:
        return
    order = reading_order(source.module, tree)
    for name, module in modules_of(source.module, tree).items():
        if name not in order and not module.is_init:
            yield source.finding(
                1,
                f"the package docstring does not list {name.replace('.', '/')}",
                "add the line `name  what it knows` (two spaces) below all modules that it imports",
            )


def upward(source: Source, tree: Mapping[str, Source], _: Tables) -> Iterator[str]:
    """A module imports only those above it in the reading order."""
    if not source.in_package or source.is_init:
        return
    package = f"callboard.{source.folder}"
    order = reading_order(package, tree)
    place = {f"{package}.{name}": n for n, name in enumerate(order)}
    here = place.get(source.module, len(order))
    for imported, reached in ours(source, tree):
        if reached == package:
            wrong, instead = (
                f"imports from its own package {package}",
                "import the module that defines the name",
            )
        elif reached in place and place[reached] >= here and reached != source.module:
            wrong = f"imports {reached}, which stands below it in the reading order"
            instead = "move it up in the package docstring, or state a Protocol above"
        else:
            continue
        yield source.finding(imported.node, wrong, instead)


def no_type_checking(source: Source, _tree: Mapping[str, Source], _: Tables) -> Iterator[str]:
    """No imports for the type checker alone."""
    for node in ast.walk(source.tree):
        name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
        if name == "TYPE_CHECKING":
            yield source.finding(node, "TYPE_CHECKING hides an import", "state a Protocol in a module above")


def pure(source: Source, _: Mapping[str, Source], tables: Tables) -> Iterator[str]:
    """Pure modules know no loop, clock, chance or disk."""
    if source.path in tables.pure:
        banned: tuple[str, ...] = IMPURE
    elif source.path.startswith("tests/pure/"):
        banned = ("trio", "asyncio", "time")
    elif source.folder == "plugins":
        banned = ("random",) if source.path in tables.os_plugins else ("random", "os")
    else:
        return
    for imported in imports(source):
        if imported.root in banned:
            yield source.finding(
                imported.node,
                f"a pure module imports {imported.root}",
                "take the value as an argument (a plugin asks its View), or move the effect out",
            )


def pure_folds(source: Source, _: Mapping[str, Source], _tables: Tables) -> Iterator[str]:
    """What a plugin gives to `Projection(...)` reaches no loop, clock, chance or disk."""
    if source.folder != "plugins":
        return
    effects = {n for n, whole in source.bindings.items() if whole.split(".")[0] in (*IMPURE, "datetime", "pathlib")}
    known = {n.name: n for n in source.tree.body if isinstance(n, (Function, ast.ClassDef))}
    calls = [n for n in ast.walk(source.tree) if isinstance(n, ast.Call)]
    waiting: list[ast.AST] = [
        a
        for c in calls
        if source.dotted(c.func).split(".")[-1] == "Projection"
        for a in (*c.args, *(k.value for k in c.keywords))
    ]
    seen: set[str] = set()
    while waiting:
        for name in (n for n in ast.walk(waiting.pop()) if isinstance(n, ast.Name)):
            if name.id in effects:
                instead = "put what the fold needs into the event"
                yield source.finding(name, f"a fold reaches {source.bindings[name.id]}", instead)
            elif name.id in known and name.id not in seen:
                seen.add(name.id)
                waiting.append(known[name.id])


def one_home(source: Source, _: Mapping[str, Source], tables: Tables) -> Iterator[str]:
    """asyncio lives in runtime/, the wall clock in one module."""
    if not source.in_package:
        return
    for imported in imports(source):
        if imported.root in ("asyncio", "uvloop") and source.folder != "runtime":
            yield source.finding(
                imported.node,
                f"{source.folder} imports {imported.root}",
                "use trio here; what needs asyncio crosses through runtime/guest.py",
            )
        if imported.root in ("time", "datetime") and source.path not in tables.time_importers:
            yield source.finding(
                imported.node,
                f"{source.path} imports {imported.root}",
                "take milliseconds from the clock you are given (runtime/clock.py), sleep on trio's clock",
            )


def no_mocks(source: Source, _: Mapping[str, Source], _tables: Tables) -> Iterator[str]:
    """Fakes, not mocks."""
    for imported in imports(source):
        if imported.whole.startswith(("unittest.mock", "mock.")) or imported.module == "mock":
            yield source.finding(
                imported.node, f"imports {imported.whole}", "use the fakes of callboard.actors.testing"
            )


RULES = (directions, listed, upward, no_type_checking, pure, pure_folds, one_home, no_mocks)
