"""SecurityHeader: sender, key, signature, certificate and provider (MS-MQMQ 2.2.20.6)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from lanner.model.enums import SenderIdentifierType
from lanner.model.errors import RemoteProtocolError
from lanner.wire import layout as at
from lanner.wire.reader import Reader, decode_terminated, encode_terminated, padding

_LAYOUT = struct.Struct("<HHHHII")
# MS-MQMQ 2.2.20.6 SenderCertSize: "a value 0x0000FFFF, inclusive".
MAX_SENDER_CERT_SIZE = 0xFFFF


def check_sizes(flags: int, sender: int, key: int, signature: int, certificate: int, provider: int) -> None:
    """Reject sizes that MS-MQMQ 2.2.20.6 forbids.

    The sizes, not Flags.AI, determine presence (in MS-MQQB 4.1.7, AI is 0 and there is a SID).
    """
    sender_type = flags & at.ST_MASK
    if sender_type > SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER:
        raise RemoteProtocolError(f"SecurityHeader.Flags.ST: {sender_type} is not 0, 1 or 2")
    if sender_type == SenderIdentifierType.NONE and sender:
        raise RemoteProtocolError(f"SecurityHeader.SenderIdSize: {sender} with ST 0")
    if sender_type == SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER and sender != 16:
        raise RemoteProtocolError(f"SecurityHeader.SenderIdSize: {sender} is not a GUID's 16")
    if certificate > MAX_SENDER_CERT_SIZE:
        raise RemoteProtocolError(f"SecurityHeader.SenderCertSize: {certificate} is above {MAX_SENDER_CERT_SIZE}")
    if not sender | key | signature | certificate | provider:
        raise RemoteProtocolError("SecurityHeader: every size is 0")


def split_provider_info(info: bytes) -> tuple[int, str]:
    """Return ProviderType and ProviderName."""
    what = "SecurityHeader.SecurityData.ProviderInfo"
    return int.from_bytes(info[:4], "little"), decode_terminated(info[4:], f"{what}.ProviderName")


def join_provider_info(provider_type: int, provider_name: str) -> bytes:
    return provider_type.to_bytes(4, "little") + encode_terminated(provider_name)


@dataclass(frozen=True, slots=True)
class SecurityHeader:
    """The sizes follow from the data. An empty item takes no space."""

    flags: int
    security_id: bytes = b""
    encryption_key: bytes = b""
    signature: bytes = b""
    sender_cert: bytes = b""
    provider_info: bytes = b""

    @property
    def sender_identifier_type(self) -> SenderIdentifierType:
        return SenderIdentifierType(self.flags & at.ST_MASK)

    @property
    def is_body_encrypted(self) -> bool:
        return bool(self.flags & at.EB)

    @property
    def uses_default_provider(self) -> bool:
        return bool(self.flags & at.DE)

    @property
    def authentication_level(self) -> int:
        return (self.flags & at.AS_MASK) >> at.AS_SHIFT

    def pack(self) -> bytes:
        items = (self.security_id, self.encryption_key, self.signature, self.sender_cert, self.provider_info)
        parts = [_LAYOUT.pack(self.flags, *map(len, items))]
        parts += [item + bytes(padding(len(item))) for item in items]
        return b"".join(parts)

    @classmethod
    def unpack(cls, reader: Reader) -> SecurityHeader:
        start = reader.position
        flags, *sizes = _LAYOUT.unpack(reader.take(_LAYOUT.size, "SecurityHeader"))
        check_sizes(flags, *sizes)
        items = []
        for name, size in zip(
            ("SecurityID", "EncryptionKey", "Signature", "SenderCert", "ProviderInfo"), sizes, strict=True
        ):
            items.append(reader.take(size, f"SecurityHeader.SecurityData.{name}"))
            reader.align(4, start, f"SecurityHeader.SecurityData.{name}")
        if items[4]:
            split_provider_info(items[4])
        return cls(flags, *items)
