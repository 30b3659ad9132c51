"""Metrics of the queue manager's state: rates, ages, quotas, dead letters, routes, commits, logons.

A scrape reads counters that exist for other purposes too. In each queue it examines only the first
message of each priority, so its time does not depend on the depth of queues.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from lanner.model.directory_objects import KILOBYTE, OutgoingQueue
from lanner.model.enums import INFINITE, MessageClass, OutgoingState
from lanner.security.printable import one_line
from lanner.services.oldest import SLICE, oldest_arrival

if TYPE_CHECKING:
    from lanner.host.runtime import Runtime
    from lanner.model.directory_objects import Queue
    from lanner.transfer.transfer import Transfer

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily


def metric_name(queue: Queue) -> str:
    """Return the label `name` of a queue."""
    # The names of outgoing queues come from messages, and half a surrogate pair cannot be written
    # as UTF-8.
    return one_line(queue.destination_format_name if isinstance(queue, OutgoingQueue) else queue.pathname.lower())


class RateCollector(Collector):
    """Messages in and out of each queue, the age of its oldest message, and its quota."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # Messages that were there when the service began do not count as arrived.
        self._before = {
            queue.number: queue.message_count for queue in runtime.engine.queue_manager.queue_collection.values()
        }

    def describe(self) -> list[Family]:
        """Return the families of `collect`, without asking the engine."""
        return [
            CounterMetricFamily("lanner_messages_in", "Messages that came into the queue", labels=["name"]),
            CounterMetricFamily(
                "lanner_messages_out", "Messages that left the queue: received, moved, expired, purged", labels=["name"]
            ),
            GaugeMetricFamily(
                "lanner_oldest_message_age_seconds",
                "How long the oldest message has waited; 0 if empty",
                labels=["name"],
            ),
            GaugeMetricFamily("lanner_queue_quota_bytes", "Quota of the queue, if it has one", labels=["name"]),
            GaugeMetricFamily("lanner_quota_bytes", "Quota of the queue manager"),
            GaugeMetricFamily("lanner_quota_used_bytes", "Bytes of messages that count for it"),
        ]

    def collect(self) -> list[Family]:
        """Return samples for the dead-letter queues and all queues that are no system queues."""
        came, left, ages, quotas, quota, used = families = self.describe()
        engine = self._runtime.engine
        qm = engine.queue_manager
        now = engine.clocks.wall()
        with self._runtime.lock:
            queues = iter([queue for queue in qm.queue_collection.values() if not queue.is_system])
            letters = (
                ("dead letters", qm.system_deadletter_queue),
                ("transactional dead letters", qm.system_transactional_deadletter_queue),
            )
            named = [(name, queue) for name, queue in letters if queue is not None]
            if qm.queue_manager_quota != INFINITE:
                quota.add_metric([], qm.queue_manager_quota * KILOBYTE)
            used.add_metric([], qm.total_bytes)
        while named:
            with self._runtime.lock:
                for name, queue in named:
                    before = self._before.get(queue.number, 0)
                    came.add_metric([name], max(0, queue.removed_count + queue.message_count - before))
                    left.add_metric([name], queue.removed_count)
                    ages.add_metric([name], self._age(queue, now))
                    if queue.quota != INFINITE:
                        quotas.add_metric([name], queue.quota * KILOBYTE)
            named = [(metric_name(queue), queue) for queue in islice(queues, SLICE)]
        return families

    def _age(self, queue: Queue, now: float) -> float:
        arrived = oldest_arrival(self._runtime.store, queue)
        return 0.0 if arrived is None else max(0.0, now - arrived)


class StateCollector(Collector):
    """Dead letters, outgoing queues, sessions, transactions, the store and logons."""

    def __init__(self, runtime: Runtime, transfer: Transfer | None) -> None:
        self._runtime = runtime
        self._transfer = transfer

    def describe(self) -> list[Family]:
        """Return the families of `collect`, without asking the engine."""
        return [
            CounterMetricFamily("lanner_dead_letters", "Messages that became dead letters", labels=["class"]),
            GaugeMetricFamily(
                "lanner_outgoing_state", "1 for the state that an outgoing queue is in", labels=["name", "state"]
            ),
            GaugeMetricFamily(
                "lanner_outgoing_retry_seconds", "Seconds until the next attempt to connect", labels=["name"]
            ),
            GaugeMetricFamily("lanner_sessions", "Sessions with other queue managers", labels=["initiator"]),
            GaugeMetricFamily("lanner_transactions", "Transactions: open, or in doubt", labels=["state"]),
            GaugeMetricFamily("lanner_store_bytes", "Disk space of the data directory's files"),
            GaugeMetricFamily("lanner_disk_free_bytes", "Free space on the disk of the data directory"),
            CounterMetricFamily("lanner_logons_failed", "Logons that failed", labels=["mechanism"]),
        ]

    def collect(self) -> list[Family]:
        """Return the samples."""
        letters, states, retries, sessions, transactions, size, free, logons = families = self.describe()
        engine = self._runtime.engine
        with self._runtime.lock:
            for reason, count in engine.copies.dead_letters.items():
                letters.add_metric([_class_name(reason)], count)
            for queue in engine.outgoing_queues():
                for state in OutgoingState:
                    states.add_metric([metric_name(queue), state.value], queue.state is state)
                route = None if self._transfer is None else self._transfer.routes.get(queue.number)
                if route is not None and route.retry_due is not None:
                    left = max(0.0, route.retry_due - engine.monotonic())
                    retries.add_metric([metric_name(queue)], left)
            links = [] if self._transfer is None else list(self._transfer.links.values())
            begun = list(engine.queue_manager.transaction_collection.values())
            failed = dict(engine.audit.failed_logons)
        for is_initiator in (False, True):
            sessions.add_metric([str(is_initiator).lower()], sum(link.is_initiator is is_initiator for link in links))
        in_doubt = sum(one.is_prepared for one in begun)
        transactions.add_metric(["open"], len(begun) - in_doubt)
        transactions.add_metric(["in_doubt"], in_doubt)
        size.add_metric([], sum(_blocks(self._runtime.path)))
        free.add_metric([], shutil.disk_usage(self._runtime.path).free)
        for mechanism, count in failed.items():
            logons.add_metric([mechanism], count)
        return families


class CommitCollector(Collector):
    """How long commits take, and how many messages share one."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store

    def describe(self) -> list[HistogramMetricFamily]:
        """Return the families of `collect`, without asking the store."""
        return [
            HistogramMetricFamily("lanner_commit_seconds", "How long a batch took to become durable"),
            HistogramMetricFamily("lanner_commit_messages", "Messages written or removed in a batch"),
        ]

    def collect(self) -> list[HistogramMetricFamily]:
        """Return both histograms."""
        seconds, messages = families = self.describe()
        for family, histogram in ((seconds, self._store.commit_seconds), (messages, self._store.commit_messages)):
            family.add_metric([], buckets=histogram.buckets(), sum_value=histogram.total)
        return families


def _blocks(directory: Path) -> Iterator[int]:
    """Yield the disk space of the files of a directory; the database file is sparse."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield entry.stat(follow_symlinks=False).st_blocks * 512


def _class_name(number: int) -> str:
    try:
        return MessageClass(number).name.lower()
    except ValueError:
        return str(number)
