"""OpenTelemetry: two queue managers and a program report to a collector.

The collector reads their reports with OpenTelemetry's own protocol.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import lanner
import lanner.aio
import lanner.telemetry
from lanner.client import carrying
from lanner.client.runtimes import runtime_of
from lanner.daemon import telemetry as daemon_telemetry
from lanner.model.events import EventKind
from lanner.wire.trace_context import MAX_CARRIED, TraceContext, read_trace_context, trace_of_message
from tests.cli.conftest import LANNER, free_address

PATIENCE = 120.0


class Collector:
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []  # with the instance that sent it
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                collector.take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((free_address(), 0), Handler)
        host, port = self._server.server_address[:2]
        self.endpoint = f"http://{host!s}:{port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            about = {one.key: one.value.string_value for one in resource.resource.attributes}
            name = about["service.name"]
            origin = about["service.instance.id"] if name == "lanner" else name
            for scope in resource.scope_spans:
                self.spans += [(origin, span) for span in scope.spans]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait_for(self, *wanted: tuple[str, str]) -> dict[tuple[str, str], Span]:
        """Wait for spans by instance and name."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = {(instance, span.name): span for instance, span in list(self.spans)}
            if all(one in found for one in wanted):
                return found
            assert time.monotonic() < deadline, sorted(found)
            time.sleep(0.1)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture
def provider(collector: Collector) -> Iterator[TracerProvider]:
    made = TracerProvider(resource=Resource.create({"service.name": "shop"}), shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector.endpoint}/v1/traces")))
    yield made
    made.shutdown()


@pytest.fixture
def uninstrumented() -> Iterator[None]:
    yield
    lanner.telemetry.uninstrument()


Serve = Callable[..., tuple[Path, str]]


@pytest.fixture
def serve(tmp_path: Path, collector: Collector) -> Iterator[Serve]:
    """Run queue managers whose spans go to the collector.

    Yield the data directory and the address.
    """
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *lines: str) -> tuple[Path, str]:
        data, address = tmp_path / name, free_address()
        data.mkdir(mode=0o700)
        settings = tmp_path / f"{name}.toml"
        settings.write_text(
            "\n".join((f'name = "{name}"', "[telemetry]", f'endpoint = "{collector.endpoint}"', *lines))
        )
        command = [str(LANNER), "serve", "--json", "--data", str(data)]
        command += ["--bind", address, "--config", str(settings)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        ready = processes[-1].stdout
        assert ready is not None
        assert json.loads(ready.readline())["name"] == name
        return data, address

    yield start
    for process in processes:
        process.terminate()
        assert process.wait(PATIENCE) == 0
        assert process.stdout is not None
        process.stdout.close()


def attribute(span: Span, name: str) -> str:
    return next(str(one.value.string_value) for one in span.attributes if one.key == name)


def test_the_hops_of_a_message_are_one_trace_that_its_identifier_makes(serve: Serve, collector: Collector) -> None:
    alpha, _ = serve("ALPHA")
    beta, address = serve("BETA")
    with lanner.connect(data=beta) as there:
        there.create_queue("orders")
        with lanner.connect(data=alpha) as here:
            sent = here.open(rf"DIRECT=TCP:{address}\private$\orders").send("hello")
        received = there.open("orders").receive(timeout=PATIENCE)
    assert received.extension == b""
    way = rf"DIRECT=TCP:{address}\private$\orders"
    names = ("ALPHA", f"send {way}"), ("ALPHA", f"transfer {way}")
    ends = ("BETA", r"transfer BETA\private$\orders"), ("BETA", r"receive BETA\private$\orders")
    found = collector.wait_for(*names, *ends)
    spans = [found[one] for one in (*names, *ends)]
    assert len({span.trace_id for span in spans}) == 1
    send, out, into, receive = spans
    assert send.parent_span_id == b""
    assert {span.parent_span_id for span in (out, into, receive)} == {send.span_id}
    assert {attribute(span, "messaging.message.id") for span in spans} == {sent}
    assert (send.kind, out.kind, into.kind, receive.kind) == (
        Span.SPAN_KIND_PRODUCER,
        Span.SPAN_KIND_CLIENT,
        Span.SPAN_KIND_SERVER,
        Span.SPAN_KIND_CONSUMER,
    )
    assert send.start_time_unix_nano <= out.end_time_unix_nano
    assert into.start_time_unix_nano == receive.start_time_unix_nano < receive.end_time_unix_nano


def test_a_program_carries_its_trace_in_an_empty_extension_only(
    serve: Serve, collector: Collector, provider: TracerProvider, uninstrumented: None
) -> None:
    data, _ = serve("ALPHA")
    lanner.telemetry.instrument(provider, carry_context=True)
    with lanner.connect(data=data) as manager:
        manager.create_queue("orders")
        queue = manager.open("orders")
        with provider.get_tracer("shop").start_as_current_span("checkout") as checkout:
            queue.send(lanner.Message(body="hello", authenticate=False))
            queue.send(lanner.Message(body="own", extension=b"mine"))
        first, second = queue.receive(timeout=5), queue.receive(timeout=5)
    lanner.telemetry.uninstrument()
    assert carrying.carrier is None
    trace_id = checkout.get_span_context().trace_id
    carried = read_trace_context(first.extension)
    assert carried is not None
    assert carried.trace_id == trace_id
    assert second.extension == b"mine"
    context = lanner.telemetry.context_of(first)
    assert context is not None
    assert trace.get_current_span(context).get_span_context().trace_id == trace_id
    assert lanner.telemetry.context_of(second) is None
    wanted = [
        ("ALPHA", r"send ALPHA\private$\orders"),
        ("ALPHA", r"receive ALPHA\private$\orders"),
        ("shop", "receive orders"),
    ]
    collector.wait_for(*wanted)
    program = [span for instance, span in collector.spans if instance == "shop" and span.name == "send orders"]
    ours = [
        span
        for instance, span in collector.spans
        if instance == "ALPHA" and attribute(span, "messaging.message.id") == first.id
    ]
    assert {span.parent_span_id for span in ours} == {carried.span_id.to_bytes(8, "big")}
    assert carried.span_id.to_bytes(8, "big") in {span.span_id for span in program}
    (received,) = [
        span
        for instance, span in collector.spans
        if (instance, span.name) == ("shop", "receive orders") and attribute(span, "messaging.message.id") == first.id
    ]
    assert [link.trace_id for link in received.links] == [trace_id.to_bytes(16, "big")]


def test_a_signature_covers_the_context(
    tmp_path: Path, collector: Collector, provider: TracerProvider, uninstrumented: None
) -> None:
    lanner.telemetry.instrument(provider, carry_context=True)
    with lanner.QueueManager(tmp_path / "data", name="ALPHA") as manager:
        queue = manager.create_queue("signed", authentication=True)
        queue.send(lanner.Message(body="hello", authenticate=True))
        message = queue.receive(timeout=5)
    assert message.authenticated
    assert read_trace_context(message.extension) is not None


def test_awaitable_sends_and_receives_are_spans_too(
    tmp_path: Path, collector: Collector, provider: TracerProvider, uninstrumented: None
) -> None:
    lanner.telemetry.instrument(provider)

    async def work() -> None:
        async with lanner.aio.QueueManager(tmp_path / "data", name="ALPHA") as manager:
            await manager.create_queue("orders")
            queue = manager.open("orders")
            await queue.send_many(["one", "two"])
            assert [message.extension for message in await queue.receive_many(2)] == [b"", b""]

    asyncio.run(work())
    found = collector.wait_for(("shop", "send orders"), ("shop", "receive orders"))
    for span in found.values():
        assert next(one.value.int_value for one in span.attributes if one.key == "messaging.batch.message_count") == 2


def test_failures_and_the_share_that_is_sampled(serve: Serve, collector: Collector) -> None:
    data, _ = serve("ALPHA", "sample = 0.5")
    with lanner.connect(data=data) as manager:
        queue = manager.create_queue("orders")
        sent = queue.send_many([lanner.Message(body=b"x", time_to_be_received=1) for _ in range(200)])
        deadline = time.monotonic() + PATIENCE
        while queue.count():
            assert time.monotonic() < deadline
            time.sleep(0.2)
    found = collector.wait_for(("ALPHA", r"expire ALPHA\private$\orders"))
    expired = found["ALPHA", r"expire ALPHA\private$\orders"]
    assert expired.status.code == Status.STATUS_CODE_ERROR
    deadline = time.monotonic() + PATIENCE
    wanted = {one for one in sent if trace_of_message(_packed(one)).trace_id & (1 << 64) - 1 < 1 << 63}
    while {
        attribute(span, "messaging.message.id") for _, span in collector.spans if span.name.startswith("expire")
    } != wanted:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert 60 < len(wanted) < 140


def _packed(identifier: str) -> bytes:
    import uuid

    guid, _, ordinal = identifier.partition("\\")
    return uuid.UUID(guid).bytes_le + int(ordinal).to_bytes(4, "little")


@pytest.mark.parametrize(
    "extension",
    [
        b"",
        b"traceparent=01-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01",
        b"traceparent=00-" + b"0" * 32 + b"-" + b"2" * 16 + b"-01",
        b"traceparent=00-" + b"1" * 32 + b"-" + b"0" * 16 + b"-01",
        b"traceparent=00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01\n",
        b"traceparent=00-" + b"G" * 32 + b"-" + b"2" * 16 + b"-01",
        b"traceparent=00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01;tracestate=" + b"x" * MAX_CARRIED,
    ],
)
def test_what_is_no_context_is_left_alone(extension: bytes) -> None:
    assert read_trace_context(extension) is None


def test_a_context_is_read_as_it_was_written() -> None:
    context = TraceContext(7, 8, 0, "vendor=1")
    assert read_trace_context(context.carried()) == context


def test_only_a_queue_manager_that_is_reported_to_listens_to_events(tmp_path: Path) -> None:
    with lanner.QueueManager(tmp_path / "data", name="ALPHA") as manager:
        assert runtime_of(manager).engine.events is None
    assert set(daemon_telemetry.SHAPES) <= set(EventKind)


def test_without_the_extra_the_error_names_it(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['opentelemetry'] = None; sys.modules['opentelemetry.sdk'] = None\n"
    result = subprocess.run(
        [sys.executable, "-c", hidden + "import lanner.telemetry"], capture_output=True, text=True, check=False
    )
    assert "pip install 'lanner[telemetry]'" in result.stderr
