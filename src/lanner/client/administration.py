"""What an administrator asks of a queue manager, and the answers, as documents that JSON can carry.

Asked by the daemon's control socket while a queue manager runs, by the command line itself while none does. Any thread may
ask, but the loop's: an answer may wait for the disk.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from lanner.client.operations import Operations
from lanner.directory import AttributeFilter, Operator
from lanner.model.directory_objects import OutgoingQueue, QueueManager
from lanner.model.enums import ConnectionStatus, MessageClass, QueueAccessType
from lanner.model.errors import IOTimeout, LannerError, StatusError
from lanner.services import outgoing_queues
from lanner.transfer.addresses import format_address, get_destination_info
from lanner.transfer.route import FIXED_STATES
from lanner.transfer.tracing import parse_report
from lanner.wire.format_name import FormatName
from lanner.wire.identifiers import MessageIdentifier

if TYPE_CHECKING:
    from lanner.client.message import ReceivedMessage
    from lanner.client.runtime import Runtime
    from lanner.engine import Engine
    from lanner.model.live import OutgoingTransferInfo
    from lanner.transfer.link import Link
    from lanner.transfer.route import Route
    from lanner.transfer.transfer import Transfer

Document = dict[str, object]

# Ours: reports that one answer holds; a trail has a few for each computer.
MAX_REPORTS = 10_000

_STATUSES = {
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
# Winsock's numbers in HRESULTs (0x8007xxxx), in words.
_WINSOCK = {
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


class AdministrationError(LannerError):
    """What was asked for cannot be done; the message says why and what to do."""


class Administration:
    """One queue manager, as its administrator sees it."""

    def __init__(
        self,
        runtime: Runtime,
        transfer: Transfer | None = None,
        *,
        run_in_loop: Callable[[Callable[[], None]], object] | None = None,
        about: Callable[[], Document] = dict,
    ) -> None:
        """`transfer` belongs to another thread, which `run_in_loop` runs things in; `about` is what only the daemon knows."""
        self._runtime = runtime
        self._engine = runtime.engine
        self._transfer = transfer
        self._run_in_loop = run_in_loop
        self._about = about
        self._requests: dict[str, Callable[[Mapping[object, object]], object]] = {
            "status": lambda _: self.status(),
            "outgoing list": lambda _: self.list_outgoing(),
            "outgoing show": lambda request: self.show_outgoing(_text(request, "name")),
            "outgoing pause": lambda request: self.pause(_text(request, "name")),
            "outgoing resume": lambda request: self.resume(_text(request, "name")),
            "outgoing resend": lambda request: self.resend(_text(request, "name")),
            "peer": lambda request: self.peer(_text(request, "name"), _texts(request, "addresses")),
            "reports": lambda request: self.reports(_text(request, "queue")),
        }

    def answer(self, request: object) -> object:
        """The answer to {"request": one of those above, ...}; a LannerError says why there is none."""
        if not isinstance(request, Mapping):
            raise AdministrationError("a request is an object with a member `request`")
        name = _text(request, "request")
        if name not in self._requests:
            raise AdministrationError(f"unknown request {name!r}: one of {', '.join(self._requests)}")
        return self._requests[name](request)

    # The queue manager and its sessions -------------------------------------------------------------------------

    def status(self) -> Document:
        qm = self._engine.queue_manager
        with self._runtime.lock:
            outgoing = list(self._engine.outgoing_queues())
            return {
                "name": qm.computer_name,
                "identifier": str(qm.identifier),
                "process": os.getpid(),
                **self._about(),
                "transfer": self._transfer is not None,
                "sessions": [_session(link) for link in self._links()],
                "outgoing_queues": len(outgoing),
                "outgoing_messages": sum(queue.message_count for queue in outgoing),
            }

    def peer(self, name: str, addresses: list[str]) -> Document:
        """What is known here about another computer, whose addresses the asker has found."""
        with self._runtime.lock:
            known = self._in_directory(name)
            hops = {format_address(address) for address in addresses}
            return {
                "identifier": None if known is None else str(known.identifier),
                "sessions": [_session(link) for link in self._links() if link.remote_address in addresses],
                "queues": [
                    self._outgoing(queue)
                    for queue in self._engine.outgoing_queues()
                    if hops & set(queue.next_hops or ()) or self._leads_to(queue, name, known)
                ],
            }

    def _links(self) -> list[Link]:
        return [] if self._transfer is None else list(self._transfer.links.values())

    def _in_directory(self, name: str) -> QueueManager | None:
        for attribute, value in (("ComputerName", name.upper()), ("QualifiedComputerName", name)):
            _, found = self._engine.read_directory("QueueManager", [AttributeFilter(attribute, Operator.EQUALS, value)])
            if isinstance(found, QueueManager):
                return found
        return None

    def _leads_to(self, queue: OutgoingQueue, name: str, known: QueueManager | None) -> bool:
        try:
            info = get_destination_info(self._engine, FormatName.parse(queue.destination_format_name))
        except StatusError:
            return False
        if info is None:
            return False
        return info.host_name.lower() == name.lower() or (
            known is not None and info.queue_manager_guid == known.identifier
        )

    # Outgoing queues --------------------------------------------------------------------------------------------

    def list_outgoing(self) -> list[Document]:
        with self._runtime.lock:
            queues = sorted(self._engine.outgoing_queues(), key=lambda queue: queue.destination_format_name.lower())
            return [self._outgoing(queue) for queue in queues]

    def show_outgoing(self, name: str) -> Document:
        with self._runtime.lock:
            return self._outgoing(self.find_outgoing(name))

    def pause(self, name: str) -> Document:
        """MS-MQDMPR 3.1.4.14: nothing leaves the queue until it is resumed, over restarts too."""
        return self._change(name, outgoing_queues.pause)

    def resume(self, name: str) -> Document:
        """MS-MQDMPR 3.1.4.15."""
        with self._runtime.lock:
            queue = self.find_outgoing(name)
            if queue.state not in FIXED_STATES:
                raise AdministrationError(f"{queue.destination_format_name} is not paused, it is {queue.state.value}")
        return self._change(name, outgoing_queues.resume)

    def _change(self, name: str, change: Callable[[Engine, OutgoingQueue], None]) -> Document:
        with self._runtime.lock:
            queue = self.find_outgoing(name)
            change(self._engine, queue)
            document = self._outgoing(queue)
            ticket = self._runtime.store.ticket()
        self._runtime.store.sync(ticket)
        return document

    def resend(self, name: str) -> Document:
        """Send what is not acknowledged now, not when its timer says so (MS-MQMR 3.1.4.2, EOD_RESEND)."""
        transfer, run_in_loop = self._transfer, self._run_in_loop
        with self._runtime.lock:
            queue = self.find_outgoing(name)
            if transfer is None or run_in_loop is None:
                raise AdministrationError(
                    "nothing is sent while no queue manager runs: `lanner serve` sends what waits as soon as it starts"
                )
            if queue.state in FIXED_STATES:
                raise AdministrationError(
                    f"{queue.destination_format_name} is {queue.state.value}: `lanner outgoing resume` first"
                )
            document = self._outgoing(queue)
        run_in_loop(lambda: transfer.resend(queue))
        return document

    def find_outgoing(self, name: str) -> OutgoingQueue:
        """The outgoing queue whose destination has this format name, or this in it if no other has."""
        queues = list(self._engine.outgoing_queues())
        wanted = name.lower()
        exact = [queue for queue in queues if queue.destination_format_name.lower() == wanted]
        found = exact or [queue for queue in queues if wanted in queue.destination_format_name.lower()]
        if not found:
            raise AdministrationError(
                f"no outgoing queue has {name!r} in its name: `lanner outgoing list` shows those there are"
            )
        if len(found) > 1:
            names = ", ".join(queue.destination_format_name for queue in found[:5])
            raise AdministrationError(
                f"{len(found)} outgoing queues have {name!r} in their names, give more of it: {names}"
            )
        return found[0]

    def _outgoing(self, queue: OutgoingQueue) -> Document:
        route = None if self._transfer is None else self._transfer.routes.get(queue.number)
        return {
            "name": queue.destination_format_name,
            "state": queue.state.value,
            "messages": queue.message_count,
            "bytes": queue.total_bytes,
            "next_hops": list(queue.next_hops or ()),
            "problem": None if route is None or not route.problem else route.problem,
            "retry_in": self._retry_in(route),
            "connection_history": [
                {
                    "time": _moment(entry.connection_history_time),
                    "status": entry.status.name.lower(),
                    "text": _STATUSES[entry.status],
                    "error": f"{entry.error:#010x}" if entry.error else None,
                    "error_text": _error_text(entry.error),
                    "addresses": list(entry.address_list),
                }
                for entry in queue.connection_history
            ],
            "sequence": _sequence(outgoing_queues.transfer_info(queue, self._transfer)),
        }

    def _retry_in(self, route: Route | None) -> float | None:
        """Seconds until the next attempt."""
        if route is None or route.retry_due is None:
            return None
        return max(0.0, round(route.retry_due - self._engine.monotonic(), 1))

    # Trails -----------------------------------------------------------------------------------------------------

    def reports(self, queue: str) -> list[Document]:
        """The trace reports of a queue, by message, each trail in its order; other messages are passed over."""
        found: list[tuple[tuple[int, str, int], Document]] = []
        for place, message in enumerate(self._peek_all(queue)):
            report = parse_report(message.label, message.body_bytes)
            if message.message_class != MessageClass.REPORT or report is None:
                continue
            identifier = str(MessageIdentifier(report.source_queue_manager, report.message_ordinal))
            time = report.time.isoformat()
            document: Document = {
                "message": identifier,
                "hops": report.hops,
                "time": time,
                "event": "received" if report.next_hop is None else "sent",
                "by": str(message.source_machine),
                "next_hop": report.next_hop,
                "target": report.target_queue,
            }
            # Clocks of different computers differ; the hops they count do not.
            found.append(((report.hops, time, place), document))
            if len(found) == MAX_REPORTS:
                break
        first = {document["message"]: place for place, (_, document) in reversed(list(enumerate(found)))}
        found.sort(key=lambda pair: (first[pair[1]["message"]], pair[0]))
        return [document for _, document in found]

    def _peek_all(self, name: str) -> Iterator[ReceivedMessage]:
        operations = Operations(self._runtime)
        # QueueNotFound rather than an outgoing queue in the making.
        operations.find(name)
        descriptor = operations.open(name, QueueAccessType.PEEK).value
        try:
            cursor = operations.open_cursor(descriptor)
            is_next = False
            while True:
                try:
                    outcome = operations.peek(descriptor, 0, cursor=cursor, is_next=is_next)
                except IOTimeout:
                    return
                yield outcome.value  # type: ignore[union-attr] # without a time-out there is no waiting
                is_next = True
        finally:
            operations.close(descriptor)


def _text(request: Mapping[object, object], key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str):
        raise AdministrationError(f"a request needs the text `{key}`")
    return value


def _texts(request: Mapping[object, object], key: str) -> list[str]:
    value = request.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise AdministrationError(f"a request needs the list of texts `{key}`")
    return value


def _session(link: Link) -> Document:
    session = link.session
    return {
        "address": link.remote_address,
        "queue_manager": str(link.remote_qm_guid),
        "state": session.state.value,
        "initiator": link.is_initiator,
        "window": session.received_window_size,
        "unacknowledged": session.unacked_message_count,
        "queues": [route.queue.destination_format_name for route in link.routes],
    }


def _sequence(info: OutgoingTransferInfo | None) -> Document | None:
    """How far transactional messages have come, under the names of MS-MQDMPR 3.1.1.4 without their Eod."""
    if info is None:
        return None
    return {
        "first_non_ack": _position(info.eod_first_non_ack),
        "last_non_ack": _position(info.eod_last_non_ack),
        "no_ack_count": info.eod_no_ack_count,
        "last_ack": _position(info.eod_last_ack),
        "last_ack_time": _moment(info.eod_last_ack_time) if info.eod_last_ack_time else None,
        "last_ack_count": info.eod_last_ack_count,
        "next_seq": _position(info.eod_next_seq),
        "no_read_count": info.eod_no_read_count,
        "resend_interval": info.eod_resend_interval,
        "resend_time": _moment(info.eod_resend_time) if info.eod_resend_time else None,
        "resend_count": info.eod_resend_count,
    }


def _position(triple: tuple[int, int, int]) -> Document | None:
    """MS-MQMQ 2.2.5; an identifier has 64 bits and is text."""
    identifier, number, previous = triple
    if not identifier and not number:
        return None
    return {"sequence": f"{identifier:#018x}", "number": number, "previous": previous}


def _error_text(error: int) -> str | None:
    return _WINSOCK.get(error & 0xFFFF) if error & 0xFFFF_0000 == 0x8007_0000 else None


def _moment(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()
