"""The scripts behind scripted:NAME: whole stories that need no key and no network, each a function of the prompt."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from callboard.actors.events import Call
from callboard.actors.model import Prompt, Reply, Result, User

PACE_S = 0.4  # a scripted reply takes this long, so that people can follow it
LIMIT_S = 12.0  # of the commands that the agents run: wherever the script is played, it ends

FOLDER_STEP = "See what is in the folder"
COUNT_STEP = "Count lines and words"
TODO_STEP = "Collect what is still to do"
CHECK_STEP = "Run the check"
REPORT_STEP = "Report"
STEPS = (FOLDER_STEP, COUNT_STEP, TODO_STEP, CHECK_STEP, REPORT_STEP)

START_ITEM = "Start three agents"
AGENTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "words": ("Count the lines and words of the text and Python files here.", "Hear from words"),
        "todos": ("Collect every TODO in the text and Python files here.", "Hear from todos"),
        "check": ("Run the check of this project and say whether it passes.", "Hear from check"),
    }
)
ITEMS = (START_ITEM, *(item for _, item in AGENTS.values()))

LOOK = "ls -p | head -n 12"
COUNT = 'for f in *.txt *.py; do wc -lw "$f"; sleep 0.4; done; cat *.txt *.py | wc -lw'
SEARCH = 'for f in *.txt *.py; do echo "looking into $f"; grep -Hn TODO "$f"; sleep 0.5; done'
CHECK = "sh check.sh"
QUICK = "sh check.sh --quick"

OPENING = "I look at the folder first, then three agents work on it at the same time."
SPAWNING = "Three parts do not depend on each other, so each gets an agent."
AGAIN = "This script has one story, and it is told. Start a new session to see it again."
GREETING = "Hello from the script."
NO_END = "The check does not come to an end."
NO_SHELL = "I have no shell here, so I ran nothing."


def _demo(prompt: Prompt) -> Reply:
    name = prompt.session.rpartition(".")[2]
    first = next((message for message in prompt.messages if isinstance(message, User)), None)
    if first is not None and first.source.startswith("agent:"):
        return CHILDREN[name](prompt) if name in CHILDREN and prompt.turn == 1 else Reply("I have nothing to add.")
    offered = {tool.name for tool in prompt.tools}
    if not {"update_plan", "todo_write", "spawn_agent", "wait_agent"} <= offered:
        return Reply(GREETING)
    if prompt.turn > 1:
        return Reply(AGAIN)
    return PARENT[min(prompt.step, len(PARENT)) - 1](prompt)


# -- the parent: one function for each step ----------------------------------------------------------------------------


def _open(prompt: Prompt) -> Reply:
    return Reply(OPENING, [_plan(0), *_shell(prompt, LOOK)])


def _spawn(prompt: Prompt) -> Reply:
    agents = [Call("spawn_agent", {"task_name": name, "message": task}) for name, (task, _) in AGENTS.items()]
    return Reply(SPAWNING, [_plan(1), _todos(0), *agents])


def _hear_words(prompt: Prompt) -> Reply:
    return Reply("", [_todos(1), _wait("words")])


def _hear_todos(prompt: Prompt) -> Reply:
    return Reply("", [_plan(2, _said(prompt, "words")), _todos(2), _wait("todos")])


def _hear_check(prompt: Prompt) -> Reply:
    return Reply("", [_plan(3, _said(prompt, "todos")), _todos(3), _wait("check")])


def _check_again(prompt: Prompt) -> Reply:
    if _interrupted(prompt):
        return Reply("The check was stopped, so I run its quick part myself.", _shell(prompt, QUICK))
    return Reply(_said(prompt, "check"), [_plan(3)])


def _finish(prompt: Prompt) -> Reply:
    return Reply("", [_plan(4), _todos(4)])


def _tick(prompt: Prompt) -> Reply:
    return Reply("", [_plan(5)])


def _report(prompt: Prompt) -> Reply:
    quick = _last_line(_results(prompt, "shell")) if _interrupted(prompt) else ""
    whole = "The whole check was stopped before its end." if quick else ""
    lines = (_said(prompt, "words"), _said(prompt, "todos"), quick or _said(prompt, "check"), whole)
    return Reply("\n".join(line for line in lines if line))


PARENT: Sequence[Callable[[Prompt], Reply]] = (
    *(_open, _spawn, _hear_words, _hear_todos, _hear_check),
    *(_check_again, _finish, _tick, _report),
)


def _plan(done: int, why: str | None = None) -> Call:
    """The plan with `done` steps completed and the next in progress."""
    plan = [{"step": step, "status": _status(at, done)} for at, step in enumerate(STEPS)]
    return Call("update_plan", {"plan": plan, **({"explanation": why} if why else {})})


def _todos(done: int) -> Call:
    return Call("todo_write", {"todos": [{"content": c, "status": _status(at, done)} for at, c in enumerate(ITEMS)]})


def _status(at: int, done: int) -> str:
    return "completed" if at < done else "in_progress" if at == done else "pending"


def _wait(name: str) -> Call:
    return Call("wait_agent", {"targets": [name], "timeout_ms": 30_000})


# -- the children ------------------------------------------------------------------------------------------------------


def _words(prompt: Prompt) -> Reply:
    results = _results(prompt, "shell")
    if not results:
        return _work(prompt, COUNT)
    counted = re.fullmatch(r"\s*(\d+)\s+(\d+)\s*", _last_line(results))
    if counted is None:
        return Reply("There is nothing to count here.")
    return Reply(f"The project has {counted[1]} lines and {counted[2]} words.")


def _todo(prompt: Prompt) -> Reply:
    """Writes a list that is refused (an item twice), then the right one; then works."""
    if prompt.step <= 2:
        items = ("Search the texts", "Search the texts" if prompt.step == 1 else "Search the code")
        return Reply("", [Call("todo_write", {"todos": [{"content": c, "status": "in_progress"} for c in items]})])
    results = _results(prompt, "shell")
    if not results:
        return _work(prompt, SEARCH)
    found = re.findall(r"^([^:\n]+):\d+:.*TODO:? *(.*)$", results[-1], re.MULTILINE)
    if not found:
        return Reply("Nothing is left to do.")
    return Reply(f"{len(found)} left to do: " + "; ".join(f"{what.strip()} ({where})" for where, what in found) + ".")


def _check(prompt: Prompt) -> Reply:
    results = _results(prompt, "shell")
    if not results:
        return _work(prompt, CHECK)
    if "timed out" in results[-1]:
        return Reply(NO_END)
    passed = results[-1].startswith("Exit code: 0\n")
    return Reply(_last_line(results) if passed else f"The check does not pass: {_last_line(results)}")


CHILDREN: Mapping[str, Callable[[Prompt], Reply]] = MappingProxyType({"words": _words, "todos": _todo, "check": _check})


def _work(prompt: Prompt, command: str) -> Reply:
    calls = _shell(prompt, command)
    return Reply("", calls) if calls else Reply(NO_SHELL)


def _shell(prompt: Prompt, command: str) -> list[Call]:
    """One call of the shell, or none where there is no shell."""
    there = any(tool.name == "shell" for tool in prompt.tools)
    return [Call("shell", {"command": command, "timeout_s": LIMIT_S})] if there else []


# -- what was heard ----------------------------------------------------------------------------------------------------


def _results(prompt: Prompt, tool: str) -> list[str]:
    return [m.text for m in prompt.messages if isinstance(m, Result) and m.name == tool]


def _last_line(results: Sequence[str]) -> str:
    lines = [line for line in results[-1].splitlines() if line.strip()] if results else []
    return lines[-1] if lines else ""


def _mail(prompt: Prompt, name: str) -> str:
    """What came from that agent: a line that says how it ended, then its last words."""
    mails = (m.text for m in prompt.messages if isinstance(m, User) and m.source.endswith(f"/{name}"))
    return next(mails, "")


def _said(prompt: Prompt, name: str) -> str:
    return _mail(prompt, name).partition("\n")[2]


def _interrupted(prompt: Prompt) -> bool:
    return "was interrupted" in _mail(prompt, "check").partition("\n")[0]


SCRIPTS: Mapping[str, Callable[[Prompt], Reply]] = MappingProxyType({"demo": _demo})
