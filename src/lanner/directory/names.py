r"""Distinguished names of directory objects, and the queue names inside them.

MS-MQDSSM 2.2.1, 3.1.6.1.2.5.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Final

# MS-MQDSSM 3.1.6.1.2.5: a name of up to 63 characters is used unchanged, a longer one as its first
# 55, a dash and eight digits.
MAX_WHOLE_NAME: Final = 63
CUT_NAME: Final = 55
SPLIT_NAME: Final = CUT_NAME + 9

# RFC 4514 2.4. A slash is not special there, despite 3.1.6.1.2.5.
_SPECIAL: Final = re.compile(r'[,+"\\<>;=#]|^ | $')
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ELEMENT: Final = re.compile(r"(?:\\.|[^,\\])+", re.DOTALL)
_ESCAPED: Final = re.compile(r"(?:\\[0-9A-Fa-f]{2})+|\\.", re.DOTALL)

# MS-MQDSSM 2.2.5 prints 256 numbers: the table of a reflected CRC-32 with this polynomial.
_HASH_POLYNOMIAL: Final = 0x9B61_9023


def _hash_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_HASH_POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901 - a shift register
        table.append(value)
    return table


HASH_TABLE: Final = _hash_table()


def queue_name_hash(name: str) -> str:
    """Return the hash of MS-MQDSSM 2.2.5 over the lower-case characters, as hexadecimal digits.

    There are eight digits, high octet first.
    """
    value = 0
    for octet in name.lower().encode("utf-16-be", "surrogatepass"):
        value = value >> 8 ^ HASH_TABLE[octet ^ value & 0xFF]
    return f"{value:08x}"


def split_queue_name(name: str) -> tuple[str, str]:
    """Return the name of a queue's object and its mSMQQueueNameExt (MS-MQDSSM 3.1.6.1.2.5).

    The second is set for a long name only. The plain name is counted and cut; it is escaped only
    where it becomes part of a distinguished name.
    """
    if len(name) <= MAX_WHOLE_NAME:
        return name, ""
    return f"{name[:CUT_NAME]}-{queue_name_hash(name)}", name[CUT_NAME:]


def join_queue_name(child: str, extension: str) -> str:
    """Return the queue name that `split_queue_name` cut, unescaped (MS-MQDSSM 3.1.6.11.2.1)."""
    return child[:CUT_NAME] + extension if len(child) == SPLIT_NAME else child


def escape(value: str) -> str:
    """Return a value as an element of a distinguished name (RFC 4514 2.4)."""
    return _CONTROL.sub(lambda one: f"\\{ord(one[0]):02X}", _SPECIAL.sub(r"\\\g<0>", value))


def _elements(dn: str) -> list[str]:
    return [element.lstrip(" ") for element in _ELEMENT.findall(dn)]


def rdn_values(dn: str) -> list[str]:
    """Return the values of a name's elements, still escaped, the object's own first."""
    return [element.partition("=")[2] for element in _elements(dn)]


def unescape(value: str) -> str:
    """Return the plain value. A server may write any of its octets as two hexadecimal digits."""

    def plain(found: re.Match[str]) -> str:
        text = found[0]
        if len(text) == 2:
            return text[1]
        return bytes.fromhex(text.replace("\\", "")).decode("utf-8", "replace")

    return _ESCAPED.sub(plain, value)


def parent_dn(dn: str) -> str:
    """Return the name without its first element."""
    return ",".join(_elements(dn)[1:])


def dn_key(dn: str) -> str:
    """Return a form in which two spellings of one name are equal."""
    pairs = (element.partition("=") for element in _elements(dn))
    return ",".join(f"{kind.strip()}={escape(unescape(value))}" for kind, _, value in pairs).casefold()


def without_server(path: str) -> str:
    """Return the distinguished name in LDAP://server/name; either part before it may be missing."""
    if path[:7].upper() == "LDAP://":
        server, slash, name = path[7:].partition("/")
        return name if slash and "=" not in server else path[7:]
    return path


def split_pathname(pathname: str) -> tuple[str, str]:
    r"""Return computer and queue name of a public queue's `computer\queue`.

    Raises ValueError for anything else.
    """
    computer, separator, name = pathname.partition("\\")
    if not (separator and computer and name) or "\\" in name or ";" in name:
        raise ValueError(f"{pathname!r} is not the path name of a public queue")
    return computer, name


@dataclass(frozen=True, slots=True)
class Naming:
    """The place of each kind of object under one rootDomainNamingContext (MS-MQDSSM 2.2.1)."""

    root: str

    @property
    def domain(self) -> str:
        """The DNS name of the root."""
        return ".".join(rdn_values(self.root))

    @property
    def enterprise(self) -> str:
        return f"CN=MsmqServices,CN=Services,CN=Configuration,{self.root}"

    def computer(self, computer: str) -> str:
        return f"CN={escape(computer)},CN=Computers,{self.root}"

    def queue_manager(self, computer: str) -> str:
        return f"CN=msmq,{self.computer(computer)}"

    def queue(self, pathname: str) -> str:
        computer, name = split_pathname(pathname)
        return f"CN={escape(split_queue_name(name)[0])},{self.queue_manager(computer)}"

    def site(self, name: str) -> str:
        return f"CN={escape(name)},CN=Sites,CN=Configuration,{self.root}"

    def settings(self, computer: str, site: str) -> str:
        return f"CN=MSMQ Settings,CN={escape(computer)},CN=Servers,{self.site(site)}"

    def routing_link(self, site1: uuid.UUID, site2: uuid.UUID) -> str:
        """Return the name of a link: hexadecimal digits of both sites (MS-MQDSSM 3.1.6.1.4.2)."""
        return f"CN={site1.hex}{site2.hex},{self.enterprise}"

    def user(self, name: str) -> str:
        """Return the name of a user, a group (distribution list) or a queue alias."""
        return f"CN={escape(name)},CN=Users,{self.root}"
