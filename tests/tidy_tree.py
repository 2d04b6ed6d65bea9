"""What the house rules look at: sources, the tree of them, and the tables of agreed exceptions."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

PACKAGES = ("actors", "runtime", "plugins", "metrics")
FOLDERS = (*PACKAGES, "tests", "examples")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file: `path` is relative to the root, with forward slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text, self.path)

    @property
    def folder(self) -> str:
        """The top-level folder: `actors`, `tests` ..."""
        return self.path.split("/", 1)[0]

    @property
    def in_package(self) -> bool:
        """Whether the file ships in the wheel."""
        return self.folder in PACKAGES

    @cached_property
    def module(self) -> str:
        """The name it is imported by: `runtime/doors/cli.py` is `callboard.runtime.doors.cli`."""
        parts = PurePosixPath(self.path).with_suffix("").parts
        return ".".join(("callboard", *(parts[:-1] if parts[-1] == "__init__" else parts)))

    @property
    def is_init(self) -> bool:
        """Whether this is a package's `__init__`."""
        return self.path.endswith("/__init__.py")

    @cached_property
    def bindings(self) -> Mapping[str, str]:
        """Local name to what it was imported as, over the whole file: `{"to_thread": "trio.to_thread"}`."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    whole = alias.name if alias.asname else alias.name.split(".")[0]
                    found[alias.asname or whole] = whole
            elif isinstance(node, ast.ImportFrom):
                base = self.absolute(node)
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{base}.{alias.name}"
        return found

    def absolute(self, node: ast.ImportFrom) -> str:
        """The absolute module a `from` import names."""
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        parts = parts[: len(parts) - node.level + (1 if self.is_init else 0)]
        return ".".join([*parts, node.module] if node.module else parts)

    def dotted(self, node: ast.AST | None) -> str:
        """`to_thread.run_sync` as `trio.to_thread.run_sync`; a foot that is no name is left out."""
        if isinstance(node, ast.Name):
            return self.bindings.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.dotted(node.value)}.{node.attr}"
        return ""

    def finding(self, node: ast.AST | int, wrong: str, instead: str) -> str:
        """One line for a person: where, what is wrong, what to do instead."""
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return f"{self.path}:{line}: {wrong}; {instead}"


@dataclass(frozen=True)
class Imported:
    """One import: the statement, the module it names, and the name taken from it if any."""

    node: ast.stmt
    module: str
    name: str | None = None

    @property
    def root(self) -> str:
        """The top-level package: `asyncio` for `asyncio.tasks`."""
        return self.module.split(".")[0]

    @property
    def whole(self) -> str:
        """The module with the name."""
        return f"{self.module}.{self.name}" if self.name else self.module


def imports(source: Source) -> Iterator[Imported]:
    """All imports of a file, inside functions too."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (Imported(node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Imported(node, source.absolute(node), alias.name) for alias in node.names)


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Every function with its qualified name: `Session.run`, `outer.inner`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield prefix + node.name, node
        inner = f"{prefix}{node.name}." if isinstance(node, (Function, ast.ClassDef)) else prefix
        yield from functions(node, inner)


def module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements that run at import, those under `if`, `try` and `with` included."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, (Function, ast.ClassDef)):
            continue
        if isinstance(node, ast.stmt):
            yield node
        waiting.extend(n for n in ast.iter_child_nodes(node) if isinstance(n, (ast.stmt, ast.ExceptHandler)))


def assigned(node: ast.stmt) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    """Name, value and annotation of an assignment to plain names."""
    if isinstance(node, ast.Assign):
        yield from ((t.id, node.value, None) for t in node.targets if isinstance(t, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        yield node.target.id, node.value, node.annotation


@dataclass(frozen=True)
class Tables:
    """Agreed exceptions, each with its reason; one that nothing needs any more is itself a finding."""

    long_files: Mapping[str, str] = field(default_factory=dict)
    pure: tuple[str, ...] = ()
    metrics_sees: tuple[str, ...] = ()
    time_importers: Mapping[str, str] = field(default_factory=dict)
    os_plugins: Mapping[str, str] = field(default_factory=dict)
    real_sleepers: Mapping[str, str] = field(default_factory=dict)
    broad_excepts: Mapping[str, str] = field(default_factory=dict)
    cancelled_ends: Mapping[str, str] = field(default_factory=dict)
    fixed_names: Mapping[str, str] = field(default_factory=dict)


def read_tree(root: Path) -> dict[str, Source]:
    """Every Python file under the six folders, by path."""
    paths = sorted(p for folder in FOLDERS for p in (root / folder).rglob("*.py") if "__pycache__" not in p.parts)
    named = ((p.relative_to(root).as_posix(), p) for p in paths)
    return {name: Source(name, p.read_text(encoding="utf-8")) for name, p in named}
