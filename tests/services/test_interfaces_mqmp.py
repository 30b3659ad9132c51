"""qmcomm and qmcomm2 as MS-MQMP declares them: opnums, ranges, and which NULL is which."""

from __future__ import annotations

import struct
from dataclasses import replace
from uuid import UUID

import pytest

from lanner.rpc.ndr import NULL_HANDLE, BadStub, Pointed, Syntax
from lanner.services.interfaces import mqmp
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2, CACTransferBufferV2, ObjectFormat
from tests.services.calls import PRIVATE, RECEIVE, SEND
from tests.statuses import MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL


def test_the_interfaces() -> None:
    assert (QMCOMM.uuid, QMCOMM.version) == (UUID("fdb3a030-065f-11d1-bb9b-00a024ea5525"), (1, 0))
    assert (QMCOMM2.uuid, QMCOMM2.version) == (UUID("76d12b80-3467-11d3-91ff-0090272f9ea3"), (1, 0))
    assert QMCOMM.syntaxes == QMCOMM2.syntaxes == (Syntax.NDR20,)


def test_the_methods_and_their_opnums() -> None:
    """MS-MQMP 3.1.4: qmcomm has 35 opnums, eleven of them reserved for local use.

    qmcomm2 has four.
    """
    reserved = {0, 5, 13, 21, 24, 25, 29, 30, 32, 33, 34}
    assert {opnum for opnum, method in enumerate(QMCOMM.methods) if method is None} == reserved
    assert {method.opnum: method.name for method in QMCOMM.methods if method is not None} == {
        1: "R_QMGetRemoteQueueName",
        2: "R_QMOpenRemoteQueue",
        3: "R_QMCloseRemoteQueueContext",
        4: "R_QMCreateRemoteCursor",
        6: "R_QMCreateObjectInternal",
        7: "R_QMSetObjectSecurityInternal",
        8: "R_QMGetObjectSecurityInternal",
        9: "R_QMDeleteObject",
        10: "R_QMGetObjectProperties",
        11: "R_QMSetObjectProperties",
        12: "R_QMObjectPathToObjectFormat",
        14: "R_QMGetTmWhereabouts",
        15: "R_QMEnlistTransaction",
        16: "R_QMEnlistInternalTransaction",
        17: "R_QMCommitTransaction",
        18: "R_QMAbortTransaction",
        19: "rpc_QMOpenQueueInternal",
        20: "rpc_ACCloseHandle",
        22: "rpc_ACCloseCursor",
        23: "rpc_ACSetCursorProperties",
        26: "rpc_ACHandleToFormatName",
        27: "rpc_ACPurgeQueue",
        28: "R_QMQueryQMRegistryInternal",
        31: "R_QMGetRTQMServerPort",
    }
    assert {method.opnum: method.name for method in QMCOMM2.methods if method is not None} == {
        0: "QMSendMessageInternalEx",
        1: "rpc_ACSendMessageEx",
        2: "rpc_ACReceiveMessageEx",
        3: "rpc_ACCreateCursorEx",
    }


def test_the_two_nulls_of_a_pointer_to_a_pointer() -> None:
    """MS-MQMP 3.1.4.1: lplpRemoteQueueName points to a pointer that the server sets."""
    method = mqmp.R_QM_GET_REMOTE_QUEUE_NAME
    for octets, value in [
        ("07000000 00000000", None),
        ("07000000 00000200 00000000", Pointed(None)),
        ("07000000 00000200 04000200 02000000 00000000 02000000 61000000", Pointed("a")),
    ]:
        assert method.decode_request(bytes.fromhex(octets))["lplp_remote_queue_name"] == value
        arguments = {"p_queue": 7, "lplp_remote_queue_name": value}
        assert method.encode_request(arguments) == bytes.fromhex(octets)


def test_the_sizes_of_a_body() -> None:
    """MS-MQMP 2.2.3.2: as many octets travel as are in use, of a buffer that may have more."""
    method = mqmp.RPC_AC_RECEIVE_MESSAGE_EX
    for body, in_use, allocated in [(b"", 0, 0), (b"", 0, 9), (b"ab", 2, 2), (b"ab", 2, 9)]:
        buffer = replace(
            RECEIVE,
            pp_body=Pointed(body),
            ul_body_buffer_size_in_bytes=in_use,
            ul_alloc_body_buffer_in_bytes=allocated,
        )
        arguments = {"h_qm_context": 1, "ptb": CACTransferBufferV2(buffer)}
        assert method.decode_request(method.encode_request(arguments)) == arguments
    for in_use, allocated in [(1, 9), (3, 9), (2, 1)]:
        wrong = replace(buffer, ul_body_buffer_size_in_bytes=in_use, ul_alloc_body_buffer_in_bytes=allocated)
        with pytest.raises(ValueError, match="pp_body"):
            method.encode_request({"h_qm_context": 1, "ptb": CACTransferBufferV2(wrong)})


def test_a_buffer_that_is_not_there_has_no_size() -> None:
    """MS-RPCE 3.1.1.5.3.3.1.2 speaks of the pointer to the array, not of the one before it."""
    method = mqmp.RPC_AC_RECEIVE_MESSAGE_EX
    for buffer in (
        replace(RECEIVE, pp_body=None),
        replace(RECEIVE, pp_body=Pointed(None), ul_alloc_body_buffer_in_bytes=0),
    ):
        arguments = {"h_qm_context": 1, "ptb": CACTransferBufferV2(buffer)}
        assert method.decode_request(method.encode_request(arguments)) == arguments
    with pytest.raises(ValueError, match="pp_body: NULL where 1024 elements"):
        method.encode_request({"h_qm_context": 1, "ptb": CACTransferBufferV2(replace(RECEIVE, pp_body=Pointed(None)))})


@pytest.mark.parametrize("number", [0, 2, 3])
def test_an_object_that_is_no_queue_is_refused(number: int) -> None:
    """MS-MQMP 2.2.3.5: 2 is for local use only; the range lets it pass, the union does not."""
    with pytest.raises(BadStub):
        mqmp.R_QM_DELETE_OBJECT.decode_request(struct.pack("<III", number, number, 0))


def test_a_transfer_type_outside_its_range_is_refused() -> None:
    arguments = {"ptb1": SEND, "h_queue": 7}
    stub = mqmp.R_QM_CREATE_REMOTE_CURSOR.encode_request(arguments)
    assert mqmp.R_QM_CREATE_REMOTE_CURSOR.decode_request(stub) == arguments
    with pytest.raises(BadStub, match="u_transfer_type"):
        mqmp.R_QM_CREATE_REMOTE_CURSOR.decode_request(struct.pack("<II", 3, 3) + stub[8:])


def test_a_correlation_identifier_has_twenty_octets() -> None:
    wrong = replace(SEND, pp_correlation_id=Pointed(bytes(19)))
    with pytest.raises(ValueError, match="pp_correlation_id"):
        mqmp.R_QM_CREATE_REMOTE_CURSOR.encode_request({"ptb1": wrong, "h_queue": 7})


def test_what_only_goes_out_is_empty_when_left_out() -> None:
    """An [out] array has the size that was asked for, whatever the method says."""
    arguments = {"p_object_format": ObjectFormat(1, PRIVATE), "requested_information": 4, "n_length": 3}
    response = mqmp.R_QM_GET_OBJECT_SECURITY_INTERNAL.encode_response(
        {"returns": MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL}, arguments
    )
    assert mqmp.R_QM_GET_OBJECT_SECURITY_INTERNAL.decode_response(response, arguments) == {
        "p_security_descriptor": bytes(3),
        "lpn_length_needed": 0,
        "returns": MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL,
    }
    response = mqmp.R_QM_QUERY_QM_REGISTRY_INTERNAL.encode_response({"returns": 1}, {"dw_query_type": 9})
    assert response == struct.pack("<II", 0, 1)
    response = mqmp.R_QM_ENLIST_INTERNAL_TRANSACTION.encode_response({"returns": 1}, {"p_uow": bytes(16)})
    assert response == NULL_HANDLE + struct.pack("<I", 1)


def test_results_have_the_names_of_parameters() -> None:
    with pytest.raises(TypeError, match="unknown results"):
        mqmp.R_QM_GET_RTQM_SERVER_PORT.encode_response({"port": 1}, {"f_ip": 0})
