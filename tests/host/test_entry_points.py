"""Plugins of installed packages: the example as a package of its own, and packages that are broken."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "own_plugin.py"
PLUGIN_LINES_MAX = 40
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index")
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "beekeeping"
version = "1.0"

[project.entry-points."callboard.plugins"]
lessons = "beekeeping:LESSONS_PLUGIN"

[tool.hatch.build.targets.wheel]
only-include = ["beekeeping.py"]
"""
# Nothing here names the plugin: that it is installed is enough.
PROGRAM = """\
import asyncio

from callboard.actors import Call, Reply, UsageError
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime


async def main():
    model = ScriptedModel([Reply("", [Call("learn", {"lesson": "Bees dislike smoke."})]), Reply("Noted.")])
    async with open_runtime(model=model) as rt:
        session = await rt.create()
        ended = await session.run("Remember: bees dislike smoke.")
        await session.run("Go on.")
        offered = [spec.name for spec in model.prompts[0].tools]
        print("learn" in offered, [(r.tool, r.receipt) for r in ended.receipts], session.state()["lessons"])
        print(model.prompts[-1].messages[-1].text)


try:
    asyncio.run(main())
except UsageError as error:
    print(error)
"""


def ran(*paths: Path, program: str = PROGRAM) -> tuple[int, str, str]:
    """The program with these folders on its path: exit code, output, errors."""
    path = os.pathsep.join(map(str, (ROOT / ".dev", *paths)))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def package(folder: Path, name: str, code: str, *points: str) -> Path:
    """An installed package as pip leaves it: a module, and metadata with its entry points."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    lines = "\n".join(("[callboard.plugins]", *points))
    (info / "entry_points.txt").write_text(lines + "\n", encoding="utf-8")
    return folder


def test_the_example_is_short():
    """A plugin with an event, a fold, a tool and a hook of its own takes at most forty lines."""
    plugin = EXAMPLE.read_text(encoding="utf-8").partition("# A package")[0]
    assert len(plugin.splitlines()) <= PLUGIN_LINES_MAX
    for part in ("(Event, frozen=True)", "Projection[", "@tool(", "before_step=", "LESSONS_PLUGIN = Plugin("):
        assert part in plugin


@pytest.mark.limit_s(120)
def test_an_installed_package_brings_its_plugin(tmp_path):
    """Once pip has installed the example as a package, every runtime has its tool, its fold and its note."""
    project, place = tmp_path / "project", tmp_path / "place"
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (project / "beekeeping.py").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run(
        (*PIP, "--no-build-isolation", "--target", place, project),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    said = "True [('learn', 'completed')] ('Bees dislike smoke.',)\nKeep in mind: Bees dislike smoke.\n"
    assert (0, said, "") == ran(place)


NO_PLUGIN = "the plugin 'lessons' of the installed package 'beekeeping'"
BROKEN = f"{NO_PLUGIN} cannot be loaded"
REPAIR = "repair the package or uninstall it."


@pytest.mark.parametrize(
    ("code", "value", "expected"),
    [
        ("import no_such_module", "P", f"{BROKEN} (ModuleNotFoundError: No module named 'no_such_module'): {REPAIR}"),
        ("x = 1", "P", f"{BROKEN} (AttributeError: module 'beekeeping' has no attribute 'P'): {REPAIR}"),
        ("raise RuntimeError('odd\\x1b[2J\\n' * 500)", "P", None),
        ("def P(:", "P", None),
        (
            "P = 'no plugin'",
            "P",
            f"{NO_PLUGIN} must be a Plugin value, and 'beekeeping:P' is 'no plugin': {REPAIR}",
        ),
    ],
    ids=["import", "attribute", "raises", "syntax", "type"],
)
def test_a_broken_package_is_named(tmp_path, code, value, expected):
    """A package whose plugin cannot be had is named in one sentence, and no traceback or control character is shown."""
    code_, out, err = ran(package(tmp_path, "beekeeping", code, f"lessons = beekeeping:{value}"))
    assert (0, "") == (code_, err)
    if expected is not None:
        assert expected + "\n" == out
    assert out.startswith(NO_PLUGIN)
    assert out.endswith(REPAIR + "\n")
    assert len(out) < 700
    assert out.removesuffix("\n").isprintable()


def test_two_packages_with_one_plugin_name_are_refused(tmp_path):
    """Two installed packages whose plugins have the same name are a clear error, not a silent choice."""
    code = EXAMPLE.read_text(encoding="utf-8")
    for name in ("beekeeping", "apiary"):
        package(tmp_path / name, name, code, f"lessons = {name}:LESSONS_PLUGIN")
    expected = "two plugins are named 'lessons': rename or remove one.\n"
    assert (0, expected, "") == ran(tmp_path / "beekeeping", tmp_path / "apiary")


def test_the_command_line_says_it_in_one_line(tmp_path):
    """`callboard run` with a broken package installed ends with code 2 and the same sentence."""
    place = package(tmp_path, "beekeeping", "raise ValueError('odd')", "lessons = beekeeping:P")
    program = (
        "import sys\nfrom callboard.runtime.doors.cli import main\n"
        "sys.argv = ['callboard', 'run', 'hi', '--model', 'scripted:demo', '--store', 'memory']\nsys.exit(main())"
    )
    code, out, err = ran(place, program=program)
    assert (2, "") == (code, out)
    assert f"{BROKEN} (ValueError: odd): {REPAIR}" in err
    assert "Traceback" not in err
    assert 1 == len(err.splitlines())
