"""code: a model's Python calls tools through the runtime, within limits, and leaves nothing; real processes."""

import asyncio
import os
import sys
import time
from typing import Any

import pytest
import trio

from callboard.actors import Block, FatalToolError, Hook, View, tool
from callboard.plugins.code import code_plugin
from callboard.plugins.plan import plan_plugin

from .coded import grep, left, ran, spoken
from .commanded import ALLOWANCE_S, alive, gone, mark

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tests look into /proc")


def run(source: str, **options: Any) -> Any:
    """One program, to its end."""
    return asyncio.run(ran(source, **options))


def test_code_calls_tools_and_prints():
    """Calls wait for their text, or are begun and asked later in any order; the model reads what was printed."""
    one = run(
        "print(tools.grep(pattern='a'))\n"
        "begun = [tools.grep.start(pattern=str(n)) for n in range(200)]\n"
        "print([one.result() for one in reversed(begun)][0], tools['grep'](pattern='b'), begun[0].result())"
    )
    assert ("completed", "found a\nfound 199 found b found 0\n") == (one.receipt, one.printed)
    assert (202, {"completed"}, 203) == (len(one.inner), {r.receipt for r in one.inner}, one.ended.tool_calls)
    assert [] == left(one.folder)


def test_errors_of_tools_are_raised_in_the_code():
    """A tool that fails, is unknown, blocked or not for code raises ToolError with its text."""
    block = Hook("h", before_tool=lambda call: Block("never") if call.cell and call.arguments == {"x": 1} else None)
    calls = ("grep(pattern='bad')", "grep()", "grep(x=1)", "nowhere()", "code(source='')", "update_plan(plan=[])")
    source = "\n".join(
        f"try: tools.{call}\nexcept ToolError as error: print(str(error).splitlines()[0])" for call in calls
    )
    assert [
        "ValueError: bad pattern",
        "failed to parse function arguments: Object missing required field `pattern`",
        "Tool call blocked by PreToolUse hook: never. Tool: grep",
        *(f"unsupported call: {name}" for name in ("nowhere", "code", "update_plan")),
    ] == run(source, hooks=[block]).printed.splitlines()


def test_control_tool_in_code():
    """`update_plan` can be offered inside code, where its value is an empty object."""
    source = "print(tools.update_plan(plan=[{'step': 'a', 'status': 'pending'}]))"
    one = run(source, plugins=(plan_plugin(exposure="direct"),))
    assert ("{}\n", ["Plan updated"]) == (one.printed, [returned.text for returned in one.inner])


def test_errors_of_the_code_are_told_with_their_line():
    """An error fails the call; its traceback has the lines of the source and none of ours."""
    one = run("def f():\n    return 1 / 0\nprint('before')\nf()")
    assert (one.receipt, "Exit code: 1") == ("failed", one.text.splitlines()[0])
    assert "return 1 / 0" in one.printed
    assert "ZeroDivisionError: division by zero" == one.printed.splitlines()[-1]
    assert "runner.py" not in one.text


@pytest.mark.parametrize(
    ("source", "receipt", "status"),
    [
        ("raise SystemExit", "completed", "Wall time"),
        ("raise SystemExit(3)", "failed", "Exit code: 3"),
        ("raise SystemExit('bye')", "failed", "Exit code: 1"),
        ("if:", "failed", "Exit code: 1"),
        (
            "import threading; threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()",
            "completed",
            "Wall",
        ),
        ("os.kill(os.getpid(), 9)", "failed", "Exit code: 137 (killed by SIGKILL)"),
        ("os.kill(os.getppid(), 9)", "failed", "the command's keeper ended before the command did"),
    ],
)
def test_every_end_is_named(source, receipt, status):
    """Exits, mistakes, threads left behind, signals: each ends the call at once and says how."""
    one = run(source)
    assert (one.receipt, True) == (receipt, one.text.startswith(status))


# -- limits


LIMITS = (
    ("x = [0] * 10**9", "Exit code: 1", "MemoryError"),
    ("x = []\nwhile True: x.append(bytes(10**6))", "Exit code: 1", "MemoryError"),
    ("while True: pass", "The code used more than 1 seconds of processor time and was ended.", ""),
    ("while True: print('y' * 1000)", "The code printed more than 100,000 bytes and was ended.", "y"),
    ("open('big', 'wb').write(bytes(2_000_000))", "Exit code: 1", "OSError: [Errno 27] File too large"),
    ("files = [open('/dev/null') for _ in range(1000)]", "Exit code: 1", "OSError: [Errno 24] Too many open files"),
    ("os.fork()", "Exit code: 1", "PermissionError: code starts no processes: call a tool that does"),
    ("import subprocess\nsubprocess.run(['true'])", "Exit code: 1", "PermissionError: code starts no processes"),
    ("os.system('true')", "Exit code: 1", "PermissionError: code starts no processes"),
    ("import ctypes", "Exit code: 1", "PermissionError: code starts no processes"),
    ("os.write(4, b'garbage that is no frame')", "The code was ended, because it wrote something else than calls", ""),
    (
        "os.write(4, b'\\0\\0\\0\\2[]')\nimport time\ntime.sleep(9)",
        "The code was ended, because it wrote something",
        "",
    ),
)
TIGHT = code_plugin(
    seconds_max=40, cpu_seconds_max=1, memory_bytes_max=128 << 20, file_bytes_max=1_000_000, print_bytes_max=100_000
)
BRIEF = code_plugin(seconds_max=2)


@pytest.mark.parametrize(("source", "status", "last"), LIMITS, ids=[row[0][:30] for row in LIMITS])
def test_limits_end_the_code_and_say_so(source, status, last):
    """Memory, processor, time, output, files, processes and nonsense are bounded; the model reads which it was."""
    begun_s = time.monotonic()
    one = run(source, plugin=TIGHT)
    assert ("failed", status) == (one.receipt, one.text.splitlines()[0][: len(status)])
    assert one.printed.splitlines()[-1].startswith(last) if last else True
    assert ([], True) == (left(one.folder), time.monotonic() - begun_s < 20)


def test_time_is_bounded_and_takes_open_calls_along():
    """At its time the program is ended, and a call that it waits for is interrupted with it."""

    @tool(effect="none")
    async def wait() -> str:
        """Waits."""
        await trio.sleep(60)
        return "never"

    one = run("print('a')\ntools.wait()", plugin=BRIEF, tools=[wait])
    assert ("The code took longer than 2 seconds and was ended.", "a\n") == (one.text.splitlines()[0], one.printed)
    assert ["interrupted"] == [returned.receipt for returned in one.inner]
    assert ("completed", "failed") == (one.ended.reason, one.receipt)


def test_processes_that_get_past_it_die_with_it():
    """A program that starts processes all the same, detached and forking on, leaves none when its time is up."""
    seconds = mark()
    one = run(
        "import subprocess, sys, time\n"
        "sys.audit = lambda *_: None\n"
        f"line = 'sleep {seconds} & setsid sleep {seconds} & (setsid sleep {seconds} &) ; wait'\n"
        "for _ in range(20): subprocess.Popen(line, shell=True)\n"
        f"print(len(os.popen('pgrep -f -x \"sleep {seconds}\"').read().split()) > 20)\n"
        "time.sleep(60)",
        plugin=BRIEF,
    )
    assert ("The code took longer than 2 seconds and was ended.", "True\n") == (one.text.splitlines()[0], one.printed)
    assert gone(seconds)


def test_nothing_of_ours_is_inherited(monkeypatch):
    """The program sees neither our variables nor our open files, and has a folder of its own to itself."""
    monkeypatch.setenv("API_KEY", "secret")
    kept = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(kept, True)  # noqa: FBT003 - its only form
    one = run(
        "print('API_KEY' in os.environ, sorted({'HOME', 'TMPDIR', 'PATH'} & set(os.environ)))\n"
        "print(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:5], os.listdir('.'))\n"
        "import sys; print(sys.flags.isolated, sys.flags.no_site, os.getsid(0) == os.getpid())\n"
        "os.makedirs('a/b'); open('a/b/c', 'w').write('x'); os.symlink('/', 'a/root')"
    )
    os.close(kept)
    lines = one.printed.splitlines()
    assert ["False ['HOME', 'TMPDIR']", "[0, 1, 2, 3, 4] []", "1 1 True"] == lines
    assert [] == left(one.folder)


@pytest.mark.parametrize(
    "source",
    [
        "os.close(4)\nprint('on')",
        "os.close(3)\nos.close(4)\nprint('on')",
        (
            'body = b\'{"id":1,"name":"grep","arguments":{"pattern":"x"}}\'\n'
            "for _ in range(900): os.write(4, len(body).to_bytes(4, 'big') + body)\nprint('on')"
        ),
        "os.write(4, b'\\0\\0\\1')\nprint('on')",
    ],
)
def test_odd_lines_do_no_harm(source):
    """A program may close its line, never read an answer, or stop inside a frame; it runs to its end."""
    one = run(source)
    assert ("completed", "on\n") == (one.receipt, one.printed)


def test_calls_of_one_program_are_bounded():
    """After a thousand calls the next one is refused in the code."""
    one = run(
        "for n in range(1000): tools.grep(pattern='x')\ntry: tools.grep(pattern='y')\nexcept ToolError as e: print(e)"
    )
    assert "this call has made 1,000 calls of its own, the most it may make.\n" == one.printed


# -- interrupts


async def interrupted(source: str, said: str, **options: Any) -> tuple[Any, float]:
    """A program that is interrupted once `said` was heard, and how long that took."""
    took_s = 0.0

    async def meanwhile(session: Any) -> None:
        nonlocal took_s
        await spoken(session, said)
        begun_s = time.monotonic()
        await session.interrupt()
        await session.wait(1)
        took_s = time.monotonic() - begun_s

    one = await ran(source, meanwhile=meanwhile, **options)
    return one, took_s


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print('ready')\nwhile True: pass", "ready"),
        ("import signal\nfor n in (1, 2, 15): signal.signal(n, 1)\nprint('ready')\nwhile True: pass", "ready"),
        ("try:\n    print('ready')\n    tools.wait()\nexcept BaseException:\n    tools.wait()", "begun"),
    ],
)
def test_interrupt_ends_the_program_and_its_calls_inside_the_window(source, said):
    """The process is gone, open calls have their receipts, and what was printed is kept and marked partial."""

    @tool(effect="none")
    async def wait(view: View) -> str:
        """Waits."""
        view.output("begun")
        await trio.sleep(60)
        return "never"

    one, took_s = asyncio.run(interrupted(source, said, tools=[grep, wait]))
    assert ("aborted", "interrupted") == (one.ended.reason, one.receipt)
    assert ["aborted by user", "Partial output:", "ready"] == one.text.splitlines()[1:]
    assert ["interrupted"] * len(one.inner) == [r.receipt for r in one.inner]
    assert (True, True) == (took_s < 0.1 + ALLOWANCE_S, gone(one.folder.rpartition("/")[2]))


def test_fatal_error_of_a_tool_ends_program_and_turn():
    """A tool that ends the turn from inside code ends the program too."""

    @tool(effect="none")
    async def fatal(view: View) -> str:
        """Ends the turn."""
        raise FatalToolError("over")

    one = run("import time\ntools.fatal()\ntime.sleep(60)", tools=[fatal])
    assert ("over", ["failed"], "failed") == (one.ended.error, [r.receipt for r in one.inner], one.receipt)
    assert [] == alive("runner.py")
