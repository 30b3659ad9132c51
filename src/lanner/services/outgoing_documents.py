"""Outgoing queues as documents for people (MS-MQMR 3.1.4.1).

A document has the state, the next hops, the problem, the history and the progress.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from lanner.model.enums import ConnectionStatus, OutgoingState
from lanner.wire.identifiers import SequenceInfo
from lanner.wire.property_ids import ManagementQueueProperty, PropertyIdentifier
from lanner.wire.propvariant import PropVariant
from lanner.wire.reader import Reader

Document: TypeAlias = dict[str, Any]
Told: TypeAlias = Mapping[PropertyIdentifier, Any]

_Q = ManagementQueueProperty

# The properties of an outgoing queue to request with R_QMMgmtGetInfo.
PROGRESS: Final = (
    _Q.FORMATNAME,
    _Q.STATE,
    _Q.MESSAGE_COUNT,
    _Q.BYTES_IN_QUEUE,
    _Q.NEXTHOPS,
    _Q.CONNECTION_HISTORY,
    _Q.EOD_FIRST_NON_ACK,
    _Q.EOD_LAST_NON_ACK,
    _Q.EOD_NO_ACK_COUNT,
    _Q.EOD_LAST_ACK,
    _Q.EOD_LAST_ACK_TIME,
    _Q.EOD_LAST_ACK_COUNT,
    _Q.EOD_NEXT_SEQ,
    _Q.EOD_NO_READ_COUNT,
    _Q.EOD_RESEND_INTERVAL,
    _Q.EOD_RESEND_TIME,
    _Q.EOD_RESEND_COUNT,
)

# MS-MQMQ 2.3.12.11, and LOCKED, which only MS-MQMR has.
_STATES: Final = {
    "CONNECTED": OutgoingState.CONNECTED,
    "DISCONNECTED": OutgoingState.DISCONNECTED,
    "DISCONNECTING": OutgoingState.DISCONNECTING,
    "INACTIVE": OutgoingState.INACTIVE,
    "LOCKED": OutgoingState.LOCKED,
    "NEED VALIDATION": OutgoingState.NEED_VALIDATION,
    "NONACTIVE": OutgoingState.INACTIVE,
    "WAITING": OutgoingState.WAITING,
    "ONHOLD": OutgoingState.ON_HOLD,
}
_STATUSES: Final = {
    ConnectionStatus.IN_PROCESS: "connecting",
    ConnectionStatus.ESTABLISH_PACKET_RECEIVED: "the peer has answered",
    ConnectionStatus.ESTABLISHED: "connected",
    ConnectionStatus.UNKNOWN_FAILURE: "failed for an unknown reason",
    ConnectionStatus.PING_FAILURE: "no answer to a ping",
    ConnectionStatus.SOCKET_CREATE_FAILURE: "no socket could be made",
    ConnectionStatus.SOCKET_BIND_FAILURE: "the socket could not be bound",
    ConnectionStatus.SOCKET_CONNECT_FAILURE: "no TCP connection",
    ConnectionStatus.TCP_NOT_ENABLED: "TCP is not enabled",
    ConnectionStatus.SOCKET_SEND_FAILURE: "sending failed",
    ConnectionStatus.CONNECTION_NOT_READY: "the handshake was not finished",
    ConnectionStatus.DNS_FAILURE: "the name has no address",
    ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE: "a certificate is not valid",
    ConnectionStatus.CONNECTION_LIMIT_REACHED: "too many connections",
    ConnectionStatus.CONNECTION_REFUSED: "the peer refused the session",
    ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE: "the directory has no route",
    ConnectionStatus.LOW_RESOURCE: "out of memory",
}
# Descriptions of Winsock error numbers in HRESULTs (0x8007xxxx).
_WINSOCK: Final = {
    10013: "permission denied",
    10024: "too many open files",
    10048: "address in use",
    10049: "no such address here",
    10050: "the network is down",
    10051: "the network is unreachable",
    10053: "connection aborted",
    10054: "connection reset",
    10060: "timed out",
    10061: "connection refused",
    10064: "the host is down",
    10065: "the host is unreachable",
    11001: "host not found",
}
_U64: Final = (1 << 64) - 1


def values_of(identifiers: Sequence[PropertyIdentifier], variants: Sequence[PropVariant]) -> Told:
    """Return property values by identifier; VT_NULL becomes None."""
    return {one: variant.value for one, variant in zip(identifiers, variants, strict=True)}


def state_of(told: Told) -> OutgoingState:
    """Return the state of an outgoing queue; an unknown state counts as inactive."""
    return _STATES.get(told[_Q.STATE], OutgoingState.INACTIVE)


def outgoing_document(told: Told, known: Document | None = None) -> Document:
    """Return the document of an outgoing queue from the values of PROGRESS.

    `known` has the values that management lacks: problem, next hops and the time of the next
    attempt. Without it, the problem is taken from the last line of the history.
    """
    known = {} if known is None else known
    problem = known.get("problem")
    history = _history(told[_Q.CONNECTION_HISTORY] or ())
    if problem is None and history and history[-1]["error"] is not None:
        last = history[-1]
        problem = f"{', '.join(last['addresses'])}: {last['text']}, {last['error_text'] or last['error']}"
    return {
        "name": told[_Q.FORMATNAME],
        "state": state_of(told).value,
        "messages": told[_Q.MESSAGE_COUNT] or 0,
        "bytes": told[_Q.BYTES_IN_QUEUE] or 0,
        "next_hops": list(told[_Q.NEXTHOPS] or known.get("next_hops", ())),
        "problem": problem,
        "retry_in": known.get("retry_in"),
        "connection_history": history,
        "sequence": _sequence(told),
    }


def _history(variants: Sequence[PropVariant]) -> list[Document]:
    """Return the lines of a connection history, stored as four vectors (MS-MQMQ 2.3.12.25)."""
    vectors: list[Any] = [variant.value or () for variant in variants]
    if len(vectors) != 4:
        return []
    return [
        {
            "time": _moment(time),
            "status": _status_name(status),
            "text": _STATUSES.get(status, "unknown"),
            "error": f"{error & 0xFFFF_FFFF:#010x}" if error else None,
            "error_text": _error_text(error & 0xFFFF_FFFF),
            "addresses": list(addresses.value or ()),
        }
        for status, time, error, addresses in zip(*vectors, strict=False)
    ]


def _status_name(number: int) -> str:
    try:
        return ConnectionStatus(number).name.lower()
    except ValueError:
        return f"{number:#010x}"


def _sequence(told: Told) -> Document | None:
    """Return the progress of transactional messages.

    The names are those of MS-MQDMPR 3.1.1.4 without Eod.
    """
    if told[_Q.EOD_NO_ACK_COUNT] is None:
        return None
    last_ack_time, resend_time = told[_Q.EOD_LAST_ACK_TIME], told[_Q.EOD_RESEND_TIME]
    return {
        "first_non_ack": _position(told[_Q.EOD_FIRST_NON_ACK]),
        "last_non_ack": _position(told[_Q.EOD_LAST_NON_ACK]),
        "no_ack_count": told[_Q.EOD_NO_ACK_COUNT],
        "last_ack": _position(told[_Q.EOD_LAST_ACK]),
        "last_ack_time": _moment(last_ack_time) if last_ack_time else None,
        "last_ack_count": told[_Q.EOD_LAST_ACK_COUNT],
        "next_seq": _position(told[_Q.EOD_NEXT_SEQ]),
        "no_read_count": told[_Q.EOD_NO_READ_COUNT],
        "resend_interval": told[_Q.EOD_RESEND_INTERVAL],
        "resend_time": _moment(resend_time) if resend_time else None,
        "resend_count": told[_Q.EOD_RESEND_COUNT],
    }


def _position(info: bytes | None) -> Document | None:
    """Return a SEQUENCE_INFO (MS-MQMQ 2.2.5.1) with its 64-bit identifier as text."""
    if info is None or len(info) != SequenceInfo.SIZE:
        return None
    place = SequenceInfo.unpack(Reader(info))
    if not place.seq_id and not place.seq_no:
        return None
    return {"sequence": f"{place.seq_id & _U64:#018x}", "number": place.seq_no, "previous": place.prev_no}


def _error_text(error: int) -> str | None:
    return _WINSOCK.get(error & 0xFFFF) if error & 0xFFFF_0000 == 0x8007_0000 else None


def _moment(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()
