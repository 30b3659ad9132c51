"""`lanner serve` as a service manager starts it: as another user, with a socket for its states."""

from __future__ import annotations

import os
import pwd
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import lanner

ROOT = Path(__file__).resolve().parent.parent
UNIT = ROOT / "packaging" / "lanner.service"
# A user that every Debian has.
USER = pwd.getpwnam("nobody")
NO_CAPABILITIES = f"{0:016x}"
_PATIENCE = 60.0  # seconds

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def dropped(*capabilities: str) -> list[str]:
    """Return the command that runs another as USER with these capabilities and no more."""
    given = ",".join(["-all", *(f"+{one}" for one in capabilities)])
    return [
        "setpriv",
        f"--reuid={USER.pw_uid}",
        f"--regid={USER.pw_gid}",
        "--clear-groups",
        f"--bounding-set={given}",
        f"--inh-caps={given}",
        f"--ambient-caps={given}",
        "--no-new-privs",
    ]


def shared_directory() -> Iterator[Path]:
    """Give a directory that any user can reach, as pytest's are not."""
    readable = [*dropped(), "test", "-r", os.__file__, "-a", "-r", lanner.__file__]
    if subprocess.run(readable, check=False).returncode:
        pytest.skip(f"user {USER.pw_name} cannot run this Python")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


class Started:
    """A service, and what it has told its manager."""

    def __init__(self, directory: Path, command: Sequence[str | Path]) -> None:
        self.states = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = directory / "notify"
        self.states.bind(str(address))
        address.chmod(0o777)
        self.states.settimeout(_PATIENCE)
        self.log = directory / "log"
        with self.log.open("wb") as log:
            environment = {**os.environ, "NOTIFY_SOCKET": str(address)}
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=environment, cwd="/")

    def state(self) -> str:
        """Wait for the next state."""
        try:
            return self.states.recv(4096).decode()
        except TimeoutError:
            raise AssertionError(self.log.read_text()) from None

    def threads(self, field: str) -> set[str]:
        """Return a field of /proc/PID/status, of all threads."""
        found = set()
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            match = re.search(rf"^{field}:\s*(.*)$", (task / "status").read_text(), re.MULTILINE)
            assert match is not None
            found.add(match[1].strip())
        return found

    def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.states.close()
