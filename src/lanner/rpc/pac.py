"""The privilege attribute certificate of a Kerberos ticket (MS-PAC): a user's SIDs in a domain.

Only the logon information is read (MS-PAC 2.5). The caller must have verified the signature of the
certificate. The Kerberos library does that with the key of the service (MS-PAC 2.8.4), so the
content comes from a domain controller that shares this key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from lanner.rpc.ndr import (
    BadStub,
    Conformant,
    ConformantVarying,
    FixedArray,
    Octets,
    Related,
    Struct,
    Unique,
    u8,
    u16,
    u32,
    wchar,
)
from lanner.rpc.ndr.serialization import deserialize
from lanner.wire.sid import MAX_SUB_AUTHORITIES, SID_REVISION, Sid

# MS-PAC 2.2.1: a group without this attribute does not count.
SE_GROUP_ENABLED: Final = 0x4
# Not in the specification: Windows refuses tokens of more than 1,015 SIDs.
MAX_GROUPS: Final = 4096


@dataclass(frozen=True, slots=True)
class LogonInformation:
    """An account of a domain, with its groups in the domain and the forest."""

    # The NetBIOS name of the domain, and the account's name in it.
    domain: str
    name: str
    sid: Sid
    groups: frozenset[Sid]

    @property
    def account(self) -> str:
        r"""The name in the form of Windows: `MQ\alice`."""
        return f"{self.domain}\\{self.name}"


# The structures
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _UnicodeString:
    """RPC_UNICODE_STRING (MS-DTYP 2.3.10). Sizes are in octets."""

    length: Annotated[int, u16]
    maximum_length: Annotated[int, u16]
    buffer: Annotated[str | None, Unique(ConformantVarying(wchar))]

    @property
    def text(self) -> str:
        text = self.buffer or ""
        if len(text.encode("utf-16-le", "surrogatepass")) < self.length:
            raise BadStub(f"a string of {self.length} octets has only {len(text)} characters")
        return text.encode("utf-16-le", "surrogatepass")[: self.length].decode("utf-16-le", "replace")


@dataclass(frozen=True, slots=True)
class _RpcSid:
    """RPC_SID (MS-DTYP 2.4.2.3)."""

    revision: Annotated[int, u8.within(SID_REVISION, SID_REVISION)]
    sub_authority_count: Annotated[int, u8.within(0, MAX_SUB_AUTHORITIES)]
    identifier_authority: Annotated[bytes, Octets(6)]
    sub_authority: Annotated[tuple[int, ...], Conformant(u32), Related(size_is="sub_authority_count")]

    @property
    def sid(self) -> Sid:
        return Sid(int.from_bytes(self.identifier_authority, "big"), self.sub_authority)


@dataclass(frozen=True, slots=True)
class _GroupMembership:
    """GROUP_MEMBERSHIP (MS-PAC 2.2.2)."""

    relative_id: Annotated[int, u32]
    attributes: Annotated[int, u32]


@dataclass(frozen=True, slots=True)
class _SidAndAttributes:
    """KERB_SID_AND_ATTRIBUTES (MS-PAC 2.2.1)."""

    sid: Annotated[_RpcSid | None, Unique(Struct(_RpcSid))]
    attributes: Annotated[int, u32]


_STRING: Final = Struct(_UnicodeString)
_SID: Final = Unique(Struct(_RpcSid))
_GROUPS: Final = Unique(Conformant(Struct(_GroupMembership)))
# FILETIME is a structure of two ULONG, so it is aligned to 4.
_FILETIME: Final = Octets(8, 4)


@dataclass(frozen=True, slots=True)
class _ValidationInfo:
    """KERB_VALIDATION_INFO (MS-PAC 2.5)."""

    logon_time: Annotated[bytes, _FILETIME]
    logoff_time: Annotated[bytes, _FILETIME]
    kick_off_time: Annotated[bytes, _FILETIME]
    password_last_set: Annotated[bytes, _FILETIME]
    password_can_change: Annotated[bytes, _FILETIME]
    password_must_change: Annotated[bytes, _FILETIME]
    effective_name: Annotated[_UnicodeString, _STRING]
    full_name: Annotated[_UnicodeString, _STRING]
    logon_script: Annotated[_UnicodeString, _STRING]
    profile_path: Annotated[_UnicodeString, _STRING]
    home_directory: Annotated[_UnicodeString, _STRING]
    home_directory_drive: Annotated[_UnicodeString, _STRING]
    logon_count: Annotated[int, u16]
    bad_password_count: Annotated[int, u16]
    user_id: Annotated[int, u32]
    primary_group_id: Annotated[int, u32]
    group_count: Annotated[int, u32.within(0, MAX_GROUPS)]
    group_ids: Annotated[tuple[_GroupMembership, ...] | None, _GROUPS, Related(size_is="group_count")]
    user_flags: Annotated[int, u32]
    user_session_key: Annotated[bytes, Octets(16)]
    logon_server: Annotated[_UnicodeString, _STRING]
    logon_domain_name: Annotated[_UnicodeString, _STRING]
    logon_domain_id: Annotated[_RpcSid | None, _SID]
    reserved1: Annotated[tuple[int, ...], FixedArray(u32, 2)]
    user_account_control: Annotated[int, u32]
    sub_auth_status: Annotated[int, u32]
    last_successful_i_logon: Annotated[bytes, _FILETIME]
    last_failed_i_logon: Annotated[bytes, _FILETIME]
    failed_i_logon_count: Annotated[int, u32]
    reserved3: Annotated[int, u32]
    sid_count: Annotated[int, u32.within(0, MAX_GROUPS)]
    extra_sids: Annotated[
        tuple[_SidAndAttributes, ...] | None,
        Unique(Conformant(Struct(_SidAndAttributes))),
        Related(size_is="sid_count"),
    ]
    resource_group_domain_sid: Annotated[_RpcSid | None, _SID]
    resource_group_count: Annotated[int, u32.within(0, MAX_GROUPS)]
    resource_group_ids: Annotated[tuple[_GroupMembership, ...] | None, _GROUPS, Related(size_is="resource_group_count")]


# A pointer to the structure is serialized (MS-PAC 2.5).
_LOGON_INFO: Final = Unique(Struct(_ValidationInfo))


def read_logon_information(data: bytes) -> LogonInformation:
    """Return the logon information of a PAC. Raises RemoteProtocolError."""
    info: _ValidationInfo | None = deserialize(_LOGON_INFO, data)
    if info is None or info.logon_domain_id is None:
        raise BadStub("logon information without a domain")
    domain = _domain(info.logon_domain_id)
    groups = {domain.child(info.primary_group_id), *_enabled(domain, info.group_ids)}
    extra = [each.sid.sid for each in info.extra_sids or () if each.sid and each.attributes & SE_GROUP_ENABLED]
    if info.resource_group_domain_sid is not None:
        groups.update(_enabled(_domain(info.resource_group_domain_sid), info.resource_group_ids))
    groups.update(extra)
    if info.user_id:
        sid = domain.child(info.user_id)
    elif extra:
        # MS-PAC 2.5, UserId: "if ... equals 0x00000000, the first group SID in this member is the
        # SID for this account".
        sid = extra[0]
    else:
        raise BadStub("logon information without a user")
    # MS-PAC 4.1.2.2: well-known SIDs (Administrators, SYSTEM ...) are never taken from a
    # certificate.
    if not sid.is_account:
        raise BadStub(f"logon information of {sid}, which is no account of a domain")
    return LogonInformation(
        info.logon_domain_name.text,
        info.effective_name.text,
        sid,
        frozenset(group for group in groups if group.is_account),
    )


def _domain(sid: _RpcSid) -> Sid:
    """Return the SID of a domain, the parent of its accounts."""
    domain = sid.sid
    if len(domain.sub_authorities) >= MAX_SUB_AUTHORITIES or not domain.child(0).is_account:
        raise BadStub(f"logon information of {domain}, which is no domain")
    return domain


def _enabled(domain: Sid, groups: tuple[_GroupMembership, ...] | None) -> list[Sid]:
    return [domain.child(each.relative_id) for each in groups or () if each.attributes & SE_GROUP_ENABLED]
