"""SPNEGO (RFC 4178, MS-SPNG) around NTLM and Kerberos, for servers and clients: auth_type 9.

Only pyspnego's token codec is used. Its own negotiation signs the list of mechanisms even if the
mechanism cannot sign (level connect), and refuses clients that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from spnego._spnego import NegState, NegTokenInit, NegTokenResp, pack_mech_type_list, unpack_token

from lanner.rpc.ntlm import MESSAGE_SIGNATURE
from lanner.rpc.security import Mechanism, SecurityError

NTLM_OID: Final = "1.3.6.1.4.1.311.2.2.10"
KERBEROS_OID: Final = "1.2.840.113554.1.2.2"
# MS-SPNG 1.9: the OID that Windows 2000 used by mistake, and that later versions offer first.
MS_KERBEROS_OID: Final = "1.2.840.48018.1.2.2"


class Negotiator:
    """One side of a negotiation. `mechanism` is the agreed one."""

    def __init__(self) -> None:
        self._chosen: Mechanism | None = None
        self._offered: list[str] = []
        self._is_complete = False

    @property
    def mechanism(self) -> Mechanism:
        if self._chosen is None:
            raise SecurityError("SPNEGO: no mechanism is chosen")
        return self._chosen

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    @property
    def _list(self) -> bytes:
        # DER has only one encoding of the list, so these are the octets that the other side has
        # sent.
        return pack_mech_type_list(self._offered)

    def _verify(self, mic: bytes) -> None:
        # RFC 4178 5: a mechanism that does not sign leaves the list unprotected. The token that
        # clients then send is not a signature.
        if self.mechanism.can_sign:
            self.mechanism.verify_mechanisms(self._list, mic)

    def _sign(self) -> bytes:
        return self.mechanism.sign_mechanisms(self._list)


class NegotiateAcceptor(Negotiator):
    """The server's side. `mechanisms` maps OIDs to factories, preferred ones first."""

    def __init__(self, mechanisms: Mapping[str, Callable[[], Mechanism]]) -> None:
        super().__init__()
        self._mechanisms = mechanisms
        self._needs_mic = False
        self._is_bare = False

    def step(self, token: bytes) -> bytes:
        if self._is_bare or (self._chosen is None and token.startswith(MESSAGE_SIGNATURE)):
            return self._step_bare(token)
        message = unpack_token(token)
        if self._chosen is None:
            if not isinstance(message, NegTokenInit):
                raise SecurityError("SPNEGO: a NegTokenInit was expected")
            return self._begin(message)
        if not isinstance(message, NegTokenResp):
            raise SecurityError("SPNEGO: a NegTokenResp was expected")
        if message.neg_state == NegState.reject:
            raise SecurityError("SPNEGO: the client refuses")
        return self._go_on(message)

    def _step_bare(self, token: bytes) -> bytes:
        """Handle NTLM without SPNEGO around it, which Windows' Negotiate accepts too.

        There is no list that could be tampered with.
        """
        if self._chosen is None:
            self._is_bare = True
            self._chosen = self._mechanisms[NTLM_OID]()
        answer = self._chosen.step(token) or b""
        self._is_complete = self._chosen.is_complete
        return answer

    def _begin(self, message: NegTokenInit) -> bytes:
        self._offered = message.mech_types
        oid = next((one for one in self._offered if one in self._mechanisms), None)
        if oid is None:
            raise SecurityError(f"SPNEGO: none of {', '.join(self._offered)} is known here")
        self._chosen = self._mechanisms[oid]()
        if oid != self._offered[0]:
            # RFC 4178 4.2.2: the token is of another mechanism, and an attacker may have changed
            # the order.
            self._needs_mic = True
            return self._packed(NegState.request_mic, oid, None)
        answer = self._chosen.step(message.mech_token or b"")
        return self._packed(NegState.accept_incomplete, oid, answer)

    def _go_on(self, message: NegTokenResp) -> bytes:
        mechanism = self.mechanism
        answer = None
        if message.response_token and not mechanism.is_complete:
            answer = mechanism.step(message.response_token)
        if not mechanism.is_complete:
            return self._packed(NegState.accept_incomplete, None, answer)
        mic = None
        if message.mech_list_mic is not None:
            self._verify(message.mech_list_mic)
            mic = self._sign() if mechanism.can_sign else None
        elif self._needs_mic:
            raise SecurityError("SPNEGO: the list of mechanisms is not signed")
        self._is_complete = True
        return self._packed(NegState.accept_complete, None, answer, mic)

    @staticmethod
    def _packed(state: NegState, oid: str | None, token: bytes | None, mic: bytes | None = None) -> bytes:
        packed: bytes = NegTokenResp(state, oid, token or None, mic).pack()
        return packed


class NegotiateInitiator(Negotiator):
    """The client's side, with mechanisms in the order of preference.

    The first token is the preferred mechanism's.
    """

    def __init__(self, mechanisms: Sequence[tuple[str, Mechanism]]) -> None:
        super().__init__()
        self._mechanisms = dict(mechanisms)
        self._offered = list(self._mechanisms)
        self._has_begun = False

    def step(self, token: bytes) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            self._chosen = self._mechanisms[self._offered[0]]
            first: bytes = NegTokenInit(self._offered, mech_token=self._chosen.step(b"")).pack()
            return first
        message = unpack_token(token)
        if not isinstance(message, NegTokenResp) or message.neg_state == NegState.reject:
            raise SecurityError("SPNEGO: the server refuses")
        answer: bytes | None = None
        if message.supported_mech is not None and message.supported_mech != self._offered[0]:
            if message.supported_mech not in self._mechanisms:
                raise SecurityError(f"SPNEGO: the server chose {message.supported_mech}, which was not offered")
            self._chosen = self._mechanisms[message.supported_mech]
            answer = self._chosen.step(b"")
        elif message.response_token and not self.mechanism.is_complete:
            answer = self.mechanism.step(message.response_token)
        if message.neg_state == NegState.accept_complete:
            if not self.mechanism.is_complete:
                raise SecurityError("SPNEGO: the server is done too early")
            if self.mechanism.can_sign and message.mech_list_mic is not None:
                self.mechanism.verify_mechanisms(self._list, message.mech_list_mic)
            self._is_complete = True
            return b""
        mic = self._sign() if self.mechanism.is_complete and self.mechanism.can_sign else None
        packed: bytes = NegTokenResp(response_token=answer or None, mech_list_mic=mic).pack()
        return packed
