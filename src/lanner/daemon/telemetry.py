"""OpenTelemetry spans for each message's send, transfers and receive on this queue manager.

The engine reports each event with the store's lock held. At that point only a note is made; a
thread turns notes into spans. Excess notes are counted and dropped, so that nothing waits for a
collector. A message belongs to the trace in its Extension, or to a trace derived from its
identifier (`wire.trace_context`), which other computers derive in the same way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lanner.daemon.settings import SettingsError
from lanner.host.budget import Usage
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import MessageClass
from lanner.model.events import EventKind
from lanner.wire.envelope import event_fields
from lanner.wire.fields import message_id, source_queue_manager
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message
from lanner.wire.reader import Reader
from lanner.wire.trace_context import SAMPLED, TraceContext, read_trace_context, trace_of_message

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import SpanKind, Tracer

    from lanner.daemon.settings import TelemetryTable
    from lanner.model.directory_objects import Queue

_LOG = logging.getLogger(__name__)

# Not in the specification: notes that wait for the thread, messages whose arrival is remembered,
# and seconds between two looks.
MAX_NOTES: Final = 20_000
MAX_ARRIVALS: Final = 100_000
_INTERVAL: Final = 0.25
# Seconds to wait for the last spans at shutdown.
_PATIENCE: Final = 5.0
_MILLISECONDS: Final = 1000
_EXTRA: Final = "telemetry"


class Shape(NamedTuple):
    """How an event becomes a span."""

    operation: str
    kind: str  # a member of OpenTelemetry's SpanKind
    # The span begins with the arrival of the message in the queue; otherwise it is a moment.
    is_stay: bool = False
    is_failure: bool = False
    # The span is the parent of the other spans of the message.
    is_root: bool = False


SHAPES: Final = {
    EventKind.ARRIVED: Shape("send", "PRODUCER", is_root=True),
    EventKind.SENT: Shape("send", "PRODUCER", is_root=True),
    EventKind.TRANSFERRED_OUT: Shape("transfer", "CLIENT", is_stay=True),
    EventKind.TRANSFERRED_IN: Shape("transfer", "SERVER"),
    EventKind.RECEIVED: Shape("receive", "CONSUMER", is_stay=True),
    EventKind.EXPIRED: Shape("expire", "INTERNAL", is_stay=True, is_failure=True),
    EventKind.PURGED: Shape("purge", "INTERNAL", is_stay=True),
    EventKind.REFUSED: Shape("refuse", "SERVER", is_failure=True),
}
_ARRIVALS: Final = frozenset({EventKind.ARRIVED, EventKind.SENT, EventKind.TRANSFERRED_IN})


class Note(NamedTuple):
    """The data of an event that its span needs."""

    shape: Shape
    begun: int  # nanoseconds since 1970
    ended: int
    queue: str
    identifier: bytes
    extension: bytes
    size: int
    reason: int


class Telemetry:
    """Makes spans of events and sends them to a collector, from `start` to `stop`."""

    def __init__(self, settings: TelemetryTable) -> None:
        if find_spec("opentelemetry.sdk") is None or find_spec("opentelemetry.exporter") is None:
            raise SettingsError(
                "telemetry.endpoint: OpenTelemetry is not installed: pip install 'lanner[telemetry]', or remove the "
                "setting"
            )
        self._settings = settings
        self._notes: deque[Note] = deque()
        self._lost = 0
        # Arrival times of messages that are still here.
        self._arrived: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._spans: Spans | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lanner-telemetry", daemon=True)

    def start(self, computer: str) -> None:
        """Begin, under the name of the computer."""
        self._spans = Spans(computer, self._settings)
        self._thread.start()

    def stop(self) -> None:
        """Send the waiting spans, as far as the collector accepts them."""
        self._stopping.set()
        if self._spans is not None:
            self._thread.join()
            self._spans.close()

    def usage(self) -> Usage:
        """Return how many notes wait."""
        return Usage("events waiting to become spans", len(self._notes), MAX_NOTES, refused=self._lost)

    def heard(self, kind: EventKind, queue: Queue | None, lookup_id: int, packet: bytes, reason: int) -> None:
        """Make a note of an event."""
        shape = SHAPES.get(kind)
        if shape is None or _message_class(packet) != MessageClass.NORMAL:
            # Acknowledgments and reports are about a message that has spans of its own.
            return
        now = time.time_ns()
        key = (0 if queue is None else queue.number, lookup_id)
        begun = now
        if kind in _ARRIVALS:
            self._arrived[key] = now
            if len(self._arrived) > MAX_ARRIVALS:
                self._arrived.popitem(last=False)
        elif shape.is_stay:
            begun = self._arrived.pop(key, now)
        if len(self._notes) >= MAX_NOTES:
            self._lost += 1
            return
        message = Message(packet)
        self._notes.append(
            Note(
                shape,
                begun,
                now,
                _name_of(queue),
                source_queue_manager(packet) + message_id(packet),
                message.extension,
                len(packet),
                reason,
            )
        )

    def _run(self) -> None:
        while True:
            is_last = self._stopping.wait(_INTERVAL)
            try:
                while self._notes and self._spans is not None:
                    self._spans.make(self._notes.popleft())
            except Exception:  # noqa: BLE001 (logged; spans are no reason to stop)
                _LOG.exception("an event could not be turned into a span")
            if is_last and not self._notes:
                return


class Spans:
    """Spans by the SDK of OpenTelemetry, with Lanner's own identifiers."""

    def __init__(self, computer: str, settings: TelemetryTable) -> None:
        # Optional packages, which take time to import.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        class Identifiers(RandomIdGenerator):
            """Gives the next span its chosen identifiers."""

            chosen: TraceContext | None = None

            def generate_trace_id(self) -> int:
                return super().generate_trace_id() if self.chosen is None else self.chosen.trace_id

            def generate_span_id(self) -> int:
                return super().generate_span_id() if self.chosen is None else self.chosen.span_id

        self._identifiers = Identifiers()
        self._computer = computer
        self._limit = round(settings.sample * (1 << 64))
        # Sampling is decided here, by the trace: every computer with the same share samples the
        # same traces.
        self._provider: TracerProvider = TracerProvider(
            sampler=ALWAYS_ON,
            id_generator=self._identifiers,
            resource=Resource.create({"service.name": "lanner", "service.instance.id": computer}),
            shutdown_on_exit=False,
        )
        endpoint = f"{str(settings.endpoint).rstrip('/')}/v1/traces"
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=_PATIENCE)))
        self._tracer: Tracer = self._provider.get_tracer("lanner")

    def close(self) -> None:
        self._provider.force_flush(round(_PATIENCE * _MILLISECONDS))
        self._provider.shutdown()

    def make(self, note: Note) -> None:
        """Make a span."""
        carried = read_trace_context(note.extension)
        trace = trace_of_message(note.identifier) if carried is None else carried
        if not self._is_sampled(trace, is_carried=carried is not None):
            return
        from opentelemetry import trace as api
        from opentelemetry.trace.status import Status, StatusCode

        is_root = note.shape.is_root and carried is None
        self._identifiers.chosen = trace if is_root else None
        kind: SpanKind = api.SpanKind[note.shape.kind]
        span = self._tracer.start_span(
            f"{note.shape.operation} {note.queue}",
            # An empty context: the span begins a trace.
            context=_context() if is_root else _context(trace),
            kind=kind,
            attributes=self._attributes(note),
            start_time=note.begun,
        )
        if note.shape.is_failure:
            span.set_status(Status(StatusCode.ERROR, f"class {note.reason:#06x}"))
        span.end(note.ended)

    def _is_sampled(self, trace: TraceContext, *, is_carried: bool) -> bool:
        """Return whether to sample a trace.

        For a trace that the message carries, its sender has decided. Others with a low identifier
        are sampled.
        """
        if is_carried:
            return bool(trace.flags & SAMPLED)
        return trace.trace_id & (1 << 64) - 1 < self._limit

    def _attributes(self, note: Note) -> dict[str, Any]:
        """Return the attributes, named by OpenTelemetry's messaging conventions where possible."""
        identifier = MessageIdentifier.unpack(Reader(note.identifier))
        found: dict[str, Any] = {
            "messaging.system": "msmq",
            "messaging.operation.name": note.shape.operation,
            "messaging.destination.name": note.queue,
            "messaging.message.id": str(identifier),
            "messaging.message.envelope.size": note.size,
            "server.address": self._computer,
        }
        if note.shape.operation in ("send", "receive"):
            found["messaging.operation.type"] = note.shape.operation
        if note.shape.is_failure:
            found["error.type"] = f"{note.reason:#06x}"
        return found


def _message_class(packet: bytes) -> int:
    _sent, _ordinal, _flags, _acknowledge, message_class, *_rest = event_fields(packet)
    return message_class


def _name_of(queue: Queue | None) -> str:
    if queue is None:
        return ""
    return queue.destination_format_name if isinstance(queue, OutgoingQueue) else queue.pathname


def _context(parent: TraceContext | None = None) -> Any:  # noqa: ANN401 (of an extra)
    """Return a context of OpenTelemetry, with a remote span if one is given."""
    from opentelemetry import trace as api
    from opentelemetry.context import Context

    if parent is None:
        return Context()
    state = api.TraceState.from_header([parent.state]) if parent.state else None
    span = api.SpanContext(
        parent.trace_id, parent.span_id, is_remote=True, trace_flags=api.TraceFlags(SAMPLED), trace_state=state
    )
    return api.set_span_in_context(api.NonRecordingSpan(span), Context())
