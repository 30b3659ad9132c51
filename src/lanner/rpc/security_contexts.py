"""The security contexts of a connection (MS-RPCE 3.3.1.5.2, 3.3.1.5.4).

They are established by bind, alter_context and rpc_auth_3, and then verify the calls that use them.
"""

from __future__ import annotations

import logging
import struct
from typing import Final

from lanner.host.budget import Resource
from lanner.model.errors import RemoteProtocolError
from lanner.rpc.faults import FaultStatus
from lanner.rpc.pdu import (
    PFC_DID_NOT_EXECUTE,
    SEC_TRAILER_SIZE,
    Auth3,
    AuthLevel,
    AuthType,
    Header,
    RejectReason,
    SecTrailer,
)
from lanner.rpc.refusals import Nak, Refused, not_executed
from lanner.rpc.security import Context, SecurityError, SecurityProviders
from lanner.security.identity import ANONYMOUS, Identity
from lanner.security.log_lines import log_of_peer
from lanner.security.peer_address import peer_of

_LOG = logging.getLogger(__name__)

# Not in the specification: the maximum number of contexts of one connection. MS-RPCE 3.3.1.5.4 lets
# a server choose it. Windows allows 2048, and its clients create at most 1000.
MAX_SECURITY_CONTEXTS: Final = 256

_MECHANISMS: Final = {
    int(AuthType.WINNT): "NTLM",
    int(AuthType.DEFAULT): "NTLM",
    int(AuthType.GSS_KERBEROS): "Kerberos",
    int(AuthType.GSS_NEGOTIATE): "Negotiate",
}
_SEC_TRAILER: Final = struct.Struct("<BBBBI")


def _processed_as(level: int) -> int:
    """Return the level at which a PDU is processed; "call" becomes "packet" (MS-RPCE 2.2.1.1.8)."""
    return AuthLevel.PKT if level == AuthLevel.CALL else level


class Busy(Exception):
    """Too many logons are under way."""


class SecurityContext:
    """An acceptor under its auth_context_id, with its state (MS-RPCE 3.3.1.5.2)."""

    __slots__ = (
        "auth_type",
        "context",
        "context_id",
        "identity",
        "is_complete",
        "is_invalid",
        "last_token_size",
        "level",
        "signs",
    )

    def __init__(self, context_id: int, auth_type: int, level: AuthLevel, context: Context) -> None:
        self.context_id = context_id
        self.auth_type = auth_type
        self.level = level
        self.context = context
        self.identity: Identity = ANONYMOUS
        self.is_complete = False
        self.last_token_size = 0
        # MS-RPCE 3.3.1.5.2.1: an rpc_auth_3 has no answer, so the first call reports its failure.
        self.is_invalid = False
        # Samba and Windows treat "packet" as integrity if the client can sign.
        self.signs = level >= AuthLevel.PKT


class SecurityContexts:
    """The security contexts of one connection, by auth_context_id."""

    def __init__(
        self, providers: SecurityProviders | None, limit: int, peer: str, logons: Resource | None = None
    ) -> None:
        """Keep up to `limit` contexts. `logons` counts unfinished logons of all connections."""
        self._providers = providers
        self._limit = limit
        self._peer = peer
        self._logons = logons
        self._under_way: set[int] = set()  # auth_context_ids
        # Whether a user has logged on who is not anonymous.
        self.is_authenticated = False
        # The user who has logged on last, or empty.
        self.user = ""
        self._contexts: dict[int, SecurityContext] = {}
        # MS-RPCE 3.3.1.5.4: calls without a sec_trailer belong to the security context of level
        # connect, if there is one.
        self.default: SecurityContext | None = None
        # MS-RPCE 3.3.1.5.2.2: negotiated once for the whole connection.
        self.header_signing = False

    @property
    def identities(self) -> list[Identity]:
        """The identities of all contexts."""
        return [context.identity for context in self._contexts.values()]

    def bind(self, trailer: SecTrailer | None) -> SecTrailer | None:
        if trailer is None:
            return None
        try:
            level = AuthLevel(_processed_as(trailer.auth_level))
        except ValueError:
            raise Nak(RejectReason.REASON_NOT_SPECIFIED, f"authentication level {trailer.auth_level}") from None
        if level < AuthLevel.CONNECT:
            raise Nak(RejectReason.REASON_NOT_SPECIFIED, f"a token at authentication level {level.name}")
        try:
            acceptor = self._accept(trailer, level)
        except Busy as error:
            raise Nak(RejectReason.TEMPORARY_CONGESTION, str(error)) from error
        if acceptor is None:
            raise Nak(
                RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED, f"authentication type {trailer.auth_type} is not known"
            )
        context = SecurityContext(trailer.auth_context_id, trailer.auth_type, level, acceptor)
        self._contexts[trailer.auth_context_id] = context
        try:
            return self._step(context, trailer)
        except SecurityError as error:
            self._record(context, error)
            raise Nak(RejectReason.INVALID_CHECKSUM, f"authentication: {error}") from error

    def alter(self, trailer: SecTrailer | None) -> SecTrailer | None:
        if trailer is None:
            return None
        context = self._contexts.get(trailer.auth_context_id)
        if context is None:
            context = self._new(trailer)
        else:
            self._check(context, trailer)
        if context.is_complete and len(trailer.token) == context.last_token_size:
            # Samba's client sends its last token again with every later alter_context, from memory
            # that it has freed and partly overwritten. The token is ignored, and nothing changes.
            return None
        if context.is_complete or context.is_invalid:
            # An id can be authenticated only once.
            raise not_executed(FaultStatus.ACCESS_DENIED, "authentication again under the same id")
        try:
            return self._step(context, trailer)
        except SecurityError as error:
            self._ended(context.context_id)
            self._record(context, error)
            raise not_executed(FaultStatus.SEC_PKG_ERROR, f"authentication: {error}") from error

    def _new(self, trailer: SecTrailer) -> SecurityContext:
        if len(self._contexts) >= self._limit:
            raise RemoteProtocolError(f"{len(self._contexts)} security contexts on one connection")
        if not AuthLevel.CONNECT <= trailer.auth_level <= AuthLevel.PKT_PRIVACY:
            raise not_executed(FaultStatus.ACCESS_DENIED, f"authentication level {trailer.auth_level}")
        level = AuthLevel(_processed_as(trailer.auth_level))
        try:
            acceptor = self._accept(trailer, level)
        except Busy as error:
            raise not_executed(FaultStatus.NCA_SERVER_TOO_BUSY, str(error)) from error
        if acceptor is None:
            # MS-RPCE 3.3.3.5.3 requires "authentication_type_not_recognized", which is not a status
            # of a fault.
            raise not_executed(FaultStatus.ACCESS_DENIED, f"authentication type {trailer.auth_type}")
        context = SecurityContext(trailer.auth_context_id, trailer.auth_type, level, acceptor)
        self._contexts[trailer.auth_context_id] = context
        return context

    @staticmethod
    def _check(context: SecurityContext, trailer: SecTrailer) -> None:
        """Check that a later leg agrees with the first (MS-RPCE 3.3.1.5.2.1)."""
        if _processed_as(trailer.auth_level) != context.level or trailer.auth_type == 0:
            raise not_executed(FaultStatus.ACCESS_DENIED, "another authentication level than before")
        if trailer.auth_type != context.auth_type:
            raise not_executed(FaultStatus.SEC_PKG_ERROR, "another authentication type than before")

    def _accept(self, trailer: SecTrailer, level: AuthLevel) -> Context | None:
        """Begin a logon. Return None if there is no such provider.

        Raises Busy if there are too many logons.
        """
        if self._providers is None:
            return None
        if self._logons is not None and not self._logons.take(peer_of(self._peer)):
            raise Busy("too many logons at a time")
        found = self._providers.accept(trailer.auth_type, level, self._peer)
        if found is not None:
            self._under_way.add(trailer.auth_context_id)
        elif self._logons is not None:
            self._logons.give_back(peer_of(self._peer))
        return found

    @property
    def is_logging_on(self) -> bool:
        """Whether a logon is under way."""
        return bool(self._under_way)

    def _ended(self, context_id: int) -> None:
        """Note that a logon has succeeded or failed. Idempotent."""
        if context_id in self._under_way:
            self._under_way.remove(context_id)
            if self._logons is not None:
                self._logons.give_back(peer_of(self._peer))

    def close(self) -> None:
        """End all unfinished logons, because the connection has ended."""
        for context_id in list(self._under_way):
            self._ended(context_id)

    def _step(self, context: SecurityContext, trailer: SecTrailer) -> SecTrailer:
        token = context.context.step(trailer.token)
        if context.context.is_complete:
            self._completed(context, trailer)
        return SecTrailer(context.auth_type, context.level, context.context_id, token)

    def _completed(self, context: SecurityContext, trailer: SecTrailer) -> None:
        context.last_token_size = len(trailer.token)
        context.identity = context.context.identity.at(self._peer)
        context.is_complete = True
        self._ended(context.context_id)
        self.is_authenticated = self.is_authenticated or not context.identity.is_anonymous
        self.user = context.identity.name
        if context.level == AuthLevel.CONNECT and self.default is None:
            self.default = context
        _LOG.debug("%s is %s at level %s", self._peer, context.identity.name, context.level.name)

    def auth3(self, pdu: bytes, header: Header) -> None:
        try:
            auth3 = Auth3.unpack(pdu, header)
        except RemoteProtocolError as error:
            raise Refused(FaultStatus.NCA_FAULT_REMOTE_NO_MEMORY, str(error), flags=PFC_DID_NOT_EXECUTE) from error
        trailer = auth3.trailer
        context = self._contexts.get(trailer.auth_context_id)
        if context is None or context.is_complete or context.is_invalid:
            # So a client cannot try one password after the other.
            raise RemoteProtocolError("rpc_auth_3 without an authentication to complete")
        self._check(context, trailer)
        # The first call that uses the context reports a failure.
        try:
            token = context.context.step(trailer.token)
        except SecurityError as error:
            log_of_peer(_LOG, logging.INFO, "logon", self._peer, "%s: authentication: %s", self._peer, error)
            self._record(context, error)
            self._invalidate(context)
            return
        if token or not context.context.is_complete:
            # There is no answer that could carry it.
            self._invalidate(context)
            return
        self._completed(context, trailer)

    def _record(self, context: SecurityContext, error: SecurityError) -> None:
        if self._providers is not None:
            mechanism = _MECHANISMS.get(context.auth_type, str(context.auth_type))
            self._providers.audit.logon_failed(error.account, self._peer, mechanism, str(error))

    def _invalidate(self, context: SecurityContext) -> None:
        context.is_invalid = True
        self._ended(context.context_id)
        if context.level == AuthLevel.CONNECT and self.default is None:
            self.default = context

    def of_request(
        self, pdu: bytes, auth_length: int, context_id: int, start: int, *, is_little: bool
    ) -> SecurityContext | None:
        """Return the security context of a request's first fragment."""
        if not auth_length:
            found = self.default
        else:
            where = len(pdu) - auth_length - SEC_TRAILER_SIZE
            if where < start:
                raise RemoteProtocolError(f"auth_length {auth_length}")
            auth_type, level, _, _, security_id = _SEC_TRAILER.unpack_from(pdu, where)
            if not is_little:
                security_id = int.from_bytes(pdu[where + 4 : where + 8], "big")
            found = self._contexts.get(security_id)
            if (
                found is None
                or found.auth_type != auth_type
                # Most levels are processed as themselves.
                or (found.level != level and found.level != _processed_as(level))
            ):
                raise Refused(FaultStatus.ACCESS_DENIED, "an unknown security context", context_id=context_id)
        if found is None:
            return None
        if found.is_invalid:
            raise Refused(FaultStatus.ACCESS_DENIED, "authentication had failed", context_id=context_id)
        if not found.is_complete:
            raise not_executed(FaultStatus.NCA_PROTO_ERROR, "a call before the end of authentication")
        return found

    def verified(self, security: SecurityContext, pdu: bytes, auth_length: int, context_id: int, start: int) -> bytes:
        """Return the stub of a signed fragment, decrypted and without padding."""
        where = len(pdu) - auth_length - SEC_TRAILER_SIZE
        if where < start:
            raise RemoteProtocolError(f"auth_length {auth_length}")
        pad = pdu[where + 2]
        if pad > where - start:
            raise RemoteProtocolError(f"auth_pad_length {pad}")
        if not security.signs:
            # MS-RPCE 3.3.1.5.2.2: at level connect the token has no meaning.
            return pdu[start : where - pad]
        try:
            stub = security.context.unprotect(pdu, start, where, header_signing=self.header_signing)
        except SecurityError as error:
            raise Refused(FaultStatus.SEC_PKG_ERROR, f"signature: {error}", context_id=context_id) from error
        return stub[: len(stub) - pad] if pad else stub
