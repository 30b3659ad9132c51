"""Metrics for Prometheus: sizes of queues, and messages that were refused or dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from lanner.daemon.metrics_server import MetricsServer
from lanner.daemon.settings import split_address
from lanner.daemon.state_metrics import CommitCollector, RateCollector, StateCollector, metric_name
from lanner.host.accepting import listen_tcp
from lanner.host.budget import Budget, Door
from lanner.host.runtime import Runtime
from lanner.security.printable import one_line
from lanner.transfer.incidents import Incident
from lanner.transfer.refusals import Side

if TYPE_CHECKING:
    from lanner.model.directory_objects import Queue
    from lanner.transfer.transfer import Transfer


# Not in the specification: Prometheus opens one connection, or a few. The share is the part of the
# descriptors reserved for them.
_CONNECTIONS = 64
_CONNECTIONS_PER_PEER = 16
_SHARE = 0.02


class QueueCollector(Collector):
    """The queues' sizes, under the names of windows_exporter's msmq collector."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the families of `collect`, without asking the engine."""
        return list(self._families())

    @staticmethod
    def _families() -> list[GaugeMetricFamily]:
        texts = {
            "windows_msmq_bytes_in_journal_queue": "Size of queue journal in bytes",
            "windows_msmq_bytes_in_queue": "Size of queue in bytes",
            "windows_msmq_messages_in_journal_queue": "Count messages in queue journal",
            "windows_msmq_messages_in_queue": "Count messages in queue",
        }
        return [GaugeMetricFamily(name, text, labels=["name"]) for name, text in texts.items()]

    def collect(self) -> list[GaugeMetricFamily]:
        """Return one sample of each for every queue.

        "Computer Queues" are the dead letters and the system journal.
        """
        families = self._families()
        qm = self._runtime.engine.queue_manager
        with self._runtime.lock:
            rows: list[tuple[str, Queue | None, Queue | None]] = [
                (metric_name(queue), queue, queue.journal_queue)
                for queue in qm.queue_collection.values()
                if not queue.is_system
            ]
            rows.append(("Computer Queues", qm.system_deadletter_queue, qm.system_journal_queue))
            samples = [(name, *_counts(journal), *_counts(queue)) for name, queue, journal in rows]
        for name, journal_bytes, journal_messages, queue_bytes, queue_messages in samples:
            values = (journal_bytes, queue_bytes, journal_messages, queue_messages)
            for family, value in zip(families, values, strict=True):
                family.add_metric([name], value)
        return families


class TransferCollector(Collector):
    """Messages that were refused, here or by peers, or dropped here.

    windows_exporter has no such metrics.
    """

    def __init__(self, runtime: Runtime, transfer: Transfer) -> None:
        self._runtime = runtime
        self._transfer = transfer

    def describe(self) -> list[CounterMetricFamily]:
        """Return the families of `collect`, without asking the engine."""
        text = (
            "Messages refused, by queue, class of the negative acknowledgment, and side (here: by us, peer: by others)"
        )
        dropped = "Messages of other queue managers dropped because they came before (duplicate) or out of order"
        incidents = (
            "Actions of other queue managers that were refused or ignored, by kind; docs/security.md explains the kinds"
        )
        return [
            CounterMetricFamily("lanner_messages_refused", text, labels=["queue", "class", "side"]),
            CounterMetricFamily("lanner_messages_dropped", dropped, labels=["reason"]),
            CounterMetricFamily("lanner_peer_incidents", incidents, labels=["kind"]),
        ]

    def collect(self) -> list[CounterMetricFamily]:
        """Return a sample for each row of the table of refusals, and for each drop reason."""
        refused, dropped, incidents = self.describe()
        incoming = self._transfer.incoming
        with self._runtime.lock:
            for row in incoming.refusals:
                # Names of local queues are written as in the label `name` of the other metrics.
                queue = row.queue.lower() if row.side is Side.HERE else row.queue
                refused.add_metric([queue, row.message_class, row.side.value], row.count)
            dropped.add_metric(["duplicate"], incoming.duplicates)
            dropped.add_metric(["out_of_order"], incoming.out_of_order)
            for kind in Incident:
                incidents.add_metric([kind.value], self._transfer.incidents.count(kind))
        return [refused, dropped, incidents]


def _counts(queue: Queue | None) -> tuple[int, int]:
    return (0, 0) if queue is None else (queue.total_bytes, queue.message_count)


class BudgetCollector(Collector):
    """Resources that peers make the queue manager hold, and their limits."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def describe(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """Return the families of `collect`, without reading the budget."""
        return [
            GaugeMetricFamily("lanner_budget_used", "How much of a resource is in use", labels=["resource"]),
            GaugeMetricFamily("lanner_budget_limit", "How much of it there is", labels=["resource"]),
            CounterMetricFamily("lanner_budget_refused", "How often it was refused", labels=["resource"]),
        ]

    def collect(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """Return one sample of each for every resource."""
        used, limit, refused = families = self.describe()
        for one in self._budget.usage():
            used.add_metric([one.resource], one.used)
            limit.add_metric([one.resource], one.limit)
            refused.add_metric([one.resource], one.refused)
        return families


class StreamCollector(Collector):
    """How far the streams of the data pipeline are behind."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the families of `collect`, without asking the engine."""
        texts = {
            "lanner_stream_behind_messages": "Messages in the queue behind the last batch of a stream, up to a million",
            "lanner_stream_behind_bytes": "Bytes of these messages",
        }
        return [GaugeMetricFamily(name, text, labels=["name", "user"]) for name, text in texts.items()]

    def collect(self) -> list[GaugeMetricFamily]:
        """Return one sample of each for every queue that a user's streams read."""
        messages, size = families = self.describe()
        for lag in self._runtime.stream_lags.all():
            labels = [one_line(lag.queue), one_line(lag.user)]
            messages.add_metric(labels, lag.messages)
            size.add_metric(labels, lag.bytes)
        return families


def metrics_registry(runtime: Runtime, transfer: Transfer | None, budget: Budget) -> CollectorRegistry:
    """Return the registry of all metrics, for `[metrics] bind` and for the HTTP API."""
    registry = CollectorRegistry()
    registry.register(QueueCollector(runtime))
    registry.register(RateCollector(runtime))
    registry.register(StateCollector(runtime, transfer))
    registry.register(CommitCollector(runtime))
    registry.register(StreamCollector(runtime))
    if transfer is not None:
        registry.register(TransferCollector(runtime, transfer))
    registry.register(BudgetCollector(budget))
    ProcessCollector(registry=registry)
    return registry


class MetricsListener:
    """The listener at `[metrics] bind`, which Prometheus scrapes."""

    name = "metrics"

    def __init__(self, runtime: Runtime, bind: str, transfer: Transfer | None, budget: Budget | None = None) -> None:
        self._host, self._port = split_address(bind)
        self._budget = budget or Budget()
        self._registry = metrics_registry(runtime, transfer, self._budget)
        self._server: MetricsServer | None = None
        self.address = f"http://{bind}/metrics"

    async def start(self) -> None:
        door = Door(self._budget, "metrics", limit=_CONNECTIONS, per_peer=_CONNECTIONS_PER_PEER, share=_SHARE)
        self._server = MetricsServer(listen_tcp(self._host, self._port), door, self._registry)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.address = f"http://{host}:{self._server.port}/metrics"

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
