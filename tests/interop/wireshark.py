"""Captures of the loopback interface, and Wireshark's dissectors on them.

`python -m tests.interop.wireshark FILE COMMAND ...` runs a command with a capture of all its TCP;
in a network of its own (`unshare --net`) it sees no other traffic.
"""

from __future__ import annotations

import fcntl
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.rpc_server import PASSWORD

_PATIENCE = 20.0  # seconds
# A datagram to the port of "discard" ends every capture: what came before it is in the file then.
_LAST = b"this is the last thing that was captured"
_DISCARD = ("127.0.0.1", 9)

# How `main` says that nothing can be said.
CANNOT = 77

_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


def capture_is_missing() -> str | None:
    """Say what a capture needs and this machine does not have."""
    if _dumpcap() is None or shutil.which("tshark") is None:
        return "the Debian package tshark is not installed"
    return None


def _dumpcap() -> str | None:
    return shutil.which("dumpcap", path="/usr/bin:/usr/sbin:/bin")


@contextmanager
def captured(path: Path, what: str) -> Iterator[None]:
    """Capture the traffic on the loopback interface that passes a filter while the block runs."""
    missing = capture_is_missing()
    if missing is not None:
        pytest.skip(missing)
    # With room for what comes while others have the processor.
    command = [
        _dumpcap() or "",
        "-q",
        "-i",
        "lo",
        "-B",
        "128",
        "-f",
        f"{what} or udp port {_DISCARD[1]}",
        "-w",
        str(path),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("File:"):
                break
        else:
            pytest.skip(f"nobody may capture on the loopback interface here: {' '.join(''.join(said).split())}")
        yield
        _wait_for_the_end(path)
    finally:
        process.terminate()
        said = process.communicate(timeout=_PATIENCE)[1].splitlines()
    lost = [line for line in said if "dropped" in line and "/0 (" not in line]
    if lost:
        pytest.skip(f"the machine is too busy for a capture: {' '.join(lost)}")


def _wait_for_the_end(path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
        last.sendto(_LAST, _DISCARD)
    end = time.monotonic() + _PATIENCE
    while True:
        with path.open("rb") as capture:
            capture.seek(max(0, path.stat().st_size - 0x10000))
            if _LAST in capture.read():
                return
        assert time.monotonic() < end, "the capture does not get to its end"
        time.sleep(0.02)


def shown(path: Path, filter_: str, *fields: str, port: int | None = None) -> list[str]:
    """Return a line for every frame that passes a display filter.

    `port` is decoded as DCE/RPC where nothing else identifies it.
    """
    command = ["tshark", "-r", str(path), "-o", f"ntlmssp.nt_password:{PASSWORD}", "-Y", filter_]
    if port is not None:
        command += ["-d", f"tcp.port=={port},dcerpc"]
    if fields:
        command += ["-T", "fields", *(part for field in fields for part in ("-e", field))]
    ran = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def raise_loopback() -> None:
    """In a new network the loopback interface is there, and down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


def main(path: str, *command: str) -> int:
    raise_loopback()
    try:
        with captured(Path(path), "tcp"):
            return subprocess.run(command, check=False).returncode
    except pytest.skip.Exception as reason:
        sys.stderr.write(str(reason))
        return CANNOT


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
