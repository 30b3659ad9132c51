"""Starting and stopping servers, finding free ports, and compiling the C clients."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "bench"


class Missing(Exception):
    """A peer cannot be measured here; the text says what to install."""


class PeerError(Exception):
    """A peer failed to do what was requested."""


def require(what: str, programs: list[str], headers: list[str], packages: str) -> None:
    """Raise Missing, with the remedy, unless all programs and headers are installed."""
    absent = [name for name in [*programs, "gcc"] if shutil.which(name) is None and not Path(name).exists()]
    absent += [name for name in headers if not Path("/usr/include", name).exists()]
    if absent:
        raise Missing(
            f"{what} is not measured, {', '.join(absent)} not found: apt-get install {packages} gcc libc6-dev"
        )


def compile_client(name: str, *libraries: str) -> Path:
    """Compile bench/peers/NAME.c unless the binary is up to date."""
    BUILD.mkdir(parents=True, exist_ok=True)
    sources, binary = (HERE / f"{name}.c", HERE / "client.h"), BUILD / name
    if not binary.exists() or binary.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        flags = ["-O2", "-Wall", "-Wextra", "-pthread"]
        links = [f"-l{library}" for library in libraries]
        done = subprocess.run(
            ["gcc", *flags, "-o", binary, sources[0], *links], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Missing(f"{sources[0].name} does not compile, {name} is not measured:\n{done.stderr}")
    return binary


def free_port() -> int:
    """Return a currently unused port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server process, in a session of its own so that Ctrl-C reaches only the benchmark."""

    def __init__(self, command: list[str], directory: Path, environment: dict[str, str] | None = None) -> None:
        self.directory = directory
        with (directory / "output").open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=directory,
                env=os.environ | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise PeerError if the process has ended."""
        if self.process.poll() is not None:
            last = (self.directory / "output").read_text(errors="replace")[-2000:]
            raise PeerError(f"{self.process.args!r} ended with {self.process.returncode}:\n{last}")

    def stop(self, number: int = signal.SIGTERM, patience: float = 30) -> None:
        """Stop the process and its children; a second call does nothing."""
        for each, seconds in ((number, patience), (signal.SIGKILL, 10.0)):
            if self.process.poll() is not None:
                return
            os.killpg(self.process.pid, each)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue


def run_client(binary: Path, timeout: float, **arguments: object) -> dict[str, float]:
    """Run a C client once and return the figures that it printed."""
    words = [f"{name}={value}" for name, value in arguments.items()]
    try:
        done = subprocess.run([binary, *words], capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"{binary.name} {' '.join(words)}: no end after {timeout:.0f} s") from error
    if done.returncode:
        raise PeerError(f"{binary.name} {' '.join(words)}: {done.stderr.strip()}")
    found: dict[str, float] = json.loads(done.stdout) if done.stdout else {}
    return found
