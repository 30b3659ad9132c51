"""OpenTelemetry spans for sends and receives, and trace contexts in sent messages.

    lanner.telemetry.instrument(carry_context=True)

From then on, `send` and `receive` of `Queue` and `Sender`, blocking and async, are spans of the
program's tracer provider. With `carry_context`, a message with an empty Extension carries the
context of its span there (`wire.trace_context`); the receiver links or continues that trace with
`context_of(message)`. A program that does not use `lanner.telemetry` never imports this module, and
with it OpenTelemetry, and pays nothing for it.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.context import Context

from lanner.client import carrying
from lanner.client._async import queue as async_queue
from lanner.client._async import sender as async_sender
from lanner.client._sync import queue as sync_queue
from lanner.client._sync import sender as sync_sender
from lanner.wire.trace_context import TraceContext, read_trace_context

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Link, Span, Tracer, TracerProvider

    from lanner.client.message import ReceivedMessage

Method = Any  # Callable, blocking or not

# Returns the name of the queue that a method's call is about.
Name = Callable[..., str]


def _name_of_queue(queue: Any, *arguments: Any, **named: Any) -> str:  # noqa: ANN401 (a Queue of either form)
    del arguments, named
    return str(queue.name)


def _name_for_sender(sender: Any, *arguments: Any, **named: Any) -> str:  # noqa: ANN401 (a Sender of either form)
    del sender
    return str(arguments[0] if arguments else named["queue"])


_SENDS: Final = ("send", "send_many")
_RECEIVES: Final = ("receive", "receive_many", "receive_by_lookup_id")
_CLASSES: Final[tuple[tuple[type, tuple[str, ...], Name], ...]] = (
    (sync_queue.Queue, (*_SENDS, *_RECEIVES), _name_of_queue),
    (async_queue.Queue, (*_SENDS, *_RECEIVES), _name_of_queue),
    (sync_sender.Sender, ("send",), _name_for_sender),
    (async_sender.Sender, ("send",), _name_for_sender),
)
# The methods that were replaced.
_replaced: list[tuple[type, str, Method]] = []


def instrument(tracer_provider: TracerProvider | None = None, *, carry_context: bool = False) -> None:
    """Make spans for sends and receives, with the global tracer provider if none is given.

    Calling it again replaces the earlier settings.
    """
    uninstrument()
    tracer = trace.get_tracer("lanner", tracer_provider=tracer_provider)
    for owner, names, name_of in _CLASSES:
        for name in names:
            method = getattr(owner, name)
            _replaced.append((owner, name, method))
            wrap = _send_of if name in _SENDS else _receive_of
            setattr(owner, name, wrap(tracer, method, name_of))
    if carry_context:
        carrying.carrier = _current_context


def uninstrument() -> None:
    """Stop making spans and carrying contexts."""
    carrying.carrier = None
    while _replaced:
        owner, name, method = _replaced.pop()
        setattr(owner, name, method)


def context_of(message: ReceivedMessage) -> Context | None:
    """Return the context that a message carries, for `start_as_current_span`.

    Returns None if it carries none.
    """
    span = _span_of(message)
    return None if span is None else trace.set_span_in_context(trace.NonRecordingSpan(span), Context())


def _span_of(message: ReceivedMessage) -> trace.SpanContext | None:
    found = read_trace_context(message.extension)
    if found is None:
        return None
    state = trace.TraceState.from_header([found.state]) if found.state else None
    flags = trace.TraceFlags(found.flags)
    return trace.SpanContext(found.trace_id, found.span_id, is_remote=True, trace_flags=flags, trace_state=state)


def _current_context() -> bytes:
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return b""
    carried = TraceContext(span.trace_id, span.span_id, span.trace_flags, span.trace_state.to_header())
    # A trace state that is too long or not ASCII is left out, as the standard allows.
    octets = carried.carried() if carried.state.isascii() else b""
    return octets if read_trace_context(octets) is not None else carried._replace(state="").carried()


def _send_of(tracer: Tracer, method: Method, name_of: Name) -> Method:
    def span(arguments: Sequence[Any], named: Mapping[str, Any]) -> AbstractContextManager[Span]:
        name = name_of(*arguments, **named)
        attributes = _attributes(name, "send")
        return tracer.start_as_current_span(f"send {name}", kind=trace.SpanKind.PRODUCER, attributes=attributes)

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def sends(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 (any method)
            with span(arguments, named) as current:
                return _note_ids(current, await method(*arguments, **named))

        return sends

    @functools.wraps(method)
    def blocks(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 (any method)
        with span(arguments, named) as current:
            return _note_ids(current, method(*arguments, **named))

    return blocks


def _note_ids(span: Span, sent: object) -> object:
    if isinstance(sent, str):
        span.set_attribute("messaging.message.id", sent)
    elif isinstance(sent, list):
        span.set_attribute("messaging.batch.message_count", len(sent))
    return sent


def _receive_of(tracer: Tracer, method: Method, name_of: Name) -> Method:
    def tell(name: str, begun: int, result: Any) -> Any:  # noqa: ANN401 (a message, or a list of them)
        """Make the span of a receive that returned a message; one that timed out has no span."""
        messages: list[ReceivedMessage] = result if isinstance(result, list) else [result]
        if messages:
            attributes = _attributes(name, "receive")
            if len(messages) == 1:
                attributes["messaging.message.id"] = messages[0].id
            else:
                attributes["messaging.batch.message_count"] = len(messages)
            links = list(_links(messages))
            kind = trace.SpanKind.CLIENT
            tracer.start_span(f"receive {name}", kind=kind, attributes=attributes, links=links, start_time=begun).end()
        return result

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def receives(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 (any method)
            begun = time.time_ns()
            return tell(name_of(*arguments, **named), begun, await method(*arguments, **named))

        return receives

    @functools.wraps(method)
    def blocks(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 (any method)
        begun = time.time_ns()
        return tell(name_of(*arguments, **named), begun, method(*arguments, **named))

    return blocks


def _links(messages: Iterable[ReceivedMessage]) -> Iterable[Link]:
    for message in messages:
        found = _span_of(message)
        if found is not None:
            yield trace.Link(found, {"messaging.message.id": message.id})


def _attributes(name: str, operation: str) -> dict[str, Any]:
    return {
        "messaging.system": "msmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": name,
    }
