"""The names and addresses of this machine, as the settings of a queue manager need them.

A new queue manager without a given name takes the host's: `host_computer_name`. Any name or address
of this machine means the queue manager on it, unless several share the machine. Those differ in the
addresses that they are bound to (`addresses_of`).
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
import socket
import struct
from collections.abc import Iterator

from lanner.engine import EngineSettings
from lanner.engine.settings import DEFAULT_COMPUTER_NAME
from lanner.model.errors import IllegalQueuePathname
from lanner.wire.path_name import PathName
from lanner.wire.spelling import check_computer

_LOG = logging.getLogger(__name__)

# A computer has a NetBIOS name of at most 15 characters, which MSMQ uses to address it.
MAX_NETBIOS_NAME = 15
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LOOPBACK = frozenset(("127.0.0.1", "::1"))

# rtnetlink(7): the request for all addresses, and the answers to it.
_RTM_NEWADDR, _RTM_GETADDR = 20, 22
_NLMSG_DONE, _NLMSG_ERROR = 3, 2
_NLM_F_REQUEST_DUMP = 0x301
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_MESSAGE = struct.Struct("=BBBBI")  # ifaddrmsg
_ATTRIBUTE = struct.Struct("=HH")  # rtattr
_MAX_ANSWER = 65536


def local_settings(name: str | None, **overrides: object) -> EngineSettings:
    """Return the settings of a queue manager on this machine: its name and addresses.

    If `name` is None, use the name stored in the data directory, or the host name for a new queue
    manager. Raises IllegalQueuePathname if no path name could contain the name, because then none
    of the queues could be opened.
    """
    if name is not None:
        try:
            check_computer(name)
        except ValueError as error:
            raise IllegalQueuePathname(str(error)) from None
        if PathName.parse(f"{name}\\q").is_on_this_computer:
            raise IllegalQueuePathname("the computer name '.' means any computer to itself: give another")
    domain = socket.gethostname().partition(".")[2]
    values: dict[str, object] = {
        "computer_name": (name or "").upper(),
        "default_computer_name": host_computer_name(),
        "dns_domain": domain,
        "local_addresses": local_addresses(),
    }
    return EngineSettings(**(values | overrides))  # type: ignore[arg-type] # one field each, checked by EngineSettings


def host_computer_name(host: str | None = None) -> str:
    """Return the host's name as the name of a computer.

    It is in capitals, has at most 15 characters, and has `-` for characters that no name can have.
    """
    short = (socket.gethostname() if host is None else host).partition(".")[0]
    return _NOT_IN_NAME.sub("-", short)[:MAX_NETBIOS_NAME].upper().strip("-") or DEFAULT_COMPUTER_NAME


def local_addresses() -> frozenset[str]:
    """Return the names and addresses by which other programs reach this machine, in lower case."""
    names, addresses = _host()
    return names | addresses | _LOOPBACK | frozenset(_interface_addresses())


def addresses_of(bind: str) -> frozenset[str]:
    """Return the names and addresses that mean the queue manager bound to `bind`.

    Queue managers on one machine differ in their addresses. One bound to 127.0.0.2 is not reachable
    as 127.0.0.1, and one bound to the address of one network interface is not reachable at the
    address of another. A host name refers to any of them, except those bound to another 127.0.0.0/8
    address than 127.0.0.1.
    """
    address = ipaddress.ip_address(bind)
    if address.is_unspecified or str(address) in _LOOPBACK:
        return local_addresses()
    own = frozenset({str(address)})
    names, addresses = _host()
    return own if address.is_loopback and own.isdisjoint(addresses) else own | names


def _host() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the host and the addresses that these names have.

    The names are the fully qualified host name, the short one, and the NetBIOS-style computer name.
    """
    host = socket.gethostname().lower()
    names = {host, host.partition(".")[0], host_computer_name().lower()}
    addresses: set[str] = set()
    try:
        for *_, name, address in socket.getaddrinfo(host, None, flags=socket.AI_CANONNAME):
            names.add(name.lower().rstrip("."))
            addresses.add(str(address[0]).lower())
    except (OSError, UnicodeError):
        _LOG.debug("the name %s has no address", host)
    return frozenset(names - {""}), frozenset(addresses)


def _interface_addresses() -> Iterator[str]:
    """Yield the addresses of all network interfaces, from the kernel.

    Addresses of 127.0.0.0/8 are left out: see `addresses_of`.
    """
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC) as kernel,
    ):
        kernel.bind((0, 0))
        kernel.send(_HEADER.pack(_HEADER.size + 1, _RTM_GETADDR, _NLM_F_REQUEST_DUMP, 1, 0) + bytes([socket.AF_UNSPEC]))
        while True:
            answer = memoryview(kernel.recv(_MAX_ANSWER))
            while len(answer) >= _HEADER.size:
                size, kind, *_ = _HEADER.unpack_from(answer)
                if kind in (_NLMSG_DONE, _NLMSG_ERROR) or size < _HEADER.size:
                    return
                if kind == _RTM_NEWADDR:
                    address = _address_in(answer[_HEADER.size : size])
                    if address is not None and not address.is_loopback:
                        yield str(address)
                answer = answer[_aligned(size) :]


def _address_in(message: memoryview) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address of an ifaddrmsg.

    On a point-to-point link, IFA_LOCAL is its own address and IFA_ADDRESS the peer's.
    """
    found: dict[int, bytes] = {}
    message = message[_MESSAGE.size :]
    while len(message) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(message)
        if size < _ATTRIBUTE.size:
            break
        found[kind] = bytes(message[_ATTRIBUTE.size : size])
        message = message[_aligned(size) :]
    packed = found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS)
    return ipaddress.ip_address(packed) if packed is not None and len(packed) in (4, 16) else None


def _aligned(size: int) -> int:
    return size + 3 & ~3
