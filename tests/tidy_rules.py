"""House rules about shape, names, concurrency and tests: each a function from a source to its findings."""

import ast
import re
from collections.abc import Iterator, Mapping

from .tidy_tree import Function, Source, Tables, assigned, functions, module_level

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60

# How a number at module level may end: a unit, a bound, or what it numbers.
UNITS = (
    *("s", "ms", "us", "ns", "bytes", "chars", "lines", "tokens", "usd", "hz"),
    *("max", "min", "ratio", "percent", "factor", "bits"),
    *("port", "version", "code", "status", "seed", "fd"),
)
BANNED_WORDS = ("manager", "handler", "helper", "helpers", "util", "utils", "job", "worker")
BANNED_IN_TYPES = (
    "process",
    "context",
)  # in names of classes and modules: as verbs and in phrases they are harmless
BANNED_BAGS = ("context", "ctx")  # as the whole name: a bag of anything

MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_CALLS = ("list", "dict", "set", "bytearray", "defaultdict", "deque", "OrderedDict", "Counter")
SHIELDS_WITH_LIMIT = ("move_on_after", "fail_after", "move_on_at", "fail_at")
DEADLINES = frozenset({"deadline", "relative_deadline"})
SLEEPING_ROOMS = ("tests/host/", "tests/crash/", "tests/bench/", "examples/")
TWO_SENTENCES = re.compile(r"[.!?][`\"')]*\s+[A-Z`]")


def file_shape(source: Source, tables: Tables) -> Iterator[str]:
    """A file says in its first line what it knows, and stays short."""
    if not (ast.get_docstring(source.tree) or "").strip():
        yield source.finding(1, "no docstring", "say in one line what this file knows")
    lines = len(source.text.splitlines())
    if lines > FILE_LINES_MAX and source.path not in tables.long_files:
        yield source.finding(lines, f"{lines} lines, at most {FILE_LINES_MAX}", "split it by what each part knows")


def function_shape(source: Source, _: Tables) -> Iterator[str]:
    """A function fits on a screen."""
    for name, node in functions(source.tree):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if ast.get_docstring(node) is not None:
            lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
        if lines > FUNCTION_LINES_MAX:
            wrong = f"{name} has {lines} lines without its docstring, at most {FUNCTION_LINES_MAX}"
            yield source.finding(node, wrong, "name its parts")


def no_module_state(source: Source, _: Tables) -> Iterator[str]:
    """Nothing at module level can be changed."""
    if not source.in_package:
        return
    instead = "use a tuple, frozenset or MappingProxyType, annotate a table Final, or keep it in an object"
    for node in module_level(source.tree):
        for name, value, annotation in assigned(node):
            called = source.dotted(value.func).split(".")[-1] if isinstance(value, ast.Call) else ""
            if name == "__all__" or not (isinstance(value, MUTABLE) or called in MUTABLE_CALLS):
                continue
            outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
            if source.dotted(outer).split(".")[-1] not in ("Final", "Mapping"):
                yield source.finding(node, f"{name} is a mutable value at module level", instead)
    for inner in ast.walk(source.tree):
        if isinstance(inner, ast.Global):
            wrong = f"global {', '.join(inner.names)}"
            yield source.finding(inner, wrong, "keep it in an object with an owner")


def _number(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return _number(node.operand)
    return isinstance(node, ast.BinOp) and _number(node.left) and _number(node.right)


def units(source: Source, _: Tables) -> Iterator[str]:
    """A number at module level says its unit or bound."""
    if not source.in_package:
        return
    instead = f"end it in one of {', '.join(UNITS)}"
    for node in module_level(source.tree):
        for name, value, _annotation in assigned(node):
            if _number(value) and name.lower().rsplit("_", 1)[-1] not in UNITS:
                yield source.finding(node, f"{name} is a number without a unit", instead)


def _words(name: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return [w.lower() for w in re.split(r"[_\W]+", spaced) if w]


def _banned(name: str, *, is_type: bool) -> str | None:
    words = (*BANNED_WORDS, *BANNED_IN_TYPES) if is_type else BANNED_WORDS
    hits = [w for w in _words(name) if w in words or (w.endswith("s") and w[:-1] in words)]
    if name.strip("_").lower() in BANNED_BAGS:
        hits.append(name)
    return hits[0] if hits else None


def _defined(tree: ast.Module) -> Iterator[tuple[ast.AST, str, bool]]:
    """Names a file gives: node, name, and whether it names a type."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node, node.name, True
        elif isinstance(node, Function):
            yield node, node.name, False
        elif isinstance(node, ast.arg):
            yield node, node.arg, False
        elif isinstance(node, ast.alias) and node.asname:
            yield node, node.asname, False
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node, node.name, False
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node, node.id, False
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node, node.attr, False


def words(source: Source, tables: Tables) -> Iterator[str]:
    """No name says one of the words that say nothing."""
    instead = "say what it does or holds (the words of DESIGN.md)"
    for part in source.path.removesuffix(".py").split("/"):
        if hit := _banned(part, is_type=True):
            yield source.finding(1, f"the file name says {hit!r}", instead)
    for node, name, is_type in _defined(source.tree):
        hit = _banned(name, is_type=is_type)
        if hit and name not in tables.fixed_names:
            yield source.finding(node, f"{name} says {hit!r}", instead)


def limits(source: Source, _: Tables) -> Iterator[str]:
    """Every shield ends, and every thread call says what cancellation does."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            keys = {k.arg: k.value for k in node.keywords}
            called = source.dotted(node.func)
            shield = keys.get("shield", ast.Constant(value=False))
            limited = called.split(".")[-1] in SHIELDS_WITH_LIMIT or {"deadline", "relative_deadline"} & set(keys)
            if not (isinstance(shield, ast.Constant) and shield.value is False) and not limited:
                yield source.finding(node, "a shield without a limit", "use trio.move_on_after(LIMIT_S, shield=True)")
            if called.endswith("to_thread.run_sync") and "abandon_on_cancel" not in keys:
                yield source.finding(node, "to_thread.run_sync is silent on cancellation", "pass abandon_on_cancel=")
        elif isinstance(node, ast.Assign):
            for t in node.targets:
                if isinstance(t, ast.Attribute) and t.attr == "shield":
                    instead = "open a scope with the shield and its limit in one call"
                    yield source.finding(node, "a shield is set on a running scope", instead)


def _caught(source: Source, node: ast.expr | None) -> list[str]:
    if node is None:
        return ["BaseException"]
    kinds = node.elts if isinstance(node, ast.Tuple) else [node]
    return [source.dotted(k).split(".")[-1] for k in kinds]


def _nets(source: Source) -> Iterator[tuple[str, ast.AST, list[str], bool]]:
    """Every `except` and `suppress`: function, node, the classes caught, and whether it raises again."""
    owner: dict[ast.AST, str] = {}
    for name, function in functions(source.tree):  # outer before inner, so the innermost name stays
        owner.update(dict.fromkeys(ast.walk(function), name))
    for node in ast.walk(source.tree):
        place = f"{source.path}:{owner.get(node, '<module>')}"
        if isinstance(node, ast.ExceptHandler):
            raises = any(isinstance(n, ast.Raise) and owner.get(n) == owner.get(node) for n in ast.walk(node))
            yield place, node, _caught(source, node.type), raises
        elif isinstance(node, ast.Call) and source.dotted(node.func).split(".")[-1] == "suppress":
            yield place, node, [kind for a in node.args for kind in _caught(source, a)], False


def excepts(source: Source, tables: Tables) -> Iterator[str]:
    """Broad nets hang only in agreed places, and cancellation always goes on."""
    if source.folder == "tests":
        return
    for place, node, caught, raises in _nets(source):
        broad = {"Exception", "BaseException"} & set(caught)
        if broad and place not in tables.broad_excepts:
            instead = "name what can happen, or add the place to the table with the reason"
            yield source.finding(node, f"{place} catches {min(broad)}", instead)
        cancelled = {"Cancelled", "CancelledError"} & set(caught)
        if cancelled and not raises and place not in tables.cancelled_ends:
            yield source.finding(node, f"{place} swallows {min(cancelled)}", "clean up and raise again")


def tests_say_what(source: Source, _: Tables) -> Iterator[str]:
    """Each test states the behaviour in one sentence."""
    if source.folder != "tests":
        return
    for name, node in functions(source.tree):
        if not name.split(".")[-1].startswith("test_") or not source.path.split("/")[-1].startswith("test_"):
            continue
        text = " ".join((ast.get_docstring(node) or "").split())
        if not text:
            yield source.finding(node, f"{name} has no docstring", "state the behaviour in one sentence")
        elif not text.endswith((".", "?", "!")) or TWO_SENTENCES.search(text):
            yield source.finding(node, f"{name}: {text!r} is not one sentence", "state one behaviour, with a full stop")


def no_sleeping(source: Source, tables: Tables) -> Iterator[str]:
    """Nobody waits for real time, except where the real loop is the subject."""
    if source.path.startswith(SLEEPING_ROOMS) or source.path in tables.real_sleepers or source.folder == "examples":
        return
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = source.dotted(node.func)
        zero = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
        if called == "time.sleep" or (called == "asyncio.sleep" and not zero):
            yield source.finding(node, f"{called} waits for real time", "sleep on trio's clock (MockClock in tests)")


RULES = (
    *(file_shape, function_shape, no_module_state, units, words),
    *(limits, excepts, tests_say_what, no_sleeping),
)


def all_findings(tree: Mapping[str, Source], tables: Tables) -> list[str]:
    """Every finding of the rules of this module over a tree."""
    return [f for source in tree.values() for rule in RULES for f in rule(source, tables)]
