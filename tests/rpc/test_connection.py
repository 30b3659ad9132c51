"""A server connection: binds, calls, fragments, cancels, faults.

`tests/interop` has what Samba thinks of the same.
"""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from lanner.rpc.calls import MAX_REQUEST_SIZE, CallCancelled
from lanner.rpc.connection import MAX_FRAGMENT, ConnectionLimits
from lanner.rpc.faults import FORBIDDEN_STATUS, FaultStatus
from lanner.rpc.pdu import (
    NDR20,
    NDR64,
    NO_SYNTAX,
    PFC_CONC_MPX,
    PFC_DID_NOT_EXECUTE,
    PFC_FIRST_FRAG,
    PFC_LAST_FRAG,
    PFC_OBJECT_UUID,
    PFC_PENDING_CANCEL,
    PFC_SUPPORT_HEADER_SIGN,
    PFC_WHOLE,
    ContextAnswer,
    ContextResult,
    Header,
    PacketType,
    ProviderReason,
    RejectReason,
    Request,
    Response,
    SyntaxId,
    assemble,
    bind_time_features_syntax,
    pack_empty,
)
from lanner.rpc.verification_trailer import (
    CLIENT_SUPPORT_HEADER_SIGNING,
    COMMAND_BITMASK_1,
    COMMAND_END,
    COMMAND_PCONTEXT,
    MUST_PROCESS_COMMAND,
    SIGNATURE,
)
from tests.rpc.harness import (
    FIRST,
    INTERFACES,
    SECOND,
    Harness,
    Told,
    ack_of,
    alter,
    bind,
    element,
    fault_of,
    fragments,
    nak_of,
    only,
    request,
    response_of,
    split,
)

ACCEPTED = ContextAnswer(ContextResult.ACCEPTANCE, transfer_syntax=NDR20)
NOT_EXECUTED = PFC_WHOLE | PFC_DID_NOT_EXECUTE


def pack_trailer(interface: SyntaxId, transfer_syntax: SyntaxId, *, header_signing: bool) -> bytes:
    """Return what a client appends to the stub of its last fragment, at a multiple of four."""
    bits = CLIENT_SUPPORT_HEADER_SIGNING if header_signing else 0
    return (
        SIGNATURE
        + struct.pack("<HHI", COMMAND_BITMASK_1, 4, bits)
        + struct.pack("<HH", COMMAND_PCONTEXT | COMMAND_END, 40)
        + interface.pack()
        + transfer_syntax.pack()
    )


def rejected(reason: ProviderReason) -> ContextAnswer:
    return ContextAnswer(ContextResult.PROVIDER_REJECTION, reason)


class TestBind:
    """MS-RPCE 3.3.1.5.3, 3.3.1.5.6, 3.3.1.5.7; C706 12.6.4.3."""

    def test_a_known_interface_is_accepted(self) -> None:
        answer = ack_of(Harness().send(bind(element())))
        assert answer.results == (ACCEPTED,)
        assert answer.secondary_address == "2103"
        assert answer.assoc_group_id != 0

    def test_an_unknown_interface_is_rejected_and_the_connection_stays(self) -> None:
        harness = Harness()
        unknown = SyntaxId(UUID(int=7), 1)
        answer = ack_of(harness.send(bind(element(0, unknown), element(1))))
        assert answer.results == (rejected(ProviderReason.ABSTRACT_SYNTAX_NOT_SUPPORTED), ACCEPTED)
        assert harness.closed is None

    def test_ndr_is_preferred_and_only_one_syntax_is_accepted(self) -> None:
        """3.3.1.5.6: "The server SHOULD accept, at most, one of the transfer syntaxes"."""
        answer = ack_of(Harness().send(bind(element(0, FIRST, NDR64), element(1, FIRST, NDR20))))
        refused = rejected(ProviderReason.PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED)
        assert answer.results == (refused, ACCEPTED)

    def test_ndr64_alone_is_accepted_where_the_interface_has_it(self) -> None:
        answer = ack_of(Harness().send(bind(element(0, FIRST, NDR64), element(1, SECOND, NDR64))))
        assert answer.results == (
            ContextAnswer(ContextResult.ACCEPTANCE, transfer_syntax=NDR64),
            rejected(ProviderReason.PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED),
        )

    @pytest.mark.spec("MQQP-2.2-5")
    @pytest.mark.parametrize(("offered", "agreed"), [(0, 0), (1, 1), (2, 2), (3, 3), (0xFF, 3), (1 << 40, 0)])
    def test_bind_time_features_are_answered_in_their_place(self, offered: int, agreed: int) -> None:
        """3.3.1.5.3: negotiate_ack, reserved bits cleared, transfer_syntax zero.

        Other elements are not affected.
        """
        features = element(1, FIRST, bind_time_features_syntax(offered))
        answer = ack_of(Harness().send(bind(element(0), features, element(2, SECOND))))
        assert answer.results == (ACCEPTED, ContextAnswer(ContextResult.NEGOTIATE_ACK, agreed, NO_SYNTAX), ACCEPTED)

    @pytest.mark.parametrize(
        ("wanted", "agreed"), [(0xFFFF, 5840), (5840, 5840), (3199, 3192), (2047, 2048), (0, 2048)]
    )
    def test_fragment_sizes(self, wanted: int, agreed: int) -> None:
        answer = ack_of(Harness().send(bind(size=wanted)))
        assert (answer.max_xmit_frag, answer.max_recv_frag) == (agreed, agreed)

    @pytest.mark.parametrize("flag", [PFC_CONC_MPX, PFC_SUPPORT_HEADER_SIGN])
    def test_flags_that_are_agreed_to_come_back(self, flag: int) -> None:
        assert Header.unpack(only(Harness().send(bind(flags=PFC_WHOLE | flag)))).flags == PFC_WHOLE | flag

    def test_a_second_bind_is_refused(self) -> None:
        harness = Harness().bound()
        assert nak_of(harness.send(bind())).reject_reason == RejectReason.REASON_NOT_SPECIFIED
        assert harness.closed == "a second bind"

    def test_a_broken_bind_is_refused(self) -> None:
        harness = Harness()
        pdu = bytearray(bind())
        pdu[24] = 2  # two contexts, and bytes for one
        assert nak_of(harness.send(bytes(pdu))).reject_reason == RejectReason.PROTOCOL_VERSION_NOT_SUPPORTED
        assert harness.closed is not None

    @pytest.mark.parametrize(("vers", "minor"), [(4, 0), (6, 0), (5, 1)])
    def test_another_protocol_version_is_refused(self, vers: int, minor: int) -> None:
        """3.3.1.5.1: 5.0 and nothing else."""
        pdu = bytes([vers, minor]) + bind()[2:]
        assert nak_of(Harness().send(pdu)).reject_reason == RejectReason.PROTOCOL_VERSION_NOT_SUPPORTED
        harness = Harness().bound()
        assert fault_of(harness.send(bytes([vers, minor]) + request()[2:])).status == FaultStatus.NCA_PROTO_ERROR

    def test_a_client_from_the_same_address_joins_its_association(self) -> None:
        first = Harness().bound()
        group = first.connection.group
        second = Harness(groups=first.groups)
        assert ack_of(second.send(bind(group=group.id))).assoc_group_id == group.id
        assert second.connection.group is group

    def test_a_client_from_elsewhere_does_not(self) -> None:
        """3.3.1.5.7: "it SHOULD NOT allow the connection to join"."""
        first = Harness().bound()
        second = Harness(groups=first.groups, peer="192.0.2.2")
        nak = nak_of(second.send(bind(group=first.connection.group.id)))
        assert nak.reject_reason == RejectReason.REASON_NOT_SPECIFIED
        assert first.connection.group.connections == 1

    def test_too_many_presentation_contexts(self) -> None:
        """3.3.3.5.5: local_limit_exceeded."""
        limits = ConnectionLimits(max_presentation_contexts=2)
        harness = Harness(limits=limits)
        ack_of(harness.send(bind(element(0), element(1, SECOND))))
        (answer,) = ack_of(harness.send(alter(element(2)))).results
        assert answer.reason == ProviderReason.LOCAL_LIMIT_EXCEEDED
        # One that is there already costs nothing.
        assert ack_of(harness.send(alter(element(1, SECOND)))).results == (ACCEPTED,)


class TestAlterContext:
    @pytest.mark.spec("MQAC-2.1-28")
    def test_an_interface_is_added_to_a_connection(self) -> None:
        harness = Harness()
        harness.send(bind(element(0)))
        answer = ack_of(harness.send(alter(element(5, SECOND))))
        assert answer.results == (ACCEPTED,)
        assert (answer.secondary_address, answer.assoc_group_id) == ("", harness.connection.group.id)
        harness.send(request(context_id=5, call_id=3))
        harness.connection.respond(harness.calls[0], b"")
        harness.send(request(context_id=0, call_id=4))
        assert [call.interface.syntax for call in harness.calls] == [SECOND, FIRST]

    def test_a_context_id_does_not_change_its_meaning(self) -> None:
        harness = Harness().bound()
        told = fault_of(harness.send(alter(element(0, SECOND), call_id=9)))
        assert told == Told(FaultStatus.NCA_PROTO_ERROR, 9, 0, NOT_EXECUTED)
        assert harness.closed is not None

    def test_before_a_bind_it_is_a_protocol_error(self) -> None:
        assert fault_of(Harness().send(alter())).status == FaultStatus.NCA_PROTO_ERROR


class TestCalls:
    def test_a_call_and_its_response(self) -> None:
        harness = Harness().bound()
        assert harness.send(request(b"question", opnum=3, call_id=7)) == []
        (call,) = harness.calls
        assert (call.opnum, call.stub, call.call_id, call.interface) == (3, b"question", 7, INTERFACES[0])
        harness.connection.respond(call, b"answer")
        pdu = only(harness.sent())
        assert Header.unpack(pdu).call_id == 7
        assert Response.unpack(pdu, Header.unpack(pdu)) == Response(6, 0)
        assert response_of([pdu]) == b"answer"

    @pytest.mark.parametrize("cut", range(1, 40))
    def test_bytes_in_any_pieces_are_the_same_call(self, cut: int) -> None:
        harness = Harness().bound()
        data = request(b"0123456789abcdef")
        harness.send(data[:cut])
        harness.send(data[cut:])
        assert [call.stub for call in harness.calls] == [b"0123456789abcdef"]

    def test_several_pdus_in_one_piece(self) -> None:
        harness = Harness().bound(multiplexed=True)
        harness.send(b"".join(request(bytes([number]), call_id=number) for number in range(5)))
        assert [call.stub for call in harness.calls] == [bytes([number]) for number in range(5)]

    def test_answers_come_in_any_order(self) -> None:
        """3.3.1.5.8: with concurrent multiplexing, many calls wait at once."""
        harness = Harness().bound(multiplexed=True)
        for number in range(3):
            harness.send(request(call_id=number))
        for number in (2, 0, 1):
            harness.connection.respond(harness.calls[number], bytes([number]))
        assert [Header.unpack(pdu).call_id for pdu in harness.sent()] == [2, 0, 1]

    def test_an_exclusive_connection_has_one_call_at_a_time(self) -> None:
        harness = Harness().bound()
        harness.send(request(call_id=1))
        assert fault_of(harness.send(request(call_id=2))).status == FaultStatus.NCA_PROTO_ERROR
        assert harness.closed is not None

    def test_a_call_id_is_not_used_twice_at_once(self) -> None:
        harness = Harness().bound(multiplexed=True)
        harness.send(request(call_id=1))
        assert fault_of(harness.send(request(call_id=1))).status == FaultStatus.NCA_PROTO_ERROR

    def test_too_many_calls_at_once(self) -> None:
        harness = Harness(limits=ConnectionLimits(max_calls=2)).bound(multiplexed=True)
        for number in (1, 2):
            assert harness.send(request(call_id=number)) == []
        told = fault_of(harness.send(request(call_id=3)))
        assert told == Told(FaultStatus.NCA_SERVER_TOO_BUSY, 3, 0, NOT_EXECUTED)
        harness.connection.respond(harness.calls[0], b"")
        harness.sent()
        assert harness.send(request(call_id=4)) == []

    def test_an_object_is_handed_on(self) -> None:
        harness = Harness().bound()
        target = UUID(int=0x123456789)
        front = Request(0, 0, 1, target).pack_front()
        harness.send(assemble(PacketType.REQUEST, PFC_WHOLE | PFC_OBJECT_UUID, 2, front + b"stub"))
        assert (harness.calls[0].object_uuid, harness.calls[0].stub) == (target, b"stub")

    def test_a_big_endian_call(self) -> None:
        harness = Harness().bound()
        little = request(b"\0\0\0\1", opnum=2, call_id=5)
        big = (
            little[:4] + bytes(4) + (len(little)).to_bytes(2, "big") + bytes(2) + (5).to_bytes(4, "big")
            + (4).to_bytes(4, "big") + bytes(2) + (2).to_bytes(2, "big") + b"\0\0\0\1"
        )  # fmt: skip
        harness.send(big)
        (call,) = harness.calls
        assert (call.call_id, call.opnum, call.is_little, call.stub) == (5, 2, False, b"\0\0\0\1")

    def test_a_context_that_was_never_negotiated(self) -> None:
        harness = Harness().bound()
        told = fault_of(harness.send(request(context_id=99, call_id=4)))
        assert told == Told(FaultStatus.NCA_UNK_IF, 4, 0, NOT_EXECUTED)
        assert harness.closed is None

    def test_a_request_before_a_bind(self) -> None:
        harness = Harness()
        assert fault_of(harness.send(request())).status == FaultStatus.NCA_PROTO_ERROR
        assert harness.closed is not None

    def test_a_fault_of_the_application(self) -> None:
        harness = Harness().bound()
        harness.send(request(call_id=3, context_id=1))
        harness.connection.fault(harness.calls[0], FaultStatus.BAD_STUB_DATA, did_not_execute=True)
        assert fault_of(harness.sent()) == Told(FaultStatus.BAD_STUB_DATA, 3, 1, NOT_EXECUTED)

    @pytest.mark.parametrize("status", sorted(FORBIDDEN_STATUS))
    def test_some_codes_are_never_sent(self, status: int) -> None:
        """3.3.3.5.1: "status codes, which a server MUST NOT send"."""
        harness = Harness().bound()
        harness.send(request())
        harness.connection.fault(harness.calls[0], status)
        assert fault_of(harness.sent()).status == FaultStatus.NCA_FAULT_UNSPEC

    def test_a_call_is_answered_once(self) -> None:
        harness = Harness().bound()
        harness.send(request())
        harness.connection.respond(harness.calls[0], b"")
        assert len(harness.sent()) == 1
        harness.connection.respond(harness.calls[0], b"")
        harness.connection.fault(harness.calls[0], FaultStatus.CALL_FAILED)
        assert harness.sent() == []


class TestFragments:
    """C706 12.6.2."""

    @pytest.mark.parametrize("size", [0, 1, MAX_FRAGMENT - 24, MAX_FRAGMENT - 23, 20_000, 100_000])
    def test_requests_are_put_together(self, size: int) -> None:
        harness = Harness().bound()
        stub = bytes(number % 251 for number in range(size))
        harness.send(fragments(stub, opnum=1))
        assert [call.stub for call in harness.calls] == [stub]

    @pytest.mark.parametrize("size", [0, 1, MAX_FRAGMENT - 24, MAX_FRAGMENT - 23, 20_000, 5 << 20])
    def test_responses_are_taken_apart(self, size: int) -> None:
        harness = Harness().bound()
        harness.send(request())
        stub = bytes(size)
        harness.connection.respond(harness.calls[0], stub)
        pdus = harness.sent()
        assert response_of(pdus) == stub
        flags = [Header.unpack(pdu).flags for pdu in pdus]
        assert flags[0] & PFC_FIRST_FRAG
        assert flags[-1] & PFC_LAST_FRAG
        assert sum(flags) == PFC_WHOLE
        assert all(len(pdu) <= MAX_FRAGMENT for pdu in pdus)
        # MS-RPCE 2.2.2.6: alloc_hint is what is left.
        hints = [Response.unpack(pdu, Header.unpack(pdu)).alloc_hint for pdu in pdus]
        left = [size]
        for pdu in pdus[:-1]:
            left.append(left[-1] - (len(pdu) - 24))
        assert hints == left

    def test_responses_fit_the_size_that_was_agreed_on(self) -> None:
        harness = Harness()
        harness.send(bind(size=2048))
        harness.send(request())
        harness.connection.respond(harness.calls[0], bytes(5000))
        assert [len(pdu) for pdu in harness.sent()] == [2048, 2048, 24 + 5000 - 2 * 2024]

    def test_a_fragment_that_is_too_large(self) -> None:
        harness = Harness().bound()
        harness.send(request(bytes(MAX_FRAGMENT - 24)))
        harness.connection.respond(harness.calls[0], b"")
        harness.sent()
        assert fault_of(harness.send(request(bytes(MAX_FRAGMENT - 23)))).status == FaultStatus.NCA_PROTO_ERROR

    def test_a_request_up_to_the_limit(self) -> None:
        harness = Harness().bound()
        harness.send(fragments(bytes(MAX_REQUEST_SIZE)))
        assert len(harness.calls[0].stub) == MAX_REQUEST_SIZE

    def test_a_request_beyond_the_limit(self) -> None:
        """3.3.3.5.4: "a fault packet with the status field set to 0x00000005"."""
        harness = Harness().bound()
        data = fragments(bytes(MAX_REQUEST_SIZE + 1))
        # It does not say how much is coming.
        pdus = [pdu[:16] + bytes(4) + pdu[20:] for pdu in split(data)]
        assert fault_of(harness.send(b"".join(pdus))) == Told(FaultStatus.ACCESS_DENIED, 2, 0, PFC_WHOLE)
        assert harness.calls == []
        assert harness.closed is not None

    def test_a_hint_beyond_the_limit_is_enough(self) -> None:
        harness = Harness().bound()
        first = request(b"x", flags=PFC_FIRST_FRAG, alloc_hint=MAX_REQUEST_SIZE + 1)
        assert fault_of(harness.send(first)).status == FaultStatus.ACCESS_DENIED

    @pytest.mark.parametrize("flags", [0, PFC_LAST_FRAG])
    def test_a_fragment_without_a_first_one(self, flags: int) -> None:
        harness = Harness().bound()
        assert fault_of(harness.send(request(flags=flags))) == Told(FaultStatus.NCA_PROTO_ERROR, 2, 0, PFC_WHOLE)
        assert harness.closed is not None

    def test_a_second_first_fragment(self) -> None:
        harness = Harness().bound()
        harness.send(request(b"1", flags=PFC_FIRST_FRAG))
        assert fault_of(harness.send(request(b"2", flags=PFC_FIRST_FRAG))).status == FaultStatus.NCA_PROTO_ERROR

    def test_another_call_between_the_fragments_of_one(self) -> None:
        """3.3.3: calls must not interleave.

        "A client MUST NOT send any request PDU for request N+1 before it sends all request PDUs for
        request N".
        """
        harness = Harness().bound()
        harness.send(request(b"1", flags=PFC_FIRST_FRAG, call_id=1, context_id=1))
        told = fault_of(harness.send(request(b"2", call_id=2)))
        # On an exclusive connection it is the one that began that fails.
        assert told == Told(FaultStatus.NCA_PROTO_ERROR, 1, 1, PFC_WHOLE)
        multiplexed = Harness().bound(multiplexed=True)
        multiplexed.send(request(b"1", flags=PFC_FIRST_FRAG, call_id=1, context_id=1))
        assert fault_of(multiplexed.send(request(b"2", call_id=2))) == Told(
            FaultStatus.NCA_PROTO_ERROR, 2, 0, PFC_WHOLE
        )

    def test_other_calls_continue_while_one_waits(self) -> None:
        harness = Harness().bound(multiplexed=True)
        harness.send(request(b"1", call_id=1))
        harness.send(fragments(bytes(10_000), call_id=2))
        assert [call.call_id for call in harness.calls] == [1, 2]


class TestCancel:
    """C706 12.6.4.6, 12.6.4.8."""

    @pytest.mark.parametrize(("kind", "orphaned"), [(PacketType.CO_CANCEL, False), (PacketType.ORPHANED, True)])
    def test_a_running_call(self, kind: PacketType, orphaned: bool) -> None:
        harness = Harness().bound()
        harness.send(request(call_id=6))
        assert harness.send(pack_empty(kind, 6)) == []
        assert harness.events[-1] == CallCancelled(harness.calls[0], orphaned)
        # Again is not news.
        harness.send(pack_empty(kind, 6))
        assert sum(isinstance(event, CallCancelled) for event in harness.events) == 1

    def test_a_cancelled_call_is_answered_and_an_orphaned_one_is_not(self) -> None:
        harness = Harness().bound(multiplexed=True)
        harness.send(request(call_id=6) + request(call_id=7))
        harness.send(pack_empty(PacketType.CO_CANCEL, 6) + pack_empty(PacketType.ORPHANED, 7))
        for call in harness.calls:
            harness.connection.fault(call, FaultStatus.NCA_FAULT_CANCEL)
        assert fault_of(harness.sent()) == Told(FaultStatus.NCA_FAULT_CANCEL, 6, 0, PFC_WHOLE)
        assert harness.connection.outstanding_calls == 0

    @pytest.mark.parametrize("kind", [PacketType.CO_CANCEL, PacketType.ORPHANED])
    def test_a_call_that_is_not_there_or_not_complete(self, kind: PacketType) -> None:
        harness = Harness().bound()
        assert harness.send(pack_empty(kind, 6)) == []
        harness.send(request(b"1", flags=PFC_FIRST_FRAG, call_id=6))
        assert harness.send(pack_empty(kind, 6)) == []
        harness.send(request(b"2", flags=PFC_LAST_FRAG, call_id=6))
        assert [call.stub for call in harness.calls] == [b"12"]

    def test_a_call_that_begins_cancelled(self) -> None:
        harness = Harness().bound()
        told = fault_of(harness.send(request(flags=PFC_WHOLE | PFC_PENDING_CANCEL)))
        assert told == Told(FaultStatus.NO_CALL_ACTIVE, 2, 0, NOT_EXECUTED)


class TestEnd:
    @pytest.mark.parametrize(
        "kind",
        [PacketType.RESPONSE, PacketType.FAULT, PacketType.BIND_ACK, PacketType.BIND_NAK, PacketType.SHUTDOWN, 1, 200],
    )
    def test_what_no_client_sends(self, kind: int) -> None:
        harness = Harness().bound()
        assert fault_of(harness.send(pack_empty(kind, 3))) == Told(FaultStatus.NCA_PROTO_ERROR, 3, 0, PFC_WHOLE)
        assert harness.closed is not None

    @pytest.mark.parametrize("length", range(16))
    def test_a_length_below_a_header(self, length: int) -> None:
        harness = Harness().bound()
        assert harness.send(request()[:8] + length.to_bytes(2, "little") + request()[10:]) == []
        assert harness.closed == f"a PDU of {length} bytes"

    def test_nothing_is_heard_after_the_end(self) -> None:
        harness = Harness()
        harness.send(request())
        assert harness.send(bind()) == []

    def test_calls_of_a_closed_connection_are_answered_with_nothing(self) -> None:
        harness = Harness().bound()
        harness.send(request())
        harness.connection.close()
        harness.connection.respond(harness.calls[0], b"late")
        assert harness.sent() == []

    def test_the_end_leaves_the_association(self) -> None:
        harness = Harness().bound()
        run_down = []
        harness.connection.group.handles.add("queue", "queue", lambda: run_down.append("queue"))
        harness.connection.close()
        harness.connection.close()
        assert run_down == ["queue"]
        assert len(harness.groups) == 0

    def test_a_partial_pdu_is_all_that_is_kept(self) -> None:
        """A peer that drips bytes costs one PDU at most, 64 KB."""
        harness = Harness().bound()
        pdu = request(bytes(5000))
        for start in range(0, len(pdu) - 1, 7):
            harness.send(pdu[start : start + 7] if start + 7 < len(pdu) else b"")
        assert len(harness.connection._rest) < len(pdu)


class TestVerificationTrailer:
    """MS-RPCE 2.2.2.13."""

    @pytest.mark.parametrize("stub", [b"", b"stub", b"eight by", b"not aligned"])
    def test_it_is_taken_off(self, stub: bytes) -> None:
        harness = Harness().bound()
        harness.send(request(stub + pack_trailer(FIRST, NDR20, header_signing=True)))
        assert harness.calls[0].stub == stub

    def test_another_interface_in_it_is_refused(self) -> None:
        """2.2.2.13.4: "This value MUST match the chosen abstract_syntax"."""
        harness = Harness().bound()
        told = fault_of(harness.send(request(b"stub" + pack_trailer(SECOND, NDR20, header_signing=True))))
        assert told.status == FaultStatus.ACCESS_DENIED
        assert harness.calls == []

    def test_a_header_in_it_is_compared(self) -> None:
        right = SIGNATURE + bytes.fromhex("0340100000000000100000000200000000000500")
        for trailer, is_refused in (
            (right, False),
            (right[:-2] + b"\6\0", True),
            (right[:16] + b"\0" + right[17:], True),
        ):
            harness = Harness().bound()
            answer = harness.send(request(b"stub" + trailer, opnum=5))
            assert bool(answer) == is_refused

    def test_an_unknown_command_is_skipped_unless_it_must_not_be(self) -> None:
        for command, is_refused in ((0x4007, False), (0x4007 | MUST_PROCESS_COMMAND, True)):
            harness = Harness().bound()
            answer = harness.send(request(b"stub" + SIGNATURE + command.to_bytes(2, "little") + b"\4\0" + bytes(4)))
            assert bool(answer) == is_refused

    @pytest.mark.parametrize(
        "data",
        [
            SIGNATURE,
            SIGNATURE + b"\1\0\4\0",  # cut off
            SIGNATURE + b"\1\0\4\0\1\0\0\0",  # no last command
            SIGNATURE + b"\1\x40\3\0\1\0\0",  # no multiple of four
            pack_trailer(SECOND, NDR20, header_signing=True) + b"and more",
        ],
    )
    def test_data_that_only_looks_like_it_stays(self, data: bytes) -> None:
        harness = Harness().bound()
        harness.send(request(b"stub" + data))
        assert harness.calls[0].stub == b"stub" + data
