"""shell: commands in the user's shell, foreground and background; the tools `shell`, `shell_output`, `shell_kill`."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import attrs
import msgspec
import trio

from callboard.actors.errors import ToolError
from callboard.actors.events import Cause
from callboard.actors.plugin import Failed, Interrupted, Partial, Plugin, View
from callboard.actors.receipts import aborted_by
from callboard.actors.tool import OUTPUT_MAX_BYTES, Tool, tool
from callboard.plugins.background import Backgrounds
from callboard.plugins.commands import TERM_GRACE_S, Command, first
from callboard.plugins.excerpt import Excerpt

SHELL_DESCRIPTION = """\
Run a command in the user's shell and read what it prints; stdout and stderr come as one text, in order.
Standard input is empty, and there is no terminal. When the command ends, everything it started is ended too; start \
what must keep running (a server, a watcher) with `background`: it answers with an id for shell_output and shell_kill.
Long output is cut in the middle. An exit code other than 0 is not an error of this tool.\
"""
OUTPUT_DESCRIPTION = """\
Read what a background command printed since the last look, and whether it still runs.\
"""
KILL_DESCRIPTION = "End a background command and everything it started, and read what it printed since the last look."
COMMAND_FIELD = "The command line, as the shell reads it."
CWD_FIELD = "The folder to run it in; by default the session's working directory, from which a relative path counts."
TIMEOUT_FIELD = (
    "Seconds after which the command is ended; 120 by default, at most 3600. Background commands have no limit."
)
BACKGROUND_FIELD = "Answer at once with an id and let the command run on, at longest until the session ends."
ID_FIELD = "The id that shell answered with, such as shell-1."

ENDED = "{status}\nWall time: {seconds:.1f} seconds\nOutput:\n{output}"
TIMED_OUT = "command timed out after {limit:g} seconds\nWall time: {seconds:.1f} seconds\nPartial output:\n{output}"
ABORTED = "Wall time: {seconds:.1f} seconds\n{why}"
PARTIAL_OUTPUT = "\nPartial output:\n{output}"
STARTED = "Started {id} in the background: read it with shell_output, end it with shell_kill."
NUL = "the command has a NUL character at index {at}, which no shell can take: remove it."
NOT_UTF8 = "the command has an unpaired surrogate at index {at}: send valid text."
EMPTY = "the command is empty: write what to run."
NO_FOLDER = "cwd {cwd!r} is {what}: give an existing folder."
NO_SHELL = "the shell {shell!r} is not an absolute path of a program: name another with shell_plugin(shell=...)."
TIMEOUT_S = 120.0
TIMEOUT_MAX_S = 3600.0

WINDOW_KILL_RATIO = 0.6  # of the abort window: KILL
WINDOW_END_RATIO = 0.9  # of the abort window: nothing is waited for any more
SHOWN_S_MIN = 0.1  # so that nothing seems to have taken no time; what other calls say too
HEADER_MAX_BYTES = 512  # what stands around an output; with it a result fits `output_max`
SHELLS = ("bash", "zsh", "sh")
PLAIN_SHELL = "/bin/sh"

ENVIRONMENT = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_*"),
    *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "JAVA_HOME", "GOPATH", "CARGO_HOME", "RUSTUP_HOME"),
)
"""What commands get of the runtime's own variables; `LC_*` stands for all that begin with `LC_`."""

Timeout = Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_MAX_S, description=TIMEOUT_FIELD)]
Id = Annotated[str, msgspec.Meta(description=ID_FIELD)]


class Shell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `shell` takes."""

    command: Annotated[str, msgspec.Meta(description=COMMAND_FIELD)]
    cwd: Annotated[str | None, msgspec.Meta(description=CWD_FIELD)] = None
    timeout_s: Timeout = TIMEOUT_S
    background: Annotated[bool, msgspec.Meta(description=BACKGROUND_FIELD)] = False


class ShellId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `shell_output` and `shell_kill` take."""

    id: Id


@attrs.frozen
class Setup:
    """How commands are started; `shell` None is the user's, `python` None the runtime's own."""

    shell: str | None = None
    environment: Sequence[str] = ENVIRONMENT
    variables: Mapping[str, str] = attrs.field(factory=dict)
    python: str | None = None
    output_max: int = OUTPUT_MAX_BYTES

    def excerpt(self) -> Excerpt:
        """An empty place for output that leaves room for what is said around it."""
        return Excerpt(max(HEADER_MAX_BYTES, self.output_max - HEADER_MAX_BYTES))

    def start(self, arguments: Shell, view: View) -> Command:
        """(Trio) Start the command; a `ToolError` says why it cannot be."""
        return self.begin(arguments.command, find_folder(view.folder, arguments.cwd))

    def begin(self, command: str, folder: str) -> Command:
        """(Trio) The same for a command line in a folder that is there.

        No login shell: an interrupt would kill the user's profile half way, with whatever it had locked.
        """
        check_command(command)
        shell = self.shell or users_shell(os.environ)
        if not Path(shell).is_absolute() or not os.access(shell, os.X_OK):
            raise ToolError(NO_SHELL.format(shell=shell))
        given = {**allowed(os.environ, self.environment), **self.variables, "PWD": folder}
        return Command.start((shell, "-c", command), folder, given, self.python)


def check_command(command: str) -> None:
    """Refuse what no shell can be given."""
    if not command.strip():
        raise ToolError(EMPTY)
    if "\0" in command:
        raise ToolError(NUL.format(at=command.index("\0")))
    try:
        command.encode()
    except UnicodeEncodeError as error:
        raise ToolError(NOT_UTF8.format(at=error.start)) from None


def find_folder(folder: str, cwd: str | None) -> str:
    """The absolute folder to run in."""
    shown = folder if cwd is None else cwd
    if "\0" in shown:
        raise ToolError(NO_FOLDER.format(cwd=shown, what="no path"))
    found = Path(folder).absolute() / shown
    if not found.is_dir():
        raise ToolError(NO_FOLDER.format(cwd=shown, what="not a folder" if found.exists() else "not there"))
    return str(found)


def users_shell(environ: Mapping[str, str]) -> str:
    """$SHELL if it is a bash, zsh or sh that is there, else /bin/sh."""
    shell = Path(environ.get("SHELL", ""))
    known = shell.is_absolute() and shell.name in SHELLS
    return str(shell) if known and os.access(shell, os.X_OK) else PLAIN_SHELL


def allowed(environ: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """The variables whose names are allowed; a C locale is made to speak UTF-8, which is what outputs are read as."""
    exact = {name for name in names if not name.endswith("*")}
    beginnings = tuple(name[:-1] for name in names if name.endswith("*"))
    given = {name: value for name, value in environ.items() if name in exact or name.startswith(beginnings)}
    if not {"LC_ALL", "LC_CTYPE", "LANG"} & set(given):
        given["LC_CTYPE"] = "C.UTF-8"
    return given


async def foreground(command: Command, view: View, output: Excerpt, timeout_s: float) -> str | Failed | Partial:
    """(Trio) See a command to its end, its timeout or an interrupt; none of what it started is left afterwards."""
    begun_s = trio.current_time()

    def hear(text: str) -> None:
        output.add(text)
        view.output(text)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(command.run, hear)
        await first(command.ended.wait, view.interrupted.wait, until_s=begun_s + timeout_s)
        by_itself, interrupted = command.ended.is_set(), view.interrupted.is_set()
        if not by_itself:
            await end(command, view.interrupted, view.window_s)
        nursery.cancel_scope.cancel()
    seconds = trio.current_time() - begun_s
    if by_itself:
        return _ended(command, seconds, output)
    if interrupted:
        return aborted(seconds, output, view.interrupted.cause)
    return Failed(TIMED_OUT.format(limit=timeout_s, seconds=seconds, output=output.text()))


async def end(command: Command, interrupted: Interrupted, window_s: float) -> None:
    """TERM, and KILL after the grace; an interrupt that came, or comes meanwhile, leaves only its window for both."""
    command.terminate()
    if not interrupted.is_set():
        await first(command.ended.wait, interrupted.wait, until_s=trio.current_time() + TERM_GRACE_S)
    if interrupted.is_set():
        seen_s = trio.current_time()
        command.give_up_at = seen_s + WINDOW_END_RATIO * window_s
        await first(command.ended.wait, until_s=seen_s + WINDOW_KILL_RATIO * window_s)
    command.kill()
    await first(command.ended.wait, until_s=min(command.give_up_at, trio.current_time() + TERM_GRACE_S))


def aborted(seconds: float, output: Excerpt, cause: Cause | None) -> Partial:
    """What the model reads of a command that an interrupt ended."""
    text = ABORTED.format(seconds=max(SHOWN_S_MIN, seconds), why=aborted_by(cause or "interrupted"))
    return Partial(text + PARTIAL_OUTPUT.format(output=output.text()) if output.size else text)


def _ended(command: Command, seconds: float, output: Excerpt) -> str | Failed:
    ending = command.ending
    assert ending is not None
    if ending.error is not None:
        return Failed(f"{ending.error}\n{output.text()}".rstrip("\n"))
    return ENDED.format(status=ending, seconds=seconds, output=output.text())


async def _shell(setup: Setup, arguments: Shell, view: View) -> str | Failed | Partial:
    output = setup.excerpt()
    if view.interrupted.is_set():
        return aborted(0.0, output, view.interrupted.cause)
    if not arguments.background:
        return await foreground(setup.start(arguments, view), view, output, arguments.timeout_s)
    backgrounds = Backgrounds.of(view)
    backgrounds.check_room()
    one = backgrounds.add(setup.start(arguments, view), setup.excerpt)
    view.start_soon(one.run)
    return STARTED.format(id=one.name)


def _tools(setup: Setup) -> tuple[Tool, ...]:
    output_max = setup.output_max

    @tool(graceful=True, effect="once", output_max=output_max)
    async def shell(arguments: Shell, view: View) -> str | Failed | Partial:
        return await _shell(setup, arguments, view)

    @tool(runs_on="trio", effect="none", output_max=output_max)
    def shell_output(arguments: ShellId, view: View) -> str:
        return Backgrounds.of(view)[arguments.id].look()

    @tool(effect="idempotent", output_max=output_max)
    async def shell_kill(arguments: ShellId, view: View) -> str:
        one = Backgrounds.of(view)[arguments.id]
        await one.end()
        return one.look()

    texts = (SHELL_DESCRIPTION, OUTPUT_DESCRIPTION, KILL_DESCRIPTION)
    return tuple(
        attrs.evolve(one, description=text) for one, text in zip((shell, shell_output, shell_kill), texts, strict=True)
    )


def shell_plugin(
    *,
    shell: str | None = None,
    environment: Sequence[str] = ENVIRONMENT,
    variables: Mapping[str, str] | None = None,
    python: str | None = None,
    output_max: int = OUTPUT_MAX_BYTES,
) -> Plugin:
    """The shell plugin.

    `shell` is the path of a shell that knows `-c`; without it the user's. `environment` names the variables of the
    runtime that commands get (`LC_*`: all that begin so), `variables` come on top. `python` runs the keepers, by
    default the one that runs this. `output_max` bounds what the model reads of one result, in bytes.
    """
    setup = Setup(shell, tuple(environment), dict(variables or {}), python, output_max)
    return Plugin("shell", tools=_tools(setup))


SHELL = shell_plugin()
"""The plugin as it is by default."""
