"""A PostgreSQL server of its own for tests: made in a temporary folder, on a free port of the loopback, and ended."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

USER, PASSWORD, DATABASE = "callboard", "quiet-please", "callboard"
PLACES = (Path("/usr/lib/postgresql"), Path("/usr/local/pgsql"), Path("/opt/postgresql"))
START_S_MAX = 30
SETTINGS = """
listen_addresses = '127.0.0.1'
fsync = on
max_connections = 60
shared_buffers = 64MB
logging_collector = off
log_min_messages = warning
"""


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`, the newest that is installed; None without one."""
    found = shutil.which("initdb")
    if found is not None and Path(found).resolve().with_name("pg_isready").exists():
        return Path(found).resolve().parent
    places = [bin_ for place in PLACES for bin_ in (*place.glob("*/bin"), place / "bin") if (bin_ / "initdb").exists()]
    return max(places, key=_version, default=None)


def _version(bin_: Path) -> int:
    return int(bin_.parent.name) if bin_.parent.name.isdigit() else 0


def missing() -> str | None:
    """Why no server can be started here, None when it can."""
    if binaries() is None:
        return "PostgreSQL is not installed (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "PostgreSQL does not run as root, and there is no setpriv to start it as another user"
    return None


def free_port() -> int:
    """A port of the loopback that nobody uses now."""
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """One server: `start`, `stop`, `kill`, and `pause` while its processes stand still."""

    def __init__(self, folder: Path) -> None:
        found = binaries()
        assert found is not None
        self._bin, self._folder, self._data = found, folder, folder / "data"
        self.port = free_port()
        self._running: subprocess.Popen[bytes] | None = None

    def url(self, *, user: str = USER, password: str = PASSWORD, database: str = DATABASE, more: str = "") -> str:
        """A url of the database, with a query behind it."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}{more}"

    def make(self) -> None:
        """Make the data folder, the user with the password, and the database."""
        secret = self._folder / "secret"
        secret.write_text(PASSWORD)
        self._give(self._folder, secret)
        self._run("initdb", "-D", self._data, "-U", USER, "-A", "scram-sha-256", "--pwfile", secret, "-E", "UTF8")
        conf = self._data / "postgresql.conf"
        text = f"{SETTINGS}port = {self.port}\nunix_socket_directories = '{self._folder}'\n"
        conf.write_text(conf.read_text() + text)
        self.start()
        self._sql("postgres", f"CREATE DATABASE {DATABASE}")

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            self._running = subprocess.Popen(
                self._as_user(self._bin / "postgres", "-D", self._data),
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        until_s = time.monotonic() + START_S_MAX
        ready: list[str | Path] = [self._bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False, timeout=10).returncode:
            assert self._running.poll() is None, (self._folder / "log").read_text()[-2_000:]
            assert time.monotonic() < until_s, "PostgreSQL did not start"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._running.wait(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT fast, SIGQUIT at once as after a crash; harmless when it is not running."""
        running, self._running = self._running, None
        if running is not None:
            running.send_signal(how)
            try:
                running.wait(START_S_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait(START_S_MAX)

    def kill(self) -> None:
        """kill -9 of the server and of everything it started."""
        running, self._running = self._running, None
        assert running is not None
        os.killpg(running.pid, signal.SIGKILL)
        running.wait(START_S_MAX)
        for pid in self._others(running.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Let all its processes stand still."""
        assert self._running is not None
        pids = [self._running.pid, *self._others(self._running.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _others(self, pid: int) -> list[int]:
        """Those that the server started; each is the first of a session of its own."""
        listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False, timeout=10)
        return [int(one) for one in listed.stdout.split()]

    def _sql(self, database: str, statement: str) -> None:
        line: list[str | Path] = [
            self._bin / "psql",
            "-q",
            "-X",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            self.url(database=database),
        ]
        subprocess.run([*line, "-c", statement], check=True, capture_output=True, timeout=30)

    def _run(self, name: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            self._as_user(self._bin / name, *arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=self._folder,
            env={**os.environ, "LC_ALL": "C"},
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _as_user(self, *command: str | Path) -> list[str | Path]:
        """PostgreSQL refuses to run as root."""
        if os.geteuid() != 0:
            return list(command)
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", *command]

    def _give(self, *paths: Path) -> None:
        for path in paths:
            if os.geteuid() == 0:
                shutil.chown(path, "postgres", "postgres")


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """A server, made and started; ended and removed behind it."""
    with tempfile.TemporaryDirectory(prefix="callboard-postgres-", ignore_cleanup_errors=True) as name:
        server = Server(Path(name))
        try:
            server.make()
            yield server
        finally:
            server.stop(signal.SIGQUIT)  # at once: nothing of it is kept
