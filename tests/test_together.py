"""The parts in which all tests run."""

from pathlib import Path

from .together import TESTS, main, parts


def test_every_test_is_in_one_part():
    """No folder and no file of tests is left out, and none runs twice."""
    names = [Path(name) for part in parts() for name in part]
    files = [file for name in names for file in ([name] if name.is_file() else name.rglob("test_*.py"))]
    assert sorted(TESTS.rglob("test_*.py")) == sorted(files)
    assert all(parts())


def test_arguments_are_for_pytest(capfd):
    """With arguments there is one process, and the exit code is its own."""
    assert 4 == main(["no/such/test.py"])
    assert "file or directory not found" in capfd.readouterr().err
    assert 0 == main(["--version"])
