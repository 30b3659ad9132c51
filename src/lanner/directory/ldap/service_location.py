"""The domain controllers of a domain, by DNS SRV records (MS-ADTS 6.3.6, RFC 2782)."""

from __future__ import annotations

import contextlib
import ipaddress
import random
import re
import secrets
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lanner.directory.ldap.connection import LDAP_PORT

RESOLV_CONF: Final = Path("/etc/resolv.conf")
DNS_PORT: Final = 53
DNS_TIMEOUT: Final = 2.0
_ATTEMPTS: Final = 2
_A, _SRV, _AAAA = 1, 33, 28
_IN: Final = 1
_HEADER: Final = struct.Struct(">6H")
_RECORD: Final = struct.Struct(">HHIH")
_TRUNCATED: Final = 0x0200
# More pointers than a name can have labels: a message with more contains a loop.
_MAX_POINTERS: Final = 128
_HOST_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


@dataclass(frozen=True, slots=True)
class Server:
    """A domain controller: the name for its service principal, and its address."""

    host: str
    address: str
    port: int = LDAP_PORT


@dataclass(frozen=True, slots=True)
class _Record:
    name: str
    kind: int
    data: bytes
    at: int  # offset of the data in the answer, for names in it


class LocationError(OSError):
    """No domain controller could be found."""


def name_servers(path: Path = RESOLV_CONF) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [words[1] for line in lines if len(words := line.split()) >= 2 and words[0] == "nameserver"]


def domain_controllers(domain: str, servers: Sequence[str] = ()) -> list[Server]:
    """Return all domain controllers in the order to try them.

    Raises LocationError if none is found.
    """
    question = f"_ldap._tcp.dc._msdcs.{domain}"
    asked = list(servers) or name_servers()
    problems = []
    for name_server in asked:
        try:
            answer = _ask(name_server, question, _SRV)
        except OSError as error:
            problems.append(f"{name_server}: {error}")
            continue
        found = _in_order([_service(answer, record) for record in _records(answer) if record.kind == _SRV])
        if found:
            placed = [Server(host, address, port) for host, port in found for address in _addresses(name_server, host)]
            if placed:
                return placed
        problems.append(f"{name_server}: no record {question}")
    why = "; ".join(problems) or "no DNS server is configured"
    advice = "" if servers else "; name a DNS server of the domain if this machine's knows none: --name-server"
    raise LocationError(f"domain {domain}: no domain controller found ({why}){advice}")


def named_server(name: str, servers: Sequence[str] = ()) -> list[Server]:
    """Return a server by its DNS name, once for each of its addresses; [] if it is unknown."""
    host = server_key(name)
    if not _HOST_NAME.fullmatch(host):
        return []
    found: list[Server] = []
    for name_server in list(servers) or name_servers():
        found = [Server(host, address) for address in _addresses(name_server, host)]
        if found:
            break
    return found


def server_key(name: str) -> str:
    r"""Return the name of a server for comparisons, without leading backslashes and a final dot."""
    return name.removeprefix("\\\\").rstrip(".").lower()


def _in_order(records: list[tuple[int, int, int, str]]) -> list[tuple[str, int]]:
    """Order by priority, lower first; among equals at random, by weight (RFC 2782)."""
    # Randomness that spreads load need not be secret.
    chance = random.Random().random  # noqa: S311
    drawn = [(priority, -(chance() ** (1 / (weight or 0.1))), host, port) for priority, weight, port, host in records]
    return [(host, port) for _, _, host, port in sorted(drawn)]


def _addresses(name_server: str, host: str) -> list[str]:
    found: list[str] = []
    for kind in (_A, _AAAA):
        with contextlib.suppress(OSError):
            answer = _ask(name_server, host, kind)
            found += [str(ipaddress.ip_address(one.data)) for one in _records(answer) if one.kind == kind]
    return found


# The protocol (RFC 1035 4)
# -----------------------------------------------------------------------------------


def _ask(server: str, name: str, kind: int) -> bytes:
    number = secrets.randbits(16)
    labels = b"".join(bytes((len(part),)) + part for part in name.rstrip(".").encode("idna").split(b".") if part)
    question = _HEADER.pack(number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, _IN)
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.settimeout(DNS_TIMEOUT)
        # Connected, so that only this server's answers are received.
        asking.connect((server, DNS_PORT))
        for attempt in range(_ATTEMPTS):
            asking.send(question)
            try:
                answer = asking.recv(1 << 16)
            except TimeoutError:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            if len(answer) >= _HEADER.size and answer[:2] == question[:2] and question[12:] in answer:
                break
        else:
            raise LocationError("its answers do not match the question")
    if _HEADER.unpack_from(answer)[1] & _TRUNCATED:
        return _ask_whole(server, question)
    return answer


def _ask_whole(server: str, question: bytes) -> bytes:
    with socket.create_connection((server, DNS_PORT), DNS_TIMEOUT) as asking:
        asking.sendall(struct.pack(">H", len(question)) + question)
        stream = asking.makefile("rb")
        (size,) = struct.unpack(">H", stream.read(2))
        return stream.read(size)


def _records(answer: bytes) -> list[_Record]:
    try:
        _, _, questions, answers, _, _ = _HEADER.unpack_from(answer)
        at = _HEADER.size
        for _ in range(questions):
            at = _name(answer, at)[1] + 4
        found = []
        for _ in range(answers):
            name, at = _name(answer, at)
            kind, _, _, size = _RECORD.unpack_from(answer, at)
            at += _RECORD.size
            found.append(_Record(name, kind, answer[at : at + size], at))
            at += size
    except (struct.error, IndexError) as error:
        raise LocationError(f"malformed answer: {error}") from None
    return found


def _service(answer: bytes, record: _Record) -> tuple[int, int, int, str]:
    priority, weight, port = struct.unpack_from(">3H", record.data)
    return priority, weight, port, _name(answer, record.at + 6)[0]


def _name(data: bytes, at: int) -> tuple[str, int]:
    """Return a name and its end; parts of it may be elsewhere in the message."""
    labels: list[str] = []
    end = None
    for _ in range(_MAX_POINTERS):
        size = data[at]
        if size >= 0xC0:
            end = at + 2 if end is None else end
            at = (size & 0x3F) << 8 | data[at + 1]
        elif size:
            labels.append(data[at + 1 : at + 1 + size].decode("ascii", "replace"))
            at += 1 + size
        else:
            return ".".join(labels), at + 1 if end is None else end
    raise LocationError("a name that points to itself")
