"""A private PostgreSQL for tests: a cluster in a directory of its own, reached by its Unix socket.

The programs are Debian's. PostgreSQL refuses to run as root, so it runs as the user `postgres`
then.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest

PROGRAMS: Final = Path("/usr/lib/postgresql/15/bin")
_SETTINGS: Final = """
listen_addresses = ''
unix_socket_directories = '{directory}'
max_connections = 40
fsync = on
logging_collector = off
"""


class PostgreSql:
    """One server, which can be killed and started again."""

    def __init__(self, directory: Path, *, max_prepared_transactions: int = 20) -> None:
        self.directory = directory
        self._data = directory / "data"
        self._log = directory / "log"
        self._user: list[str] = []
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(directory, account.pw_uid, account.pw_gid)
            self._user = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
        self._run("initdb", "--auth=trust", "--username=tester", "--no-sync", "--encoding=UTF8", "-D", str(self._data))
        settings = _SETTINGS.format(directory=directory)
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(f"{settings}max_prepared_transactions = {max_prepared_transactions}\n")
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._user, str(PROGRAMS / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.directory)

    @property
    def dsn(self) -> str:
        return f"host={self.directory} user=tester dbname=postgres"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        # A server that was killed leaves its lock file and, for a moment, its children.
        deadline = time.monotonic() + 60
        while True:
            with self._log.open("a") as log:
                self.process = subprocess.Popen(
                    [*self._user, str(PROGRAMS / "postgres"), "-D", str(self._data)],
                    stdout=log,
                    stderr=log,
                    cwd=self.directory,
                )
            while self.process.poll() is None:
                try:
                    psycopg.connect(self.dsn).close()
                except psycopg.OperationalError:
                    assert time.monotonic() < deadline, self._log.read_text()
                    time.sleep(0.05)
                else:
                    return
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    def kill(self) -> None:
        """End the server and its children without a warning."""
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], check=False, stdout=subprocess.PIPE, text=True
        ).stdout.split()
        self.process.kill()
        for child in children:
            try:
                os.kill(int(child), signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def stop(self) -> None:
        """Stop it for good."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()

    def execute(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Run one statement, committed at once, and return its rows."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description is not None else []

    def prepared(self) -> list[str]:
        """Return the transactions that are prepared there."""
        return [str(gid) for (gid,) in self.execute("SELECT gid FROM pg_prepared_xacts")]


@contextmanager
def postgresql(*, max_prepared_transactions: int = 20) -> Iterator[PostgreSql]:
    """Run a server in a temporary directory, whose path is short enough for its socket."""
    if not (PROGRAMS / "postgres").exists():
        pytest.skip("needs Debian's package postgresql-15")
    directory = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        server = PostgreSql(directory, max_prepared_transactions=max_prepared_transactions)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)
