"""NTLM for servers and clients (MS-NLMP 3.1, 3.2, 3.4): additions to pyspnego.

pyspnego compares a client's answer with one that it builds from the parsed fields. So it refuses
clients that lay out the fields differently; this module verifies the received bytes. pyspnego has
no anonymous users, and reads accounts from a file of its own; here they are Lanner's accounts. And
it has no fast way to sign a PDU.
"""

from __future__ import annotations

import hmac
import os
import secrets
import struct
from dataclasses import dataclass
from typing import Final

from spnego import ContextReq, NTLMHash
from spnego._ntlm import NTLMProxy
from spnego._ntlm_raw.crypto import rc4k, sealkey
from spnego._ntlm_raw.messages import Authenticate as AuthenticateMessage
from spnego._ntlm_raw.messages import AvId, Challenge, FileTime, Negotiate, NegotiateFlags, TargetInfo, Version
from spnego.channel_bindings import GssChannelBindings

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.pdu_keys import SIGNATURE_SIZE, VERSION, PduKeys, new_keys
from lanner.rpc.security import Credentials, LogonDelayed, NtlmAccounts, SecurityError, TargetNames
from lanner.security.identity import ANONYMOUS, Identity
from lanner.security.logons import Attempt, LogonRefused, Logons
from lanner.security.md4 import nt_hash as nt_hash_of
from lanner.wire.reader import Reader

MESSAGE_SIGNATURE: Final = b"NTLMSSP\0"
# MS-NLMP 3.4.4.3: replaces the signature of a message if signing was not negotiated.
_DUMMY_SIGNATURE: Final = VERSION + bytes(12)
_U32: Final = struct.Struct("<I")

# MS-NLMP 2.2.2.1.
_MSV_AV_EOL: Final = 0
_MSV_AV_FLAGS: Final = 6
_AV_FLAG_MIC: Final = 0x2
# MS-NLMP 2.2.1.3: the position of the MIC in an AUTHENTICATE_MESSAGE.
_MIC_START: Final = 72
_MIC_END: Final = 88
# MS-NLMP 2.2.2.7, 2.2.2.8: the proof, then the structure up to its AV pairs.
_PROOF_SIZE: Final = 16
_CLIENT_CHALLENGE_SIZE: Final = 28

# The flags that both sides need for signatures. Without them keys have 40 or 56 bits, and
# signatures are a CRC (MS-NLMP 3.4.4.1, 3.4.5.3).
_STRONG: Final = NegotiateFlags.extended_session_security | NegotiateFlags.key_128
# The flags that a server accepts.
_OFFERED: Final = (
    NegotiateFlags.unicode
    | NegotiateFlags.request_target
    | NegotiateFlags.sign
    | NegotiateFlags.seal
    | NegotiateFlags.ntlm
    | NegotiateFlags.always_sign
    | NegotiateFlags.extended_session_security
    | NegotiateFlags.target_info
    | NegotiateFlags.version
    | NegotiateFlags.key_128
    | NegotiateFlags.key_exch
    | NegotiateFlags.key_56
)


@dataclass(frozen=True, slots=True)
class Authenticate:
    """AUTHENTICATE_MESSAGE, MS-NLMP 2.2.1.3, as received."""

    lm_response: bytes
    nt_response: bytes
    domain: str
    user: str
    encrypted_session_key: bytes
    flags: int

    @classmethod
    def unpack(cls, token: bytes) -> Authenticate:
        reader = Reader(token)
        if reader.take(12, "NTLM header") != MESSAGE_SIGNATURE + b"\x03\0\0\0":
            raise RemoteProtocolError("NTLM: an AUTHENTICATE_MESSAGE was expected")
        fields = []
        for what in (
            "LmChallengeResponse",
            "NtChallengeResponse",
            "DomainName",
            "UserName",
            "Workstation",
            "SessionKey",
        ):
            length = reader.u16(what)
            reader.take(2, what)
            offset = reader.u32(what)
            if length and offset + length > len(token):
                raise RemoteProtocolError(f"NTLM {what}: {length} bytes at {offset}, and the message has {len(token)}")
            fields.append(token[offset : offset + length] if length else b"")
        flags = reader.u32("NegotiateFlags")
        encoding = "utf-16-le" if flags & NegotiateFlags.unicode else "ascii"
        try:
            domain, user = fields[2].decode(encoding), fields[3].decode(encoding)
        except UnicodeDecodeError:
            raise RemoteProtocolError("NTLM: the names are no text") from None
        return cls(fields[0], fields[1], domain, user, fields[5], flags)

    @property
    def is_anonymous(self) -> bool:
        """Whether the message names no user and has no response (MS-NLMP 3.2.5.1.2)."""
        return not self.user and not self.nt_response and self.lm_response in (b"", b"\0")


def _av_flags(response: bytes) -> int:
    """Return MsvAvFlags of an NTLMv2 response (MS-NLMP 2.2.2.1); 0 without a list."""
    reader = Reader(response, min(_PROOF_SIZE + _CLIENT_CHALLENGE_SIZE, len(response)))
    while reader.remaining >= 4:
        kind = reader.u16("AvId")
        value = reader.take(reader.u16("AvLen"), "AvPair")
        if kind == _MSV_AV_EOL:
            break
        if kind == _MSV_AV_FLAGS and len(value) == 4:
            found: int = _U32.unpack(value)[0]
            return found
    return 0


class _Ntlm(NTLMProxy):
    """An established context of either side: signatures over PDUs (MS-NLMP 3.4.3, 3.4.4).

    It avoids the cost of IOV lists. With extended session security NTLM signs the whole PDU,
    whatever was negotiated about header signing; all its users do so.
    """

    always_signs_headers: Final = True

    def __init__(self, credential: NTLMHash, host: str | None = None, wanted: ContextReq = ContextReq.none) -> None:
        # MS-RPCE leaves the name of the service to the caller. Windows uses RPCSS for RPC.
        super().__init__(credential, hostname=host, service="RPCSS", context_req=wanted)
        self.identity: Identity = ANONYMOUS
        self.can_sign = False
        self._level = AuthLevel.NONE
        # With extended session security, and if signing was negotiated.
        self._keys_out: PduKeys | None = None
        self._keys_in: PduKeys | None = None

    @property
    def is_complete(self) -> bool:
        return self._complete

    def step(
        self, in_token: bytes | None = None, *, channel_bindings: GssChannelBindings | None = None
    ) -> bytes | None:
        answer: bytes | None = super().step(in_token, channel_bindings=channel_bindings)
        flags = self._context_attr
        self.can_sign = self._complete and bool(flags & NegotiateFlags.sign)
        if self.can_sign and flags & NegotiateFlags.extended_session_security:
            other = "accept" if self.usage == "initiate" else "initiate"
            self._keys_out = self._new_keys(self._sign_key_out, self.usage)
            self._keys_in = self._new_keys(self._sign_key_in, other)
        return answer

    def _new_keys(self, sign_key: bytes | None, usage: str) -> PduKeys:
        flags = self._context_attr
        seal_key = sealkey(flags, self._session_key or b"", usage)
        return new_keys(sign_key or b"", seal_key, bool(flags & NegotiateFlags.key_exch))

    @staticmethod
    def signature_size(*, seal: bool) -> int:
        del seal
        return SIGNATURE_SIZE

    def check_level(self, level: AuthLevel) -> None:
        """Raise SecurityError if the provider cannot give the level (MS-RPCE 3.3.1.5.2.2).

        A missing signature is detected when the first call arrives.
        """
        self._level = level
        if level == AuthLevel.PKT_PRIVACY and not self._context_attr & NegotiateFlags.seal:
            raise SecurityError("NTLM: encryption was not agreed on")
        if level >= AuthLevel.PKT and not self._is_anonymous and not self._is_strong:
            raise SecurityError("NTLM: extended session security and keys of 128 bits were not agreed on")

    @property
    def _is_anonymous(self) -> bool:
        """Whether the keys are public."""
        return self.identity.is_anonymous

    @property
    def _is_strong(self) -> bool:
        return _STRONG & self._context_attr == _STRONG

    def protect(self, header: bytes, stub: bytes, trailer: bytes, *, seal: bool, header_signing: bool = True) -> bytes:
        del header_signing
        if self._keys_out is not None:
            return self._keys_out.protect(header, stub, trailer, seal)
        handle = self._handle_out
        if handle is None or not self.can_sign:
            self._check_unsigned()
            return b"".join((header, stub, trailer, _DUMMY_SIGNATURE))
        # Only anonymous users get here. Their keys are public.
        body = handle.update(stub) if seal else stub
        return b"".join((header, body, trailer, self.sign(stub)))

    def unprotect(self, pdu: bytes, start: int, stop: int, *, seal: bool, header_signing: bool = True) -> bytes:
        del header_signing
        if self._keys_in is not None:
            found = self._keys_in.unprotect(pdu, start, stop, seal)
            if found is None:
                raise SecurityError("NTLM: the signature does not match")
            return found
        stub, token = pdu[start:stop], pdu[-SIGNATURE_SIZE:]
        handle = self._handle_in
        if handle is None or not self.can_sign:
            self._check_unsigned()
            if token != _DUMMY_SIGNATURE:
                raise SecurityError(
                    "NTLM: the signature does not match: signing was not agreed on, and this is not the dummy"
                )
            return stub
        if seal:
            stub = handle.update(stub)
        self.verify(stub, token)
        return stub

    def _check_unsigned(self) -> None:
        """Raise SecurityError unless unsigned messages are allowed."""
        raise SecurityError("NTLM: signatures were not agreed on")

    # RC4 restarts after the signatures over the list of mechanisms, but the sequence numbers
    # continue.

    def sign_mechanisms(self, data: bytes) -> bytes:
        token = self.protect(b"", data, b"", seal=False)[len(data) :]
        if self._keys_out is None:
            self._reset_ntlm_crypto_state(outgoing=True)
        else:
            self._keys_out.restart()
        return token

    def verify_mechanisms(self, data: bytes, token: bytes) -> None:
        self.unprotect(data + token, 0, len(data), seal=False)
        if self._keys_in is None:
            self._reset_ntlm_crypto_state(outgoing=False)
        else:
            self._keys_in.restart()


# A placeholder for the credentials of a client. A server has none.
_NO_CREDENTIAL: Final = NTLMHash(username="", lm_hash=None, nt_hash=None)


class NtlmAcceptor(_Ntlm):
    """A server's NTLM context (MS-NLMP 3.2)."""

    def __init__(
        self,
        accounts: NtlmAccounts,
        names: TargetNames,
        logons: Logons | None = None,
        peer: str = "",
        *,
        requires_mic: bool = False,
    ) -> None:
        """Accept a client at the address `peer`, whose wrong passwords `logons` counts."""
        # pyspnego's acceptor requires its own account file, so this starts as an initiator and
        # switches.
        super().__init__(_NO_CREDENTIAL)
        self.usage = "accept"
        self._accounts = accounts
        self._names = names
        self._negotiate = b""
        self._challenge = b""
        self._server_challenge = b""
        self._logons = Logons() if logons is None else logons
        self._peer = peer
        self._requires_mic = requires_mic
        self._attempt: Attempt | None = None

    def _step_accept_negotiate(self, token: bytes) -> bytes:
        negotiate = Negotiate.unpack(token)
        wanted = negotiate.flags
        if not wanted & NegotiateFlags.unicode:
            raise SecurityError("NTLM: the client does not speak Unicode")
        flags = wanted & _OFFERED | NegotiateFlags.ntlm | NegotiateFlags.always_sign
        flags |= NegotiateFlags.request_target | NegotiateFlags.target_info | NegotiateFlags.target_type_server
        info = TargetInfo()
        info[AvId.nb_domain_name] = self._names.domain
        info[AvId.nb_computer_name] = self._names.computer
        if self._names.dns_domain:
            info[AvId.dns_domain_name] = self._names.dns_domain
        info[AvId.dns_computer_name] = self._names.dns_computer or self._names.computer.lower()
        info[AvId.timestamp] = FileTime.now()
        # MS-NLMP 2.2.1.2: Version is always present, and zero if it was not negotiated. pyspnego
        # omits the field if it has no value, and sets the flag if it has one.
        version = Version.get_current() if flags & NegotiateFlags.version else Version(revision=0)
        self._server_challenge = os.urandom(8)
        challenge = Challenge(
            flags, self._server_challenge, target_name=self._names.computer, target_info=info, version=version
        )
        challenge.flags = flags
        self._temp_negotiate = negotiate
        self._temp_challenge = challenge
        self._negotiate = token
        self._challenge = challenge.pack()
        return self._challenge

    def _step_accept_authenticate(self, token: bytes, channel_bindings: object) -> None:
        del channel_bindings
        message = Authenticate.unpack(token)
        # MS-NLMP 3.2.5.1.2: the keys of anonymous users are zero, so their signatures prove
        # nothing.
        key_exchange_key = bytes(16) if message.is_anonymous else self._verified(message)
        key = key_exchange_key
        if message.flags & NegotiateFlags.key_exch and message.flags & (NegotiateFlags.sign | NegotiateFlags.seal):
            if len(message.encrypted_session_key) != 16:
                raise SecurityError("NTLM: the session key is missing")
            key = rc4k(key_exchange_key, message.encrypted_session_key)
        if not message.is_anonymous:
            if _av_flags(message.nt_response) & _AV_FLAG_MIC:
                self._check_mic(key, token)
            elif self._requires_mic:
                raise SecurityError(f"NTLM: {message.user!r} sent no MIC, and this server requires one")
        if not message.is_anonymous and not message.flags & NegotiateFlags.extended_session_security:
            raise SecurityError("NTLM: the client has no extended session security")
        self._session_key = key
        self._context_attr = message.flags
        self._complete = True

    def _check_unsigned(self) -> None:
        # MS-RPCE 3.3.1.5.2.2: at level packet no part of a PDU is protected, and some clients then
        # do not negotiate signing. Interfaces that require integrity refuse such calls because of
        # their level. Lanner's own clients require signatures.
        if self._level != AuthLevel.PKT or not self._context_attr & NegotiateFlags.always_sign:
            super()._check_unsigned()

    def _verified(self, message: Authenticate) -> bytes:
        """Return the session base key of a user whose password is right (MS-NLMP 3.3.2).

        Only NTLMv2 is accepted.
        """
        response = message.nt_response
        if len(response) < _PROOF_SIZE + _CLIENT_CHALLENGE_SIZE:
            raise SecurityError(f"NTLM: {message.user!r} sent no NTLMv2 response", account=message.user)
        # Clients send user names with or without a domain; accounts have names only.
        name = message.user.partition("@")[0] if not message.domain else message.user
        attempt = self._begin(name)
        known = self._accounts.nt_hash(name)
        identity = self._accounts.identity(name)
        # Checking an unknown name takes as long as checking a wrong password.
        nt_hash = secrets.token_bytes(16) if known is None else known
        key = hmac.digest(nt_hash, (message.user.upper() + message.domain).encode("utf-16-le", "surrogatepass"), "md5")
        proof = hmac.digest(key, self._server_challenge + response[_PROOF_SIZE:], "md5")
        if not hmac.compare_digest(proof, response[:_PROOF_SIZE]) or known is None or identity is None:
            attempt.failed()
            raise SecurityError(f"NTLM: user name or password of {message.user!r} is wrong", account=message.user)
        attempt.succeeded()
        self.identity = identity
        return hmac.digest(key, proof, "md5")

    def _begin(self, name: str) -> Attempt:
        """Return the attempt. Raises LogonDelayed, once, if the user has to wait.

        The step is then repeated, and continues.
        """
        if self._attempt is not None:
            return self._attempt
        try:
            self._attempt = self._logons.begin(name, self._peer, "NTLM")
        except LogonRefused as error:
            raise SecurityError(f"NTLM: {error}", account=name) from error
        if self._attempt.wait:
            raise LogonDelayed(self._attempt.wait)
        return self._attempt

    def _check_mic(self, key: bytes, token: bytes) -> None:
        """Check that the messages arrived unchanged (MS-NLMP 3.2.5.1.2)."""
        if len(token) < _MIC_END:
            raise SecurityError("NTLM: the MIC is missing")
        without = token[:_MIC_START] + bytes(16) + token[_MIC_END:]
        expected = hmac.digest(key, self._negotiate + self._challenge + without, "md5")
        if not hmac.compare_digest(expected, token[_MIC_START:_MIC_END]):
            raise SecurityError("NTLM: the MIC does not fit")


class NtlmInitiator(_Ntlm):
    """A client's NTLM context (MS-NLMP 3.1)."""

    def __init__(self, credentials: Credentials, level: AuthLevel, host: str) -> None:
        wanted = ContextReq.none
        if level >= AuthLevel.PKT:
            wanted |= ContextReq.integrity | ContextReq.replay_detect | ContextReq.sequence_detect
        if level == AuthLevel.PKT_PRIVACY:
            wanted |= ContextReq.confidentiality
        nt_hash = nt_hash_of(credentials.password) if credentials.nt_hash is None else credentials.nt_hash
        name = f"{credentials.domain}\\{credentials.user}" if credentials.domain else credentials.user
        known = NTLMHash(username=name, lm_hash=None, nt_hash=nt_hash.hex())
        super().__init__(known, host, wanted)
        self._has_user = bool(credentials.user)

    @property
    def _is_anonymous(self) -> bool:
        return not self._has_user

    def _step_initiate(
        self, in_token: bytes | None = None, *, channel_bindings: GssChannelBindings | None = None
    ) -> bytes:
        if not self._is_anonymous or not self._temp_negotiate:
            # An empty token starts the exchange.
            return super()._step_initiate(in_token, channel_bindings=channel_bindings)
        # MS-NLMP 3.1.5.1.2: no names, no responses (one zero byte for LM), and a session key of
        # zeros.
        challenge = Challenge.unpack(in_token or b"")
        flags = challenge.flags & ~NegotiateFlags.target_info | NegotiateFlags.anonymous
        self._session_key = bytes(16)
        encrypted = None
        if flags & NegotiateFlags.key_exch and flags & (NegotiateFlags.sign | NegotiateFlags.seal):
            self._session_key = os.urandom(16)
            encrypted = rc4k(bytes(16), self._session_key)
        message = AuthenticateMessage(flags, b"\0", None, encrypted_session_key=encrypted)
        self._context_attr = message.flags
        self._complete = True
        packed: bytes = message.pack()
        return packed
