"""Security identifiers (MS-DTYP 2.4.2): binary form, text form and the well-known ones."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from lanner.model.errors import RemoteProtocolError
from lanner.wire.reader import Reader

# MS-DTYP 2.4.2.2.
SID_REVISION: Final = 1
MAX_SUB_AUTHORITIES: Final = 15

# MS-SAMR 2.2.1.14: relative identifiers of the built-in users, and the first one that an account
# database assigns.
DOMAIN_USER_RID_ADMIN: Final = 500
DOMAIN_USER_RID_GUEST: Final = 501
FIRST_USER_RID: Final = 1000

NT_AUTHORITY: Final = 5
SECURITY_NT_NON_UNIQUE: Final = 21

# MS-DTYP 2.4.2.1, which forbids leading zeros.
_TEXT = re.compile(r"S-1-(0|[1-9][0-9]{0,9}|0x[0-9A-F]{12})((?:-(?:0|[1-9][0-9]{0,9}))*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Sid:
    """A security identifier (MS-DTYP 2.4.2)."""

    identifier_authority: int
    sub_authorities: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.identifier_authority < 1 << 48:
            raise ValueError(f"SID authority {self.identifier_authority}: 48 bits expected")
        if len(self.sub_authorities) > MAX_SUB_AUTHORITIES:
            raise ValueError(f"SID with {len(self.sub_authorities)} sub-authorities: at most {MAX_SUB_AUTHORITIES}")
        if any(not 0 <= sub < 1 << 32 for sub in self.sub_authorities):
            raise ValueError(f"SID sub-authorities {self.sub_authorities}: 32 bits each expected")

    def __str__(self) -> str:
        # MS-DTYP 2.4.2.1: an authority of 2**32 or more is written in hexadecimal, with all twelve
        # digits.
        authority = self.identifier_authority
        text = f"0x{authority:012X}" if authority >= 1 << 32 else str(authority)
        return "-".join(["S", str(SID_REVISION), text, *map(str, self.sub_authorities)])

    @property
    def rid(self) -> int | None:
        """The relative identifier: the last sub-authority."""
        return self.sub_authorities[-1] if self.sub_authorities else None

    @property
    def is_account(self) -> bool:
        """Whether it is a user or group of a machine or domain: S-1-5-21-x-y-z-rid."""
        subs = self.sub_authorities
        return self.identifier_authority == NT_AUTHORITY and len(subs) == 5 and subs[0] == SECURITY_NT_NON_UNIQUE

    @property
    def is_guest(self) -> bool:
        """Whether it is the Guest account (MS-SAMR 2.2.1.14 DOMAIN_USER_RID_GUEST)."""
        return self.is_account and self.rid == DOMAIN_USER_RID_GUEST

    @property
    def domain(self) -> Sid | None:
        """The machine or domain to which this account belongs."""
        return Sid(self.identifier_authority, self.sub_authorities[:-1]) if self.is_account else None

    def child(self, rid: int) -> Sid:
        """Return the account of this machine or domain with a relative identifier."""
        return Sid(self.identifier_authority, (*self.sub_authorities, rid))

    @classmethod
    def parse(cls, text: str) -> Sid:
        """Parse the text form. Raise ValueError with the problem."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a SID: S-1-authority-number-number... expected")
        authority = match[1]
        base = 16 if authority[:2].lower() == "0x" else 10
        return cls(int(authority, base), tuple(int(part) for part in match[2].split("-")[1:]))

    def pack(self) -> bytes:
        subs = self.sub_authorities
        return (
            bytes((SID_REVISION, len(subs)))
            + self.identifier_authority.to_bytes(6, "big")
            + struct.pack(f"<{len(subs)}I", *subs)
        )

    @classmethod
    def read(cls, reader: Reader) -> Sid:
        """Read one SID, leaving the reader after it."""
        revision, count = reader.take(2, "SID header")
        if revision != SID_REVISION:
            raise RemoteProtocolError(f"SID revision {revision}: {SID_REVISION} expected")
        if count > MAX_SUB_AUTHORITIES:
            raise RemoteProtocolError(f"SID with {count} sub-authorities: at most {MAX_SUB_AUTHORITIES}")
        authority = int.from_bytes(reader.take(6, "SID authority"), "big")
        return cls(authority, struct.unpack(f"<{count}I", reader.take(4 * count, "SID sub-authorities")))

    @classmethod
    def unpack(cls, data: bytes) -> Sid:
        """Read a SID that fills `data` exactly."""
        reader = Reader(data)
        sid = cls.read(reader)
        reader.expect_end("SID")
        return sid

    @property
    def size(self) -> int:
        """The number of octets in the binary form."""
        return 8 + 4 * len(self.sub_authorities)


@lru_cache(maxsize=512)
def sid_text(data: bytes) -> str:
    """Return the text form of a binary SID."""
    return str(Sid.unpack(data))


# MS-DTYP 2.4.2.4.
EVERYONE: Final = Sid.parse("S-1-1-0")
CREATOR_OWNER: Final = Sid.parse("S-1-3-0")
CREATOR_GROUP: Final = Sid.parse("S-1-3-1")
OWNER_RIGHTS: Final = Sid.parse("S-1-3-4")
NETWORK: Final = Sid.parse("S-1-5-2")
INTERACTIVE: Final = Sid.parse("S-1-5-4")
SERVICE: Final = Sid.parse("S-1-5-6")
ANONYMOUS_LOGON: Final = Sid.parse("S-1-5-7")
PRINCIPAL_SELF: Final = Sid.parse("S-1-5-10")
AUTHENTICATED_USERS: Final = Sid.parse("S-1-5-11")
LOCAL_SYSTEM: Final = Sid.parse("S-1-5-18")
LOCAL_SERVICE: Final = Sid.parse("S-1-5-19")
NETWORK_SERVICE: Final = Sid.parse("S-1-5-20")
BUILTIN_ADMINISTRATORS: Final = Sid.parse("S-1-5-32-544")
BUILTIN_USERS: Final = Sid.parse("S-1-5-32-545")
BUILTIN_GUESTS: Final = Sid.parse("S-1-5-32-546")
BUILTIN_SERVER_OPERATORS: Final = Sid.parse("S-1-5-32-549")
BUILTIN_PERFORMANCE_MONITOR_USERS: Final = Sid.parse("S-1-5-32-558")

# MS-DTYP 2.5.1.1 sid-token. The aliases of a domain's accounts need the domain's SID, which sddl()
# accepts.
SDDL_ALIASES: Final[dict[str, Sid]] = {
    "AN": ANONYMOUS_LOGON,
    "AO": Sid.parse("S-1-5-32-548"),
    "AU": AUTHENTICATED_USERS,
    "BA": BUILTIN_ADMINISTRATORS,
    "BG": BUILTIN_GUESTS,
    "BO": Sid.parse("S-1-5-32-551"),
    "BU": BUILTIN_USERS,
    "CG": CREATOR_GROUP,
    "CO": CREATOR_OWNER,
    "ED": Sid.parse("S-1-5-9"),
    "IU": INTERACTIVE,
    "LS": LOCAL_SERVICE,
    "NS": NETWORK_SERVICE,
    "NU": NETWORK,
    "OW": OWNER_RIGHTS,
    "PO": Sid.parse("S-1-5-32-550"),
    "PS": PRINCIPAL_SELF,
    "PU": Sid.parse("S-1-5-32-547"),
    "RC": Sid.parse("S-1-5-12"),
    "RD": Sid.parse("S-1-5-32-555"),
    "RE": Sid.parse("S-1-5-32-552"),
    "SO": BUILTIN_SERVER_OPERATORS,
    "SU": SERVICE,
    "SY": LOCAL_SYSTEM,
    "WD": EVERYONE,
}

# The relative identifiers of the aliases for accounts of a machine or domain.
SDDL_DOMAIN_ALIASES: Final[dict[str, int]] = {
    "LA": DOMAIN_USER_RID_ADMIN,
    "LG": DOMAIN_USER_RID_GUEST,
    "DA": 512,
    "DU": 513,
    "DG": 514,
    "DC": 515,
    "DD": 516,
    "CA": 517,
}
