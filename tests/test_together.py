"""The two halves in which all tests run."""

from pathlib import Path

from .together import TESTS, halves, main


def test_every_test_is_in_one_half():
    """No folder and no file of tests is left out, and none runs twice."""
    virtual, real = (
        [file for name in names for file in ([Path(name)] if name.endswith(".py") else Path(name).rglob("test_*.py"))]
        for names in halves()
    )
    assert sorted(TESTS.rglob("test_*.py")) == sorted([*virtual, *real])


def test_arguments_are_for_pytest(capfd):
    """With arguments there is one process, and the exit code is its own."""
    assert 4 == main(["no/such/test.py"])
    assert "file or directory not found" in capfd.readouterr().err
    assert 0 == main(["--version"])
