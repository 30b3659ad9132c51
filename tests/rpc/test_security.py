"""Security contexts: NTLM, SPNEGO, levels, signatures, and what tampering comes to."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spnego._ntlm_raw.messages import NegotiateFlags

from lanner.rpc.client_connection import Answered, Bound, ClientConnection, ClientEvent, Failed
from lanner.rpc.connection import ConnectionLimits
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.fragments import pack_signed_fragments
from lanner.rpc.ntlm import Authenticate, NtlmAcceptor, NtlmInitiator
from lanner.rpc.pdu import (
    NDR20,
    PFC_DID_NOT_EXECUTE,
    PFC_FIRST_FRAG,
    PFC_LAST_FRAG,
    PFC_SUPPORT_HEADER_SIGN,
    PFC_WHOLE,
    Auth3,
    AuthLevel,
    AuthType,
    Bind,
    Header,
    PacketType,
    RejectReason,
    Request,
    SecTrailer,
    assemble,
)
from lanner.rpc.security import Context, Credentials, Mechanism, SecurityError
from lanner.security.identity import ANONYMOUS, Identity
from tests.rpc.harness import (
    ALICE,
    FIRST,
    NAMES,
    PASSWORD,
    SECOND,
    SECURITY,
    USER,
    Accounts,
    Harness,
    alter,
    bind,
    element,
    fault_of,
    nak_of,
    request,
    split,
)

LEVELS = [AuthLevel.CONNECT, AuthLevel.PKT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY]
SIGNED = LEVELS[1:]
TYPES = [AuthType.WINNT, AuthType.GSS_NEGOTIATE]
RIGHT = Credentials(USER, PASSWORD, "MQ")


class Pair:
    """A client and a server, and the bytes between them."""

    def __init__(
        self,
        credentials: Credentials = RIGHT,
        auth_type: AuthType = AuthType.WINNT,
        level: AuthLevel = AuthLevel.PKT_PRIVACY,
    ) -> None:
        self.server = Harness(SECURITY)
        self.client = ClientConnection(credentials=credentials, auth_type=auth_type, level=level, host="qm1")
        self.events: list[ClientEvent] = []
        self.answered = 0

    def pump(self) -> None:
        """Carry bytes until there are no more; calls are echoed."""
        while True:
            out = self.client.data_to_send()
            back = b"".join(self.server.send(out)) if out else b""
            for call in self.server.calls[self.answered :]:
                self.server.connection.respond(call, call.stub)
            self.answered = len(self.server.calls)
            back += b"".join(self.server.sent())
            if not back:
                return
            self.events += self.client.receive(back)

    def bind(self) -> Bound:
        self.client.bind(FIRST)
        self.pump()
        event = self.events[-1]
        assert isinstance(event, Bound), event
        return event

    def call(self, stub: bytes) -> bytes:
        self.client.request(0, 0, stub)
        self.pump()
        event = self.events[-1]
        assert isinstance(event, Answered), event
        return event.stub

    @property
    def identity(self) -> Identity:
        return self.server.calls[-1].identity


@pytest.mark.parametrize("auth_type", TYPES)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [0, 1, 15, 16, 5700, 20_000])
def test_calls_at_every_level(auth_type: AuthType, level: AuthLevel, size: int) -> None:
    pair = Pair(auth_type=auth_type, level=level)
    pair.bind()
    stub = bytes(number % 251 for number in range(size))
    for _ in range(3):
        assert pair.call(stub) == stub
    assert pair.identity == ALICE
    assert pair.server.calls[-1].auth_level == level


@pytest.mark.parametrize("auth_type", TYPES)
@pytest.mark.parametrize("level", LEVELS)
def test_nobody(auth_type: AuthType, level: AuthLevel) -> None:
    """MS-NLMP 3.2.5.1.2: an anonymous user is a user, and not one of ours."""
    pair = Pair(Credentials(), auth_type, level)
    pair.bind()
    assert pair.call(b"stub") == b"stub"
    assert pair.identity == ANONYMOUS


@pytest.mark.parametrize(
    "credentials", [Credentials(USER, "wrong"), Credentials("bob", PASSWORD), Credentials("", "x")]
)
def test_wrong_credentials_with_ntlm_are_reported_to_the_first_call(credentials: Credentials) -> None:
    """MS-RPCE 3.3.1.5.2.1: an rpc_auth_3 has no answer."""
    pair = Pair(credentials)
    pair.bind()
    pair.client.request(0, 0, b"")
    pair.pump()
    if not credentials.user:
        # The anonymous user has no password that could be wrong.
        assert isinstance(pair.events[-1], Answered)
        return
    assert isinstance(pair.events[-1], Failed)
    assert isinstance(pair.events[-1].error, RpcFault)
    assert pair.events[-1].error.status == FaultStatus.ACCESS_DENIED
    assert pair.server.calls == []
    assert pair.server.closed is not None


def test_after_a_wrong_password_at_level_connect_calls_are_refused() -> None:
    """They carry no token, and look like anonymous calls."""
    pair = Pair(Credentials(USER, "wrong"), level=AuthLevel.CONNECT)
    pair.bind()
    assert fault_of(pair.server.send(request(call_id=9))).status == FaultStatus.ACCESS_DENIED
    assert pair.server.calls == []


@pytest.mark.parametrize("level", LEVELS)
def test_no_second_password_is_tried(level: AuthLevel) -> None:
    wrong = Credentials(USER, "wrong")
    server = Harness(SECURITY)
    context = wrong.initiate(AuthType.WINNT, level, "qm1")
    (first,) = server.send(leg(context, b"", 7, PacketType.BIND))
    right = RIGHT.initiate(AuthType.WINNT, level, "qm1")
    right.step(b"")
    for one, is_refused in ((context, False), (right, True)):
        token = one.step(token_of(first))
        answer = server.send(Auth3(SecTrailer(AuthType.WINNT, level, 7, token)).pack(PFC_WHOLE, 50))
        assert bool(answer) == is_refused
    assert server.closed is not None


def test_wrong_credentials_with_spnego_are_reported_at_once() -> None:
    pair = Pair(Credentials(USER, "wrong"), AuthType.GSS_NEGOTIATE)
    pair.client.bind(FIRST)
    pair.pump()
    assert isinstance(pair.events[-1], Failed)
    assert isinstance(pair.events[-1].error, RpcFault)
    assert pair.events[-1].error.status == FaultStatus.SEC_PKG_ERROR


def test_an_nt_hash_is_as_good_as_a_password() -> None:
    pair = Pair(Credentials(USER.upper(), nt_hash=Accounts().nt_hash(USER)))
    pair.bind()
    pair.call(b"")
    assert pair.identity == ALICE


def test_names_with_a_domain_behind_them() -> None:
    pair = Pair(Credentials(f"{USER}@mq.test", PASSWORD))
    pair.bind()
    pair.call(b"")
    assert pair.identity == ALICE


def test_privacy_hides_the_stub() -> None:
    pair = Pair()
    pair.bind()
    pair.client.request(0, 0, b"a secret of some length")
    data = pair.client.data_to_send()
    assert b"a secret" not in data
    pair.server.send(data)
    assert pair.server.calls[-1].stub == b"a secret of some length"
    pair.server.connection.respond(pair.server.calls[-1], b"another secret")
    assert b"another" not in b"".join(pair.server.sent())


@pytest.mark.parametrize("auth_type", TYPES)
@pytest.mark.parametrize("level", SIGNED)
def test_every_byte_of_a_signed_request_counts(auth_type: AuthType, level: AuthLevel) -> None:
    """NTLM with extended session security covers the whole PDU, header signing or not."""
    reference = Pair(auth_type=auth_type, level=level)
    reference.bind()
    reference.client.request(0, 0, b"stub")
    size = len(reference.client.data_to_send())
    for position in range(size):
        # Length and type decide what the bytes are at all; the token's own version is part of it.
        if position in (8, 9):
            continue
        pair = Pair(auth_type=auth_type, level=level)
        pair.bind()
        pair.client.request(0, 0, b"stub")
        data = bytearray(pair.client.data_to_send())
        data[position] ^= 0x01
        pair.server.send(bytes(data))
        assert pair.server.calls == [], position


@pytest.mark.parametrize("level", SIGNED)
def test_a_signed_request_is_not_taken_twice(level: AuthLevel) -> None:
    pair = Pair(level=level)
    pair.bind()
    pair.client.request(0, 0, b"stub")
    data = pair.client.data_to_send()
    pair.server.send(data)
    pair.server.connection.respond(pair.server.calls[0], b"")
    pair.server.sent()
    assert fault_of(pair.server.send(data)).status == FaultStatus.SEC_PKG_ERROR
    assert len(pair.server.calls) == 1


@pytest.mark.parametrize("level", SIGNED)
def test_a_changed_response_is_not_taken(level: AuthLevel) -> None:
    pair = Pair(level=level)
    pair.bind()
    pair.client.request(0, 0, b"stub")
    pair.server.send(pair.client.data_to_send())
    pair.server.connection.respond(pair.server.calls[0], b"answer")
    (pdu,) = pair.server.sent()
    with pytest.raises(SecurityError):
        pair.client.receive(pdu[:25] + bytes([pdu[25] ^ 1]) + pdu[26:])


def test_a_response_without_a_signature_is_not_taken() -> None:
    pair = Pair()
    pair.bind()
    call_id = pair.client.request(0, 0, b"stub")
    plain = Harness().bound()
    plain.send(b"".join(_request(call_id)))
    plain.connection.respond(plain.calls[0], b"answer")
    with pytest.raises(SecurityError, match="without a signature"):
        pair.client.receive(b"".join(plain.sent()))


def _request(call_id: int) -> list[bytes]:
    return [request(call_id=call_id)]


def test_a_call_without_a_signature_is_from_nobody() -> None:
    """MS-RPCE 3.3.1.5.4: only a context of level connect covers calls without a sec_trailer."""
    for level, who in ((AuthLevel.CONNECT, ALICE), (AuthLevel.PKT_PRIVACY, ANONYMOUS)):
        pair = Pair(level=level)
        pair.bind()
        pair.client.data_to_send()
        pair.server.send(_request(9)[0])
        assert pair.identity == who


def test_a_call_without_a_signature_has_no_use_of_handles() -> None:
    """An unsigned call is injected into a connection whose calls are signed.

    It carries a handle that anyone could read there.
    """
    pair = Pair(level=AuthLevel.PKT_INTEGRITY)
    pair.bind()
    pair.call(b"open")
    handle = pair.server.calls[-1].caller.add("orders", "queue")
    pair.call(b"read")
    assert pair.server.calls[-1].caller.get(handle, "queue") == "orders"
    pair.server.send(_request(99)[0])
    slipped_in = pair.server.calls[-1]
    assert slipped_in.call_id == 99
    with pytest.raises(RpcFault, match="CONTEXT_MISMATCH"):
        slipped_in.caller.remove(handle, "queue")
    assert not pair.server.calls[0].caller.includes(slipped_in.caller)
    assert pair.server.calls[0].caller.includes(pair.server.calls[1].caller)


def test_a_password_that_changes_hands_does_not_change_the_level() -> None:
    """A request at another level than its context's is refused."""
    pair = Pair(level=AuthLevel.PKT_PRIVACY)
    pair.bind()
    pair.client.request(0, 0, bytes(16))
    data = bytearray(pair.client.data_to_send())
    data[24 + 16 + 1] = AuthLevel.CONNECT
    assert fault_of(pair.server.send(bytes(data))).status == FaultStatus.ACCESS_DENIED


@pytest.mark.spec("MQAC-2.1-28")
def test_several_security_contexts_on_one_connection() -> None:
    """MS-RPCE 3.3.1.5.4."""
    pair = Pair(level=AuthLevel.PKT_INTEGRITY)
    pair.bind()
    nobody = Credentials().initiate(AuthType.WINNT, AuthLevel.PKT_PRIVACY, "qm1")
    (first,) = pair.server.send(leg(nobody, b"", 77))
    (last,) = pair.server.send(leg(nobody, token_of(first), 77))
    assert Header.unpack(last).packet_type == PacketType.ALTER_CONTEXT_RESP
    assert pair.call(b"alice") == b"alice"
    assert pair.identity == ALICE
    signer = Signer(AuthType.WINNT, 77, nobody)
    pdus = pack_signed_fragments(PacketType.REQUEST, 99, bytes(4), b"nobody", 5840, signer, header_signing=True)
    pair.server.send(b"".join(pdus))
    assert (pair.server.calls[-1].stub, pair.identity) == (b"nobody", ANONYMOUS)


class Signer:
    def __init__(self, auth_type: int, context_id: int, context: Context) -> None:
        self.auth_type = auth_type
        self.context_id = context_id
        self.context = context


def leg(context: Context, token: bytes, context_id: int, kind: PacketType = PacketType.ALTER_CONTEXT) -> bytes:
    trailer = SecTrailer(AuthType.WINNT, context.level, context_id, context.step(token))
    return Bind(5840, 5840, 0, (element(9, SECOND),), trailer).pack(kind, PFC_WHOLE, 50)


def token_of(pdu: bytes) -> bytes:
    header = Header.unpack(pdu)
    return pdu[len(pdu) - header.auth_length :]


@pytest.mark.parametrize(("change", "is_refused"), [(0, False), (1, True)])
def test_a_token_for_a_finished_context(change: int, is_refused: bool) -> None:
    """No client authenticates twice under one id.

    Samba's client repeats a token of the length of its last one; such a token is not read.
    """
    server = Harness(SECURITY)
    context = RIGHT.initiate(AuthType.WINNT, AuthLevel.PKT_INTEGRITY, "qm1")
    (first,) = server.send(leg(context, b"", 7, PacketType.BIND))
    last = leg(context, token_of(first), 7)
    server.send(last)
    trailer = SecTrailer(AuthType.WINNT, context.level, 7, bytes(len(token_of(last)) + change))
    answer = server.send(
        Bind(5840, 5840, 0, (element(9, SECOND),), trailer).pack(PacketType.ALTER_CONTEXT, PFC_WHOLE, 50)
    )
    if is_refused:
        assert fault_of(answer).status == FaultStatus.ACCESS_DENIED
        assert server.closed is not None
    else:
        assert Header.unpack(answer[0]).packet_type == PacketType.ALTER_CONTEXT_RESP
        signer = Signer(AuthType.WINNT, 7, context)
        pdus = pack_signed_fragments(PacketType.REQUEST, 99, b"\x09\0\0\0", b"x", 5840, signer, header_signing=True)
        server.send(b"".join(pdus))
        assert server.calls[-1].identity == ALICE


@pytest.mark.parametrize("asks", [False, True])
def test_header_signing_may_be_agreed_on_later(asks: bool) -> None:
    """MS-RPCE 3.3.1.5.2.2: with the bind or with an alter_context."""
    server = Harness(SECURITY).bound()
    flags = PFC_WHOLE | (PFC_SUPPORT_HEADER_SIGN if asks else 0)
    (answer,) = server.send(alter(element(9, SECOND), flags=flags))
    assert Header.unpack(answer).flags == flags
    assert server.connection._security.header_signing == asks


def test_fragments_at_level_connect_may_have_tokens_that_mean_nothing() -> None:
    """MS-RPCE 3.3.1.5.2.2; they and their padding are no part of the stub."""
    pair = Pair(level=AuthLevel.CONNECT)
    pair.bind()
    for first, second in ((True, True), (True, False), (False, True)):
        for part, flags, has_token in ((b"one ", PFC_FIRST_FRAG, first), (b"two", PFC_LAST_FRAG, second)):
            trailer = SecTrailer(AuthType.WINNT, AuthLevel.CONNECT, 0, bytes(16), 5) if has_token else None
            body = Request(0, 0, 0).pack_front() + part + (bytes(5) if has_token else b"")
            pair.server.send(assemble(PacketType.REQUEST, flags, 77, body, trailer))
        call = pair.server.calls[-1]
        assert (call.stub, call.identity) == (b"one two", ALICE)
        pair.server.connection.respond(call, b"")


def test_security_contexts_have_a_limit() -> None:
    server = Harness(SECURITY, limits=ConnectionLimits(max_security_contexts=2))
    for context_id in range(2):
        context = RIGHT.initiate(AuthType.WINNT, AuthLevel.PKT_PRIVACY, "qm1")
        kind = PacketType.ALTER_CONTEXT if context_id else PacketType.BIND
        server.send(leg(context, b"", context_id, kind))
    context = RIGHT.initiate(AuthType.WINNT, AuthLevel.PKT_PRIVACY, "qm1")
    told = fault_of(server.send(leg(context, b"", 2)))
    assert (told.status, told.flags) == (FaultStatus.NCA_PROTO_ERROR, PFC_WHOLE | PFC_DID_NOT_EXECUTE)


@pytest.mark.parametrize(
    ("auth_type", "level", "reason"),
    [
        (AuthType.WINNT, 0, RejectReason.REASON_NOT_SPECIFIED),
        (AuthType.WINNT, AuthLevel.NONE, RejectReason.REASON_NOT_SPECIFIED),
        (AuthType.WINNT, 7, RejectReason.REASON_NOT_SPECIFIED),
        (AuthType.NONE, AuthLevel.CONNECT, RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED),
        (AuthType.GSS_SCHANNEL, AuthLevel.CONNECT, RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED),
        (AuthType.GSS_KERBEROS, AuthLevel.CONNECT, RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED),
        (AuthType.WINNT, AuthLevel.CONNECT, RejectReason.INVALID_CHECKSUM),
        (AuthType.GSS_NEGOTIATE, AuthLevel.CONNECT, RejectReason.INVALID_CHECKSUM),
    ],
)
def test_binds_that_cannot_be_authenticated(auth_type: int, level: int, reason: RejectReason) -> None:
    """MS-RPCE 2.2.2.5, 3.3.3.5.3."""
    server = Harness(SECURITY)
    trailer = SecTrailer(auth_type, level, 0, b"no token of anything")
    pdu = Bind(5840, 5840, 0, (element(),), trailer).pack(PacketType.BIND, PFC_WHOLE, 1)
    assert nak_of(server.send(pdu)).reject_reason == reason
    assert server.closed is not None


def test_a_server_without_providers_authenticates_nobody() -> None:
    server = Harness(None)
    trailer = SecTrailer(AuthType.WINNT, AuthLevel.CONNECT, 0, b"token")
    pdu = Bind(5840, 5840, 0, (element(),), trailer).pack(PacketType.BIND, PFC_WHOLE, 1)
    assert nak_of(server.send(pdu)).reject_reason == RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED


def test_a_client_does_not_continue_without_authentication() -> None:
    """An attacker answers for the server and leaves out the token."""
    client = ClientConnection(credentials=RIGHT, level=AuthLevel.PKT_PRIVACY)
    client.bind(FIRST)
    client.data_to_send()
    plain = Harness()
    answer = b"".join(plain.send(bind(element(0, FIRST, NDR20), element(1, FIRST, NDR20))))
    with pytest.raises(SecurityError, match="does not authenticate"):
        client.receive(answer)


@pytest.mark.parametrize("is_needed", [False, True])
def test_a_client_insists_on_signed_headers_where_nothing_else_covers_them(
    monkeypatch: pytest.MonkeyPatch, is_needed: bool
) -> None:
    """An attacker in between removes the flag from the bind_ack.

    With Kerberos, the attacker could then change operation numbers.
    """
    monkeypatch.setattr(NtlmInitiator, "always_signs_headers", not is_needed)
    pair = Pair()
    pair.client.bind(FIRST)
    (ack,) = pair.server.send(pair.client.data_to_send())
    assert ack[3] & PFC_SUPPORT_HEADER_SIGN
    changed = ack[:3] + bytes([ack[3] & ~PFC_SUPPORT_HEADER_SIGN]) + ack[4:]
    if is_needed:
        with pytest.raises(SecurityError, match="sign headers"):
            pair.client.receive(changed)
    else:
        assert isinstance(pair.client.receive(changed)[0], Bound)


def test_a_client_is_told_of_a_refused_bind() -> None:
    client = ClientConnection(credentials=RIGHT, level=AuthLevel.PKT_PRIVACY)
    client.bind(FIRST)
    (event,) = client.receive(b"".join(Harness(None).send(client.data_to_send())))
    assert isinstance(event, Failed)
    assert isinstance(event.error, RpcConnectionError)
    assert "authentication_type_not_recognized" in str(event.error)


# MS-NLMP 4.2.1 and 4.2.4: the example with "User", "Domain", "Password", NTLMv2.
SERVER_CHALLENGE = bytes.fromhex("0123456789abcdef")
NT_PROOF = bytes.fromhex("68cd0ab851e51c96aabc927bebef6a1c")
CLIENT_BLOB = bytes.fromhex(
    "0101000000000000" "0000000000000000" "aaaaaaaaaaaaaaaa" "00000000"
    "02000c0044006f006d00610069006e00" "01000c00530065007200760065007200" "00000000" "00000000"
)  # fmt: skip
SESSION_BASE_KEY = bytes.fromhex("8de40ccadbc14a82f15cb0ad0de95ca3")


class ExampleAccounts:
    def nt_hash(self, name: str) -> bytes | None:
        from lanner.security.md4 import nt_hash

        return nt_hash("Password") if name == "User" else None

    def identity(self, name: str) -> Identity | None:
        return ALICE


def test_the_example_of_the_document_is_accepted() -> None:
    """MS-NLMP 4.2.4.2.2: the proof is over the received bytes.

    They may end with four zero bytes or not.
    """
    acceptor = NtlmAcceptor(ExampleAccounts(), NAMES)
    acceptor._server_challenge = SERVER_CHALLENGE
    message = Authenticate(b"", NT_PROOF + CLIENT_BLOB, "Domain", "User", b"", 0)
    assert acceptor._verified(message) == SESSION_BASE_KEY


@pytest.mark.parametrize("position", [0, 15, 16, 40, -1])
def test_a_changed_proof_is_refused(position: int) -> None:
    acceptor = NtlmAcceptor(ExampleAccounts(), NAMES)
    acceptor._server_challenge = SERVER_CHALLENGE
    response = bytearray(NT_PROOF + CLIENT_BLOB)
    response[position] ^= 1
    with pytest.raises(SecurityError, match="wrong"):
        acceptor._verified(Authenticate(b"", bytes(response), "Domain", "User", b"", 0))


def test_older_responses_are_refused() -> None:
    """NTLMv1 and LM responses have 24 bytes."""
    acceptor = NtlmAcceptor(ExampleAccounts(), NAMES)
    with pytest.raises(SecurityError, match="NTLMv2"):
        acceptor._verified(Authenticate(bytes(24), bytes(24), "Domain", "User", b"", 0))


def handshake() -> tuple[Context, bytes]:
    """A server's context that waits for an AUTHENTICATE_MESSAGE, and the right one."""
    server = SECURITY.accept(AuthType.WINNT, AuthLevel.PKT_PRIVACY)
    assert server is not None
    client = RIGHT.initiate(AuthType.WINNT, AuthLevel.PKT_PRIVACY, "qm1")
    return server, client.step(server.step(client.step(b"")))


def test_the_challenge_names_this_queue_manager() -> None:
    server = SECURITY.accept(AuthType.WINNT, AuthLevel.CONNECT)
    assert server is not None
    challenge = server.step(RIGHT.initiate(AuthType.WINNT, AuthLevel.CONNECT, "qm1").step(b""))
    for name in (NAMES.computer, NAMES.domain, NAMES.dns_computer, NAMES.dns_domain):
        assert name.encode("utf-16-le") in challenge


@pytest.mark.parametrize("wants_version", [True, False])
def test_the_challenge_always_has_eight_octets_of_version(wants_version: bool) -> None:
    """MS-NLMP 2.2.1.2: the version field is always present.

    Without NTLMSSP_NEGOTIATE_VERSION it is zero, and what follows begins after it.
    """
    server = SECURITY.accept(AuthType.WINNT, AuthLevel.CONNECT)
    assert server is not None
    client = NtlmInitiator(RIGHT, AuthLevel.CONNECT, "qm1")
    negotiate = client.step(b"")
    assert negotiate is not None
    flags = struct.unpack_from("<I", negotiate, 12)[0]
    wanted = flags | NegotiateFlags.version if wants_version else flags & ~NegotiateFlags.version
    challenge = server.step(negotiate[:12] + struct.pack("<I", wanted) + negotiate[16:])
    assert bool(struct.unpack_from("<I", challenge, 20)[0] & NegotiateFlags.version) == wants_version
    assert (challenge[48:56] != bytes(8)) == wants_version
    # NTLMRevisionCurrent, 2.2.2.10
    assert challenge[55:56] == (b"\x0f" if wants_version else b"\0")
    (name_size, name_at), (info_size, info_at) = (struct.unpack_from("<H2xI", challenge, at) for at in (12, 40))
    assert challenge[name_at : name_at + name_size].decode("utf-16-le") == NAMES.computer
    assert min(name_at, info_at) == 56
    assert challenge[info_at : info_at + info_size].endswith(bytes(4))


class WithoutSigning(NtlmInitiator):
    """A client that does not negotiate signatures (its level is connect).

    It sends what MS-NLMP 3.4.4.3 prescribes instead.
    """

    def __init__(self) -> None:
        super().__init__(RIGHT, AuthLevel.CONNECT, "qm1")

    def check_level(self, level: AuthLevel) -> None:
        del level


DUMMY = b"\1" + bytes(15)


def unsigned_request(level: int, token: bytes, kind: PacketType = PacketType.BIND) -> tuple[Harness, list[bytes]]:
    """Return the server's answer to a client that has not negotiated signing."""
    server = Harness(SECURITY)
    if kind == PacketType.ALTER_CONTEXT:
        server.send(bind(element()))
    client = WithoutSigning()
    first = client.step(b"")
    assert first is not None
    pdu = Bind(5840, 5840, 0, (element(),), SecTrailer(AuthType.WINNT, level, 7, first)).pack(kind, PFC_WHOLE, 1)
    (ack,) = server.send(pdu)
    last = client.step(token_of(ack))
    assert last is not None
    server.send(Auth3(SecTrailer(AuthType.WINNT, level, 7, last)).pack(PFC_WHOLE, 1))
    body = Request(0, 0, 0).pack_front() + b"sixteen octets.."
    answer = server.send(assemble(PacketType.REQUEST, PFC_WHOLE, 2, body, SecTrailer(AuthType.WINNT, level, 7, token)))
    return server, answer


@pytest.mark.parametrize("kind", [PacketType.BIND, PacketType.ALTER_CONTEXT])
@pytest.mark.parametrize("level", [AuthLevel.PKT, AuthLevel.CALL])
def test_at_level_packet_a_client_may_send_the_dummy_signature(level: AuthLevel, kind: PacketType) -> None:
    """MS-NLMP 3.4.4.3; MS-RPCE 2.2.1.1.8 has servers process "call" as "packet"."""
    server, _ = unsigned_request(level, DUMMY, kind)
    (call,) = server.calls
    assert (call.stub, call.identity, call.auth_level) == (b"sixteen octets..", ALICE, AuthLevel.PKT)
    server.connection.respond(call, b"answer of sixte.")
    (response,) = server.sent()
    assert response.endswith(DUMMY)
    assert b"answer of sixte." in response


@pytest.mark.parametrize("token", [bytes(16), DUMMY[:-1] + b"\1", DUMMY[:-1], DUMMY + b"\0"])
def test_another_signature_is_not_the_dummy(token: bytes) -> None:
    server, answer = unsigned_request(AuthLevel.PKT, token)
    assert fault_of(answer).status == FaultStatus.SEC_PKG_ERROR
    assert server.calls == []


def test_the_dummy_signature_is_no_signature_at_integrity() -> None:
    server, answer = unsigned_request(AuthLevel.PKT_INTEGRITY, DUMMY)
    assert fault_of(answer).status == FaultStatus.SEC_PKG_ERROR
    assert server.calls == []


def test_a_client_that_signs_may_not_send_the_dummy_signature() -> None:
    pair = Pair(level=AuthLevel.PKT)
    pair.bind()
    pair.call(b"signed")
    body = Request(0, 0, 0).pack_front() + b"sixteen octets.."
    pdu = assemble(PacketType.REQUEST, PFC_WHOLE, 9, body, SecTrailer(AuthType.WINNT, AuthLevel.PKT, 0, DUMMY))
    assert fault_of(pair.server.send(pdu)).status == FaultStatus.SEC_PKG_ERROR


def test_our_clients_accept_no_dummy_signature() -> None:
    """An attacker in between may have removed the flag."""
    client = NtlmInitiator(RIGHT, AuthLevel.PKT, "qm1")
    server = SECURITY.accept(AuthType.WINNT, AuthLevel.PKT)
    assert server is not None
    negotiate = client.step(b"")
    assert negotiate is not None
    challenge = bytearray(server.step(negotiate))
    flags = struct.unpack_from("<I", challenge, 20)[0] & ~(NegotiateFlags.sign | NegotiateFlags.seal)
    struct.pack_into("<I", challenge, 20, flags)
    client.step(bytes(challenge))
    client.check_level(AuthLevel.PKT)
    with pytest.raises(SecurityError, match="not agreed on"):
        client.protect(b"", b"", b"", seal=False)
    with pytest.raises(SecurityError, match="not agreed on"):
        client.unprotect(DUMMY, 0, 0, seal=False)


@pytest.mark.parametrize("level", LEVELS)
def test_ntlm_may_come_without_spnego_around_it(level: AuthLevel) -> None:
    """Under auth_type 9 Windows' servers accept a bare NTLM message.

    Windows' clients send one where they know no other mechanism.
    """
    server = SECURITY.accept(AuthType.GSS_NEGOTIATE, level)
    assert server is not None
    client = RIGHT.initiate(AuthType.WINNT, level, "qm1")
    challenge = server.step(client.step(b""))
    assert challenge.startswith(b"NTLMSSP\0\2")
    assert server.step(client.step(challenge)) == b""
    assert (server.is_complete, server.identity) == (True, ALICE)
    if level > AuthLevel.CONNECT:
        pdu = client.protect(b"head", b"stub", b"trailer.", header_signing=True)
        assert server.unprotect(pdu, 4, 8, header_signing=True) == b"stub"


def test_bare_ntlm_does_not_follow_spnego() -> None:
    server = SECURITY.accept(AuthType.GSS_NEGOTIATE, AuthLevel.PKT_PRIVACY)
    assert server is not None
    server.step(RIGHT.initiate(AuthType.GSS_NEGOTIATE, AuthLevel.PKT_PRIVACY, "qm1").step(b""))
    with pytest.raises(SecurityError):
        server.step(RIGHT.initiate(AuthType.WINNT, AuthLevel.PKT_PRIVACY, "qm1").step(b""))


def test_a_wrong_password_in_bare_ntlm_is_refused() -> None:
    server = SECURITY.accept(AuthType.GSS_NEGOTIATE, AuthLevel.PKT_PRIVACY)
    assert server is not None
    client = Credentials(USER, "wrong", "MQ").initiate(AuthType.WINNT, AuthLevel.PKT_PRIVACY, "qm1")
    challenge = server.step(client.step(b""))
    with pytest.raises(SecurityError, match="wrong"):
        server.step(client.step(challenge))
    assert not server.is_complete


def test_the_mic_covers_every_message() -> None:
    """MS-NLMP 3.2.5.1.2: a changed flag in the last message is detected.

    No response covers that flag.
    """
    server, message = handshake()
    changed = bytearray(message)
    changed[72] ^= 1
    with pytest.raises(SecurityError, match="MIC"):
        server.step(bytes(changed))
    server, message = handshake()
    flags = struct.unpack_from("<I", message, 60)[0]
    with pytest.raises(SecurityError):
        # Without encryption, which the MIC would show first.
        server.step(message[:60] + struct.pack("<I", flags & ~0x20) + message[64:])


@pytest.mark.parametrize("flag", ["extended_session_security", "key_128", "sign", "seal"])
@pytest.mark.parametrize("level", [AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY])
def test_what_makes_signatures_weak_or_none_is_refused_by_both_sides(flag: str, level: AuthLevel) -> None:
    """A very old peer does not support it, or an attacker in between removed it."""
    missing = NegotiateFlags[flag]
    if flag == "seal" and level is AuthLevel.PKT_INTEGRITY:
        return
    server = SECURITY.accept(AuthType.WINNT, level)
    assert server is not None
    weak = NtlmInitiator(RIGHT, level, "qm1")
    weak._context_req &= ~missing
    negotiate = weak.step(b"")
    assert negotiate is not None
    challenge = server.step(negotiate)
    assert not struct.unpack_from("<I", challenge, 20)[0] & missing
    client = RIGHT.initiate(AuthType.WINNT, level, "qm1")
    client.step(b"")
    authenticate = weak.step(challenge)
    assert authenticate is not None
    for context, token in ((client, challenge), (server, authenticate)):
        if flag == "sign":
            # It shows when the first call is signed.
            context.step(token)
            with pytest.raises(SecurityError, match="signatures were not agreed on"):
                context.protect(b"", b"", b"", header_signing=True)
        else:
            with pytest.raises(SecurityError, match=r"agreed on|extended session security"):
                context.step(token)


def test_a_password_proven_elsewhere_is_not_taken_again() -> None:
    """An rpc_auth_3 that was seen on another connection, and one that was used already."""
    _, message = handshake()
    server, _ = handshake()
    with pytest.raises(SecurityError):
        server.step(message)
    pair = Pair()
    pair.bind()
    assert pair.server.closed is None
    again = Auth3(SecTrailer(AuthType.WINNT, AuthLevel.PKT_PRIVACY, 0, message)).pack(PFC_WHOLE, 1)
    assert fault_of(pair.server.send(again)).status == FaultStatus.NCA_PROTO_ERROR
    assert pair.server.closed is not None


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2000), st.integers(0, 255), st.booleans())
def test_any_change_of_a_token_is_refused_or_harmless(position: int, value: int, cut: bool) -> None:
    server, message = handshake()
    position %= len(message)
    changed = message[:position] if cut else message[:position] + bytes([value]) + message[position + 1 :]
    try:
        server.step(changed)
    except SecurityError:
        return
    assert changed == message or server.identity == ALICE


@settings(deadline=None)
@given(st.binary(max_size=300), st.sampled_from(TYPES), st.booleans())
def test_any_bytes_are_a_token_or_refused(data: bytes, auth_type: AuthType, later: bool) -> None:
    for prefix in (b"", b"NTLMSSP\0\1\0\0\0", b"NTLMSSP\0\3\0\0\0", b"\x60\x82", b"\xa1\x82"):
        server = SECURITY.accept(auth_type, AuthLevel.PKT_PRIVACY)
        assert server is not None
        if later:
            server.step(RIGHT.initiate(auth_type, AuthLevel.PKT_PRIVACY, "qm1").step(b""))
        try:
            server.step(prefix + data)
        except SecurityError:
            continue
        assert not server.is_complete


def test_a_context_that_is_not_finished_protects_nothing() -> None:
    server, _ = handshake()
    for use in _uses(server):
        with pytest.raises(SecurityError):
            use()


def _uses(context: Context) -> list[Callable[[], object]]:
    return [
        lambda: context.signature_size,
        lambda: context.protect(b"", b"", b"", header_signing=True),
        lambda: context.unprotect(b"", 0, 0, header_signing=True),
    ]


def test_spnego_takes_a_second_mechanism_with_a_signed_list() -> None:
    """RFC 4178 4.2.2: the server may not like the first mechanism; then the list is signed."""
    from lanner.rpc.negotiate import KERBEROS_OID, NTLM_OID, NegotiateInitiator

    class Unknown:
        is_complete = False

        def step(self, token: bytes, /) -> bytes:
            return b"a token of another mechanism"

    unknown: Mechanism = Unknown()  # type: ignore[assignment]  # its token is all that is used
    ntlm = NtlmInitiator(RIGHT, AuthLevel.PKT_PRIVACY, "qm1")
    client = NegotiateInitiator([(KERBEROS_OID, unknown), (NTLM_OID, ntlm)])
    server = SECURITY.accept(AuthType.GSS_NEGOTIATE, AuthLevel.PKT_PRIVACY)
    assert server is not None
    token = b""
    while not client.is_complete:
        token = server.step(client.step(token))
        if server.is_complete:
            client.step(token)
    assert server.identity == ALICE


def test_split_finds_every_pdu() -> None:
    pair = Pair()
    pair.bind()
    pair.client.request(0, 0, bytes(20_000))
    assert len(split(pair.client.data_to_send())) == 4
