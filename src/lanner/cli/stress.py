"""`lanner bench`: send and receive messages at full speed or at a rate, and measure."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from lanner.cli.errors import CommandError, UsageError
from lanner.cli.options import Json, duration
from lanner.cli.output import counted, say, show_fields, write_json
from lanner.cli.session import Place, connect_to, open_manager, reaching
from lanner.client import Message, Queue, QueueManager
from lanner.model.errors import IOTimeout, LannerError

# Each body begins with the time of its send, in nanoseconds of this computer's monotonic clock.
_STAMP = struct.Struct("<q")
# The seconds between two readings of the counters, and the seconds for which a receiver waits for a
# message.
_TICK = 0.5
_WAIT = 0.2
_LABEL = "lanner bench"


@dataclass(slots=True)
class _Tally:
    """The counts of one worker; each worker has its own, so no lock is needed."""

    messages: int = 0
    # The seconds from each send to the receive.
    latencies: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Run:
    """A run: its options, its workers' tallies, and the first error."""

    size: int
    batch: int
    rate: float | None
    recoverable: bool
    transaction: bool
    stopping: threading.Event = field(default_factory=threading.Event)
    drained: threading.Event = field(default_factory=threading.Event)
    sent: list[_Tally] = field(default_factory=list)
    received: list[_Tally] = field(default_factory=list)
    error: LannerError | None = None

    def worker(self, work: Callable[[QueueManager, Queue, _Tally], None], *arguments: Any) -> threading.Thread:  # noqa: ANN401
        def run() -> None:
            try:
                work(*arguments)
            except LannerError as error:
                self.error = self.error or error
                self.stopping.set()
                self.drained.set()

        return threading.Thread(target=run, daemon=True)

    def send(self, manager: QueueManager, queue: Queue, tally: _Tally) -> None:
        padding = bytes(max(0, self.size - _STAMP.size))
        share = None if self.rate is None else self.rate / max(1, len(self.sent))
        begun = time.perf_counter()
        while not self.stopping.is_set():
            if share is not None:
                ahead = tally.messages / share - (time.perf_counter() - begun)
                if ahead > 0 and self.stopping.wait(ahead):
                    return
            bodies = [_STAMP.pack(time.monotonic_ns()) + padding for _ in range(self.batch)]
            messages = [Message(body=body, label=_LABEL, recoverable=self.recoverable) for body in bodies]
            with self._unit(manager) as unit:
                queue.send_many(messages, transaction=unit)
            tally.messages += self.batch

    def receive(self, manager: QueueManager, queue: Queue, tally: _Tally) -> None:
        while True:
            try:
                with self._unit(manager) as unit:
                    messages = queue.receive_many(self.batch, _WAIT, transaction=unit)
            except IOTimeout:
                messages = []
            now = time.monotonic_ns()
            for message in messages:
                (sent,) = _STAMP.unpack_from(message.body_bytes)
                tally.latencies.append((now - sent) / 1e9)
            tally.messages += len(messages)
            if not messages and self.drained.is_set():
                return

    @contextlib.contextmanager
    def _unit(self, manager: QueueManager) -> Iterator[Any]:
        if not self.transaction:
            yield None
            return
        with manager.transaction() as unit:
            yield unit


@reaching
def bench(
    queue: Annotated[
        str | None,
        typer.Argument(metavar="QUEUE", help="An empty queue; without it, one that is made for the run and deleted."),
    ] = None,
    *,
    seconds: Annotated[str, typer.Option("--duration", help="How long messages are sent: 10, 5m.")] = "10",
    senders: Annotated[int, typer.Option("--senders", min=1, max=64, help="Number of senders.")] = 1,
    receivers: Annotated[int, typer.Option("--receivers", min=0, max=64, help="Number of receivers.")] = 1,
    size: Annotated[int, typer.Option("--size", min=8, max=4_000_000, help="Octets of a body.")] = 1000,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.01, help="Messages per second in total; by default as many as possible."),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, max=1000, help="Messages in each send and each receive.")] = 1,
    recoverable: Annotated[
        bool, typer.Option("--recoverable", help="Send recoverable messages, which survive a restart.")
    ] = False,
    transaction: Annotated[bool, typer.Option("--transaction", help="Each batch in a transaction.")] = False,
    at: Place,
    json: Json = False,
) -> None:
    """Measure a queue manager: rate, and time from send to receive."""
    length = duration(seconds, "--duration")
    if not length:
        raise UsageError("--duration: more than 0 seconds, and not for ever")
    run = _Run(size, batch, rate, recoverable or transaction, transaction)
    with open_manager(at) as manager, _queue_of(manager, queue, transactional=transaction) as name:
        elapsed = _measure(run, manager, at, name, senders, receivers, length)
    if run.error is not None:
        raise CommandError(
            f"{sum(one.messages for one in run.sent)} messages were sent, then: {run.error}"
        ) from run.error
    document = _document(run, elapsed)
    if json:
        write_json(
            {"queue": name, "size": size, "batch": batch, "senders": senders, "receivers": receivers, **document}
        )
        return
    who = f"{counted(senders, 'sender')}, {counted(receivers, 'receiver')}"
    say(f"{name}: {size} octets, {who}, batches of {batch}")
    show_fields([(key.replace("_", " "), "-" if value is None else f"{value:,}") for key, value in document.items()])


@contextlib.contextmanager
def _queue_of(manager: QueueManager, name: str | None, *, transactional: bool) -> Iterator[str]:
    """Yield the queue of a run, and remove the messages that the run has left."""
    if name is None:
        made = manager.create_queue(f"lanner-bench-{os.getpid()}", transactional=transactional)
        try:
            yield made.name
        finally:
            manager.delete_queue(made.name)
        return
    queue = manager.open(name)
    attributes = queue.attributes()
    if attributes.message_count:
        raise UsageError(f"{queue.path_name} has messages, and the run would receive them: give an empty queue")
    if attributes.transactional != transactional:
        need = "a transactional queue needs --transaction" if attributes.transactional else "it is not transactional"
        raise UsageError(f"{queue.path_name}: {need}")
    try:
        yield name
    finally:
        found = queue.find(f"label={_LABEL}", limit=1000, ids_only=True)
        while found.lookup_ids:
            queue.delete(*found.lookup_ids)
            found = queue.find(f"label={_LABEL}", limit=1000, ids_only=True)


def _measure(
    run: _Run, manager: QueueManager, at: Place, name: str, senders: int, receivers: int, length: float
) -> float:
    """Run the workers; return for how many seconds messages were sent."""
    with contextlib.ExitStack() as stack:

        def opened() -> tuple[QueueManager, Queue]:
            # Each worker has its own connection; a queue manager in this process is shared.
            own = connect_to(at)
            used = manager if own is None else stack.enter_context(own)
            return used, used.open(name)

        run.sent.extend(_Tally() for _ in range(senders))
        run.received.extend(_Tally() for _ in range(receivers))
        sending = [run.worker(run.send, *opened(), tally) for tally in run.sent]
        receiving = [run.worker(run.receive, *opened(), tally) for tally in run.received]
        begun = time.perf_counter()
        for thread in (*receiving, *sending):
            thread.start()
        try:
            _watch(run, begun, length)
        finally:
            run.stopping.set()
            for thread in sending:
                thread.join()
            elapsed = time.perf_counter() - begun
            run.drained.set()
            for thread in receiving:
                thread.join()
    return elapsed


def _watch(run: _Run, begun: float, length: float) -> None:
    """Wait for the end, and show the current rates on a terminal."""
    live = Live(console=Console(stderr=True), transient=True) if sys.stderr.isatty() else None
    with live or contextlib.nullcontext():
        before = (0, 0)
        while (left := length - (time.perf_counter() - begun)) > 0:
            if run.stopping.wait(min(left, _TICK)):
                return
            now = sum(one.messages for one in run.sent), sum(one.messages for one in run.received)
            if live is not None:
                rates = [(new - old) / _TICK for new, old in zip(now, before, strict=True)]
                live.update(f"{left:5.0f} s left   {rates[0]:9,.0f}/s sent   {rates[1]:9,.0f}/s received")
            before = now


def _document(run: _Run, elapsed: float) -> dict[str, float | None]:
    sent, received = (sum(one.messages for one in tallies) for tallies in (run.sent, run.received))
    latencies = sorted(latency for one in run.received for latency in one.latencies)

    def percentile(part: float) -> float | None:
        return round(latencies[int(part * (len(latencies) - 1))] * 1000, 3) if latencies else None

    return {
        "seconds": round(elapsed, 3),
        "sent": sent,
        "received": received,
        "sent_per_second": round(sent / elapsed, 1),
        "received_per_second": round(received / elapsed, 1),
        "latency_ms_median": percentile(0.5),
        "latency_ms_p95": percentile(0.95),
        "latency_ms_p99": percentile(0.99),
        "latency_ms_max": percentile(1.0),
    }
