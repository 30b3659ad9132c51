"""What a security context does for a connection: tokens back and forth, then signatures (MS-RPCE 3.3.1.5.2)."""

from __future__ import annotations

from typing import Protocol

from lanner.model.errors import LannerError
from lanner.rpc.pdu import AuthLevel
from lanner.security.identity import Identity


class SecurityError(LannerError):
    """The security provider refuses: a token, a signature, or a level it cannot give."""


class Protection(Protocol):
    """A finished security context: GSS_WrapEx and GSS_GetMICEx, and their opposites, over the segments of a PDU.

    `header` is everything before the stub, `trailer` the eight bytes of the sec_trailer.
    """

    @property
    def signature_size(self) -> int:
        """Bytes of the authentication token of every PDU."""

    def protect(self, header: bytes, stub: bytes, trailer: bytes, *, header_signing: bool) -> tuple[bytes, bytes]:
        """The stub as it is sent, and the token."""

    def unprotect(self, header: bytes, stub: bytes, trailer: bytes, token: bytes, *, header_signing: bool) -> bytes:
        """The stub as it was; SecurityError if the token does not fit."""


class Acceptor(Protection, Protocol):
    """The server's side of a security context."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def identity(self) -> Identity: ...

    def step(self, token: bytes) -> bytes:
        """The answer to a token, empty if there is none; SecurityError ends it."""


class SecurityProviders(Protocol):
    """The security providers of a server (MS-RPCE 3.1.3.1.1)."""

    def accept(self, auth_type: int, level: AuthLevel) -> Acceptor | None:
        """A new acceptor, None if the authentication type is not offered."""
