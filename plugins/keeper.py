"""The keeper: a program of its own that runs one command and sees to it that nothing of the command outlives its end.

    python -I -S keeper.py MORE INPUT OWN FOLDER PROGRAM ARGUMENT...

Standard input is the life line: a stream socket to whoever wants the command. Standard output and error are the
command's, and so are the MORE descriptors from 3 on. INPUT is the descriptor that becomes the command's standard input,
or `-` for none. OWN is 1 when the folder was made for the command and goes with it.

    heard   T                  TERM to every descendant
            end of file        KILL to every descendant, until none is left; also when the other end died
    said    started PID        the command's process id, which is its session's and its group's too
            exited CODE LEFT   it exited by itself; LEFT counts descendants that could not be killed
            killed SIGNAL LEFT it died of a signal, or was killed before it began
            refused ERRNO 0    it never began

However the command ends, its descendants are killed before the last line is said. On Linux that finds all of them,
those in a session of their own and those whose parents are gone too, because the keeper adopts orphans
(PR_SET_CHILD_SUBREAPER). Elsewhere, and on a kernel or Python without that call, it is the command's group alone.
What a command asks of another program that runs already (a service, a container, a machine) is out of reach.

It imports nothing of ours, and little else: `_signal` and `_ctypes` instead of signal and ctypes save 9 ms a command.
"""

# ruff: noqa: PTH110, PTH112, PTH123, PTH208 - importing pathlib takes longer than the rest of the keeper

import _signal  # type: ignore[import-not-found]  # what `signal` wraps; built in
import os
import select
import sys

PR_SET_CHILD_SUBREAPER_CODE = 36  # linux/prctl.h
ROUND_MS, ROUND_MAX_MS = 1, 50  # how long a round of KILL waits for somebody to die
ROUNDS_MAX = 60  # rounds in which nobody died, about 2.5 s; then what is left is another user's, or deep in the kernel
FDS_MAX = 1024  # looked at where they cannot be listed
TERM_ROUNDS_MAX = 10  # to reach children that were born meanwhile

Ended = list[int]  # empty, or how the command ended, as waitpid says it


def adopt_orphans() -> bool:
    """Make every orphan below this process its child; False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    order = (PR_SET_CHILD_SUBREAPER_CODE, 1, 0, 0, 0)
    try:
        import _ctypes

        found = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type,attr-defined,unused-ignore]
        return bool(_ctypes.call_function(found, order) == 0)  # type: ignore[attr-defined,unused-ignore]
    except AttributeError:  # a Python whose _ctypes looks otherwise
        import ctypes

        return bool(ctypes.CDLL(None).prctl(*order) == 0)
    except (ImportError, OSError):
        return False


def children(pid: int) -> list[int]:
    """The children of a process by its list of them."""
    found: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
            found.extend(int(child) for child in file.read().split())
    return found


def parents() -> dict[int, list[int]]:
    """Parent to children over all processes, for kernels without such lists."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            found.setdefault(parent, []).append(int(name))
    return found


def descendants() -> list[int]:
    """Every process below this one, parents before children; empty without /proc."""
    me = os.getpid()
    table = None if os.path.exists(f"/proc/{me}/task/{me}/children") else parents() if os.path.isdir("/proc") else {}
    found, waiting = [], [me]
    while waiting:
        pid = waiting.pop()
        try:
            below = children(pid) if table is None else table.get(pid, [])
        except OSError:  # it ended meanwhile
            continue
        found.extend(below)
        waiting.extend(below)
    return found


def send(number: int, pids: list[int]) -> None:
    """A signal to each, those that are gone or another user's left out."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def send_group(number: int, group: int) -> None:
    """A signal to a whole group at once, which no fork can slip through."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def groups(pids: list[int]) -> set[int]:
    """The groups these are in, the keeper's own left out. They hold descendants alone: a group stays in its session."""
    found = set()
    for pid in pids:
        try:
            found.add(os.getpgid(pid))
        except (ProcessLookupError, PermissionError):
            continue
    return found - {os.getpgid(0)}


def reap(command: int, ended: Ended) -> bool:
    """Take in all who ended; whether any child is left, which means: any descendant."""
    while True:
        try:
            pid, how = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if pid == command:
            ended.append(how)


def nap(alarm: int, wait_ms: int) -> bool:
    """Wait until a child ends, at most so long; whether one did."""
    poller = select.poll()
    poller.register(alarm, select.POLLIN)
    rang = bool(poller.poll(wait_ms))
    if rang:
        os.read(alarm, 4096)
    return rang


def term_all(command: int) -> None:
    """TERM to every descendant once, those born meanwhile included."""
    seen: set[int] = set()
    for _ in range(TERM_ROUNDS_MAX):
        fresh = [pid for pid in descendants() if pid not in seen]
        if not fresh:
            break
        send(_signal.SIGTERM, fresh)
        seen.update(fresh)
    if not seen:
        send_group(_signal.SIGTERM, command)


def kill_all(command: int, ended: Ended, alarm: int, *, adopting: bool) -> int:
    """KILL until no descendant is left; how many could not be killed."""
    if not adopting:
        send_group(_signal.SIGKILL, command)
    wait_ms, silent = ROUND_MS, 0
    while reap(command, ended):
        if silent == ROUNDS_MAX:
            return max(1, len(descendants()))
        pids = descendants()
        for group in groups(pids):
            send_group(_signal.SIGKILL, group)
        send(_signal.SIGKILL, pids if pids or ended else [command])
        if nap(alarm, wait_ms):
            wait_ms, silent = ROUND_MS, 0
        else:
            wait_ms, silent = min(2 * wait_ms, ROUND_MAX_MS), silent + 1
    return 0


def heard(life: int) -> bytes | None:
    """What the life line brings: None is nothing yet, empty is its end."""
    try:
        return os.read(life, 64)
    except BlockingIOError:
        return None
    except OSError:  # the other end was reset
        return b""


def say(life: int, word: str, *numbers: int) -> None:
    """One line to the other end, if it is still there."""
    try:
        os.write(life, f"{word} {' '.join(map(str, numbers))}\n".encode())
    except OSError:
        return


def tidy_up(more: int, given: int | None) -> tuple[int, int]:
    """Move the life line out of the command's sight, put its input in its place, and close what else was inherited."""
    try:
        inherited = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:  # a root without it
        inherited = list(range(FDS_MAX))
    for fd in inherited:
        if fd > 2 + more and fd != given:
            try:
                os.close(fd)
            except OSError:  # the listing's own
                continue
    life = os.dup(0)
    os.set_blocking(life, False)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing if given is None else given, 0)
    if given is not None:
        os.close(given)
    return life, nothing


def become(life: int, folder: str, argv: list[str]) -> None:
    """In the new process: a session of its own, signals as they are by default, then the command. Never returns."""
    try:
        os.setsid()
        say(
            life, "started", os.getpid()
        )  # before it can do anything, so that its group is known to whoever hears of it
        for number in (
            _signal.SIGPIPE,
            _signal.SIGXFSZ,
            _signal.SIGTERM,
            _signal.SIGINT,
            _signal.SIGHUP,
            _signal.SIGQUIT,
        ):
            _signal.signal(number, _signal.SIG_DFL)
        os.chdir(folder)
        os.execv(argv[0], argv)  # noqa: S606 - the shell is in argv
    except OSError as error:
        say(life, "refused", error.errno or 0, 0)
    finally:
        os._exit(127)


def remove(folder: str) -> None:
    """A folder and all in it, as far as it can be."""
    for place, folders, files in os.walk(folder, topdown=False):
        for name in files + folders:
            remove_one(f"{place}/{name}")
    remove_one(folder)


def remove_one(path: str) -> None:
    """A file, a link or an empty folder."""
    for way in (os.unlink, os.rmdir):
        try:
            way(path)
        except OSError:
            continue
        return


def watch(command: int, life: int, ended: Ended, alarm: int) -> None:
    """Until the command ended, or the life line did."""
    poller = select.poll()
    poller.register(life, select.POLLIN)
    poller.register(alarm, select.POLLIN)
    while True:
        reap(command, ended)
        if ended:
            return
        if any(fd == alarm for fd, _ in poller.poll()):
            os.read(alarm, 4096)
        order = heard(life)
        if order == b"":
            return
        if order is not None:
            term_all(command)


def main(more: str, given: str, own: str, folder: str, *argv: str) -> int:
    """Run one command to its end, and to that of all its descendants; then its folder goes, if that is its own."""
    try:
        return keep(int(more), None if given == "-" else int(given), folder, list(argv))
    finally:
        if own == "1":
            remove(folder)


def keep(more: int, given: int | None, folder: str, argv: list[str]) -> int:
    """Run one command to its end, and to that of all its descendants."""
    adopting = adopt_orphans()
    life, nothing = tidy_up(more, given)
    if heard(life) is not None:  # told to stop before it began
        say(life, "killed", _signal.SIGTERM, 0)
        return 128 + int(_signal.SIGTERM)
    try:
        command = os.fork()
    except OSError as error:
        say(life, "refused", error.errno or 0, 0)
        return 127
    if command == 0:
        become(life, folder, argv)
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, _signal.SIG_IGN)
    alarm, bell = os.pipe()
    os.set_blocking(bell, False)
    _signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    for fd in range(3, 3 + more):
        os.close(fd)
    for fd in (0, 1, 2):  # input and output are the command's alone: they end when the last of them does
        os.dup2(nothing, fd)
    ended: Ended = []
    watch(command, life, ended, alarm)
    left = kill_all(command, ended, alarm, adopting=adopting)
    code = os.waitstatus_to_exitcode(ended[0] if ended else int(_signal.SIGKILL))
    if code < 0:
        say(life, "killed", -code, left)
        return 128 - code
    say(life, "exited", code, left)
    return code


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))
