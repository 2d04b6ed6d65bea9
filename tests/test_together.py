"""The parts in which all tests run."""

from pathlib import Path

from .together import TESTS, UNCACHED, main, parts, worst


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


def test_modules_are_compiled_once(monkeypatch, tmp_path):
    """What tests start keeps compiled modules, whatever the environment says of them."""
    test = tmp_path / "test_kept.py"
    test.write_text("import sys\n\n\ndef test_kept():\n    assert not sys.dont_write_bytecode\n", encoding="utf-8")
    monkeypatch.setenv(UNCACHED, "1")
    assert 0 == main(["-q", str(test)])


def test_part_that_a_signal_ended_is_a_failure():
    """Whatever the other parts say, a killed one makes the run fail, with the exit code of a shell."""
    assert [0, 1, 137, 143] == [worst(codes) for codes in ((0, 0, 0), (0, 1, 0), (-9, 0, 0), (0, -15, 1))]
