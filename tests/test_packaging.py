"""What is built holds what the tree holds: a mapped layout can lose a package without any error."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("actors", "runtime", "plugins", "metrics")
NOT_SHIPPED = (".pyc", ".pyo", ".log", ".sqlite")


def files(folder: str) -> set[str]:
    """The files under a folder of the tree, relative to the root."""
    found = (p for p in (ROOT / folder).rglob("*") if p.is_file() and p.suffix not in NOT_SHIPPED)
    return {p.relative_to(ROOT).as_posix() for p in found}


def run(*command: str | Path) -> None:
    """Run a build step; its output is the failure's text."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the wheel, built with the hatchling that is installed."""
    to = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps")
    run(*pip, "--no-build-isolation", "--wheel-dir", to, ROOT)
    (built,) = to.glob("callboard-*.whl")
    return set(zipfile.ZipFile(built).namelist())


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the source archive, without its top folder."""
    to = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", to)
    (built,) = to.glob("callboard-*.tar.gz")
    with tarfile.open(built) as archive:
        return {m.name.split("/", 1)[1] for m in archive.getmembers() if m.isfile()}


@pytest.mark.limit_s(300)
def test_wheel_holds_the_packages_and_nothing_else(wheel):
    """Every file of the four packages is in the wheel under `callboard/`, with the root module, and no file more."""
    mapped = {f"callboard/{name}" for package in PACKAGES for name in files(package)}
    expected = mapped | {"callboard/__init__.py", "callboard/__main__.py", "callboard/py.typed"}
    assert sorted(expected) == sorted(n for n in wheel if ".dist-info/" not in n)


@pytest.mark.limit_s(300)
def test_wheel_is_typed_and_licensed(wheel):
    """The wheel says that each package is typed, names the command, and carries the license."""
    info = {n.split(".dist-info/", 1)[1] for n in wheel if ".dist-info/" in n}
    assert {f"callboard/{package}/py.typed" for package in PACKAGES} <= wheel
    assert {"licenses/LICENSE", "entry_points.txt"} <= info


@pytest.mark.limit_s(300)
def test_wheel_ships_what_operators_load(wheel):
    """The dashboard and the alert rules are in the wheel, beside the code whose metrics they ask for."""
    assert {f"callboard/metrics/dashboards/{name}" for name in ("alerts.yml", "callboard.json")} <= wheel


@pytest.mark.limit_s(300)
def test_sdist_holds_the_sources_tests_and_examples(sdist):
    """The source archive holds the packages, their tests and the examples, so that it can be tested by itself."""
    expected = {name for folder in (*PACKAGES, "tests", "examples") for name in files(folder)}
    expected |= {
        "pyproject.toml",
        "constraints.txt",
        "Makefile",
        "LICENSE",
        "CHANGELOG.md",
        ".dev/callboard/__init__.py",
        ".dev/callboard/__main__.py",
    }
    assert [] == sorted(expected - sdist)
