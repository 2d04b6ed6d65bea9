"""code: a model's Python in a process of its own, which calls the other tools; the tool `code`."""

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import attrs
import msgspec
import trio

from callboard.actors.books import FOUND
from callboard.actors.catalogue import IN_CODE, exposed
from callboard.actors.errors import CallOver, ToolError
from callboard.actors.plugin import Failed, Partial, Plugin, View
from callboard.actors.tool import OUTPUT_MAX_BYTES, Tool, tool
from callboard.plugins.commands import PIECE_MAX_BYTES, Command, first
from callboard.plugins.excerpt import Excerpt
from callboard.plugins.frames import Asked, BadFrame, Unframer, framed
from callboard.plugins.search import first_line
from callboard.plugins.shell import HEADER_MAX_BYTES, WINDOW_END_RATIO, aborted, allowed

RUNNER = Path(__file__).with_name("runner.py")
TOOL_NAME = "code"

DESCRIPTION = """\
Run a Python program that calls tools, to work through many calls or long results without reading each: you read only \
what it prints.
It has the standard library, an empty folder of its own that is removed afterwards, and `tools`. A call such as \
`tools.NAME(argument=value)` waits and returns the text of the result; `begun = tools.NAME.start(argument=value)` goes \
on at once, and `begun.result()` waits for it, so that several run side by side. A tool that fails raises ToolError. \
Nothing stays from one program to the next, and it starts no processes itself.
{limits}
These tools can be called:
{tools}\
"""
LIMITS = "It may take {seconds:g} seconds, {cpu} of them of processor time, and {memory:,} MiB of memory."
SOURCE_FIELD = "The whole program."
NONE = "(none)"

ENDED = "Wall time: {seconds:.1f} seconds\nOutput:\n{output}"
FAILED = "{status}\nWall time: {seconds:.1f} seconds\nOutput:\n{output}"
TIMED_OUT = "The code took longer than {limit:g} seconds and was ended."
CPU_USED = "The code used more than {limit} seconds of processor time and was ended."
PRINTED = "The code printed more than {limit:,} bytes and was ended."
BROKEN = "The code was ended, because it wrote something else than calls to the tools' line: {why}."

SECONDS_MAX = 120.0  # wall clock, as a command of the shell has by default: calls may wait for slow tools
CPU_SECONDS_MAX = 30  # the program is glue between calls; a loop without end is caught here first
MEMORY_BYTES_MAX = 512 * 1024 * 1024  # of address space; Python begins at a tenth of it, results are 64 KiB each
FILE_BYTES_MAX = 16 * 1024 * 1024  # of one file in its folder, which may lie in memory (tmpfs)
PRINT_BYTES_MAX = 1024 * 1024  # sixteen times what the model reads; what prints more is a loop without end
FILES_MAX = 256  # open at once
CALLS_OPEN_MAX = 64  # twice what the runner begins without an answer; then it is not read until one is answered

ENVIRONMENT = ("LANG", "LANGUAGE", "LC_*", "TZ")
"""What code gets of the runtime's own variables: how texts and times are written, and nothing else."""

VALUES: Mapping[str, str] = MappingProxyType({"update_plan": "{}"})
"""What code reads of tools whose answer is for the model alone."""

TYPES: Mapping[str, str] = MappingProxyType(
    {
        "string": "str",
        "integer": "int",
        "number": "float",
        "boolean": "bool",
        "array": "list",
        "object": "dict",
        "null": "None",
    }
)


class Code(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `code` takes."""

    source: Annotated[str, msgspec.Meta(description=SOURCE_FIELD)]


@attrs.frozen
class Setup:
    """What one program may use; `python` None is the runtime's own."""

    seconds_max: float = SECONDS_MAX
    cpu_seconds_max: int = CPU_SECONDS_MAX
    memory_bytes_max: int = MEMORY_BYTES_MAX
    file_bytes_max: int = FILE_BYTES_MAX
    print_bytes_max: int = PRINT_BYTES_MAX
    python: str | None = None

    @property
    def limits(self) -> dict[str, int]:
        """What the runner asks of its system."""
        return {
            "RLIMIT_AS": self.memory_bytes_max,
            "RLIMIT_CPU": self.cpu_seconds_max,
            "RLIMIT_FSIZE": self.file_bytes_max,
            "RLIMIT_NOFILE": FILES_MAX,
            "RLIMIT_CORE": 0,
        }

    def describe(self, tools: Mapping[str, Tool]) -> str:
        """The description with the tools that can be called, by name, so that it is the same in every request."""
        names = sorted(callable_in_code(tools))
        shown = "\n".join(f"{signature(tools[name])}  # {first_line(tools[name])}" for name in names)
        memory = self.memory_bytes_max // (1024 * 1024)
        limits = LIMITS.format(seconds=self.seconds_max, cpu=self.cpu_seconds_max, memory=memory)
        return DESCRIPTION.format(limits=limits, tools=shown or NONE)


def callable_in_code(tools: Mapping[str, Tool], found: Sequence[str] = ()) -> frozenset[str]:
    """The names of the tools that code may call."""
    return frozenset(exposed(tools, IN_CODE, found)) - {TOOL_NAME}


def signature(one: Tool) -> str:
    """How code calls a tool."""
    parameters = one.spec.parameters
    required = parameters.get("required", ())
    shown = (
        f"{name}: {_kind(schema)}" + ("" if name in required else " = ...")
        for name, schema in parameters["properties"].items()
    )
    access = f"tools.{one.name}" if one.name.isidentifier() else f"tools[{one.name!r}]"
    return f"{access}({', '.join(shown)})"


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(repr(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_kind(part) for part in schema["anyOf"]))
    if schema.get("type") == "array" and isinstance(schema.get("items"), Mapping):
        return f"list[{_kind(schema['items'])}]"
    if schema.get("type") == "object" and schema.get("properties"):
        return f"dict({', '.join(f'{name}: {_kind(part)}' for name, part in schema['properties'].items())})"
    return TYPES.get(str(schema.get("type")), "Any")


class Run:
    """One program: its process, its output, and the calls that it makes."""

    def __init__(self, setup: Setup, view: View) -> None:
        self._setup, self._view = setup, view
        found = view[FOUND]
        self._allowed = callable_in_code(view.tools, found)
        self._output = Excerpt(OUTPUT_MAX_BYTES - HEADER_MAX_BYTES)
        self._flaw: str | None = None  # why it is ended before its time
        self._flawed = trio.Event()
        self._room = trio.Semaphore(CALLS_OPEN_MAX)
        self._turns = trio.Lock()  # one frame after the other

    async def to_its_end(self, source: str) -> str | Failed | Partial:
        """(Trio) Run it to its end, a limit or an interrupt; nothing of it is left afterwards."""
        setup, view, begun_s = self._setup, self._view, trio.current_time()
        with contextlib.ExitStack() as ours:
            command = self._start(ours)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(command.run, self._hear)
                nursery.start_soon(self._send, {"source": source, "limits": setup.limits})
                nursery.start_soon(self._serve, nursery)
                waits = (command.ended.wait, view.interrupted.wait, self._flawed.wait)
                await first(*waits, until_s=begun_s + setup.seconds_max)
                by_itself, interrupted = command.ended.is_set(), view.interrupted.is_set()
                command.kill()
                command.give_up_at = trio.current_time() + WINDOW_END_RATIO * view.window_s
                await first(command.ended.wait, until_s=command.give_up_at)
                nursery.cancel_scope.cancel()
        seconds = trio.current_time() - begun_s
        if interrupted and not by_itself:
            return aborted(seconds, self._output, view.interrupted.cause)
        flaw = self._flaw or (None if by_itself else TIMED_OUT.format(limit=setup.seconds_max))
        return self._told(command, flaw, seconds)

    def _start(self, ours: contextlib.ExitStack) -> Command:
        """The process, in a folder that its keeper removes."""
        with contextlib.ExitStack() as theirs:
            for_code, answers = os.pipe()
            theirs.callback(os.close, for_code)
            self._answers = trio.lowlevel.FdStream(answers)
            ours.callback(self._answers.close)
            calls, from_code = os.pipe()
            theirs.callback(os.close, from_code)
            self._calls = trio.lowlevel.FdStream(calls)
            ours.callback(self._calls.close)
            folder = tempfile.mkdtemp(prefix="callboard-code-")
            python = self._setup.python or sys.executable
            line = (python, "-I", "-S", "-u", "-X", "utf8", str(RUNNER))
            given = {**allowed(os.environ, ENVIRONMENT), "HOME": folder, "TMPDIR": folder}
            try:
                return Command.start(line, folder, given, python, more=(for_code, from_code), own=True)
            except BaseException:
                Path(folder).rmdir()
                raise

    def _told(self, command: Command, flaw: str | None, seconds: float) -> str | Failed:
        ending, output = command.ending, self._output.text()
        if flaw is None:
            assert ending is not None
            if ending.code == 0:
                return ENDED.format(seconds=seconds, output=output)
            over = ending.signal == signal.SIGXCPU
            flaw = CPU_USED.format(limit=self._setup.cpu_seconds_max) if over else str(ending)
        return Failed(FAILED.format(status=flaw, seconds=seconds, output=output))

    def _hear(self, text: str) -> None:
        self._output.add(text)
        self._view.output(text)
        if self._output.size > self._setup.print_bytes_max:
            self._end(PRINTED.format(limit=self._setup.print_bytes_max))

    def _end(self, flaw: str) -> None:
        self._flaw = self._flaw or flaw
        self._flawed.set()

    async def _serve(self, nursery: trio.Nursery) -> None:
        """Hear calls until the line ends; each is made beside the others, as its tool allows."""
        unframer = Unframer()
        try:
            while piece := await self._calls.receive_some(PIECE_MAX_BYTES):
                for asked in unframer.feed(piece):
                    await self._room.acquire()
                    nursery.start_soon(self._answer, asked)
        except BadFrame as error:
            self._end(BROKEN.format(why=error))

    async def _answer(self, asked: Asked) -> None:
        try:
            result = await self._view.use_tool(asked.name, asked.arguments, allowed=self._allowed)
        except CallOver:  # the turn is being aborted, and so is this program
            return
        except ToolError as error:  # one call too many
            text, failed = str(error), True
        else:
            failed = result.receipt != "completed"
            text = result.text if failed else VALUES.get(asked.name, result.text)
        finally:
            self._room.release()
        await self._send({"id": asked.id, "text": text, "failed": failed})

    async def _send(self, value: Any) -> None:
        try:
            async with self._turns:
                await self._answers.send_all(framed(value))
        except trio.BrokenResourceError:  # it closed its end, and will never know
            return


def _tool(setup: Setup) -> Tool:
    @tool(name=TOOL_NAME, graceful=True, exposure="direct_model_only", describe=setup.describe)
    async def code(arguments: Code, view: View) -> str | Failed | Partial:
        if view.interrupted.is_set():
            return aborted(0.0, Excerpt(OUTPUT_MAX_BYTES), view.interrupted.cause)
        return await Run(setup, view).to_its_end(arguments.source)

    return attrs.evolve(code, description=setup.describe({}))


def code_plugin(
    *,
    seconds_max: float = SECONDS_MAX,
    cpu_seconds_max: int = CPU_SECONDS_MAX,
    memory_bytes_max: int = MEMORY_BYTES_MAX,
    file_bytes_max: int = FILE_BYTES_MAX,
    print_bytes_max: int = PRINT_BYTES_MAX,
    python: str | None = None,
) -> Plugin:
    """The code plugin: a model's Python that calls tools.

    One program may take `seconds_max` seconds, `cpu_seconds_max` of processor time, `memory_bytes_max` of address
    space, `file_bytes_max` for each file it writes, and print `print_bytes_max`. `python` runs it and its keeper, by
    default the one that runs this. Its environment is an allow-list and its folder its own; it is no sandbox: what the
    runtime's user may read, it may read.
    """
    setup = Setup(seconds_max, cpu_seconds_max, memory_bytes_max, file_bytes_max, print_bytes_max, python)
    return Plugin(TOOL_NAME, tools=(_tool(setup),))


CODE = code_plugin()
"""The plugin as it is by default."""
