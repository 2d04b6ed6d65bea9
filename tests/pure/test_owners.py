"""Whether a session may be taken from its owner: by the lease, by the clock, and by what the machine shows."""

import os
import subprocess
import sys

import pytest

from callboard.runtime.stores.owners import (
    About,
    Holder,
    Seen,
    held,
    may_take,
    new_owner,
    process,
    read_about,
    this_program,
    written,
)

HERE = About("here", "boot-1", "pid:[1]", 10, "500", 10_000)
OTHER = About("here", "boot-1", "pid:[1]", 20, "700", 10_000)
NOW_MS = 1_000_000


def alive(pid):
    """The other program runs."""
    return Seen("S", "700")


@pytest.mark.parametrize(
    ("lease_ms", "expected"),
    [
        (None, True),  # not on the list of owners
        (NOW_MS + 1, False),
        (NOW_MS + 10_000, False),
        (NOW_MS, True),
        (NOW_MS - 1, True),
        (0, True),
        (-(2**63), True),
        (NOW_MS + 10_001, True),  # the clock was set back
        (2**63 - 1, True),
    ],
)
def test_a_lease_decides(lease_ms, expected):
    """An owner that is not known to be dead holds for its lease, and no longer than that is."""
    assert expected == may_take(Holder(lease_ms, OTHER), HERE, NOW_MS, alive)
    elsewhere = About("there", "boot-2", "pid:[1]", 20, "700", 10_000)
    assert expected == may_take(Holder(lease_ms, elsewhere), HERE, NOW_MS, lambda pid: None)


@pytest.mark.parametrize(
    ("about", "seen", "expected"),
    [
        (OTHER, Seen("S", "700"), False),
        (OTHER, Seen("R", "700"), False),
        (OTHER, Seen("T", "700"), False),  # stopped: it may go on at any moment
        (OTHER, None, True),
        (OTHER, Seen("Z", "700"), True),
        (OTHER, Seen("X", "700"), True),
        (OTHER, Seen("S", "701"), True),  # its number means somebody else now
        (OTHER, Seen(), False),  # hidden from us
        (About("here", "boot-0", "pid:[1]", 20, "700"), None, False),  # before the machine started, or another one
        (About("here", "boot-1", "pid:[2]", 20, "700"), None, False),  # another container
        (About("here", "", "", 20, "700"), None, False),  # it did not say
        (About(), None, False),
    ],
)
def test_a_dead_program_of_this_machine_is_seen(about, seen, expected):
    """Only a process of this machine and this space can be seen to be dead, while its lease lasts."""
    holder = Holder(NOW_MS + about.length_ms, about)
    assert expected == may_take(holder, HERE, NOW_MS, lambda pid: seen)


def test_a_machine_that_says_nothing_waits_for_the_lease():
    """Where neither program knows its machine they are not taken for neighbours."""
    nobody = About("", "", "", 20, "")
    assert not may_take(Holder(NOW_MS + 5, nobody), About(), NOW_MS, lambda pid: None)


@pytest.mark.parametrize("text", [None, "", "{", "[]", "7", '{"pid":"x"}', '{"pid":1e999}', "{}" * 9, "\x00"])
def test_what_cannot_be_read_is_about_nobody(text):
    """Damage in the list of owners makes nobody dead."""
    assert About() == read_about(text)


def test_what_is_written_is_read():
    """What an owner says of itself comes back equal, with fields of newer versions left out."""
    assert OTHER == read_about(written(OTHER))
    assert About("h") == read_about('{"host":"h","shoe_size":44}')


def test_the_refusal_says_who_and_how_long():
    """The sentence names the session, the process, its machine and the time left, and cuts what is too long."""
    assert (
        "session 's' is held by another program (process 20 on here) until that closes it, or for 7 s more if it is "
        "not heard of: go on there, or try again then." == str(held("s", Holder(NOW_MS + 7_000, OTHER), NOW_MS))
    )
    long = held("s", Holder(None, About("h" * 10_000)), NOW_MS)
    assert len(str(long)) < 300


def test_this_program_is_seen_alive():
    """A process finds itself by what it says of itself."""
    here = this_program(2.5)
    assert (os.getpid(), 2_500) == (here.pid, here.length_ms)
    assert not may_take(Holder(NOW_MS + 1, here), here, NOW_MS, process)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere others wait for the lease")
def test_a_process_that_ended_is_not_seen():
    """A number without a process is nobody, as is one whose process has ended and is not yet collected."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert other.stdin is not None
        seen = process(other.pid)
        assert seen is not None
        assert seen.started
        other.stdin.close()
        while (seen := process(other.pid)) is not None and seen.state != "Z":
            pass
        assert seen == Seen("Z", seen.started if seen else "")
    assert process(other.pid) is None


@pytest.mark.parametrize("pid", [0, -1, -(2**40), 2**31, 2**80])
def test_no_process_has_such_a_number(pid):
    """A number that can be nobody's is neither asked for nor taken for a dead process."""
    assert Seen() == process(pid)


def test_owners_are_told_apart():
    """No two openings of a store have the same id."""
    assert 1_000 == len({new_owner() for _ in range(1_000)})
