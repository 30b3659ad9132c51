"""The queue manager as a service: configuration in, listeners up, signals, shutdown.

One asyncio loop runs everything that listens. SIGTERM and SIGINT stop it, SIGHUP reads the configuration again.
"""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import difflib
import gc
import ipaddress
import logging
import os
import re
import signal
import socket
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import uvloop
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

import lanner
from lanner.activex import COCLASSES
from lanner.activex.environment import ActivexSettings, Environment
from lanner.com.server.listener import ComListener, ComSettings
from lanner.engine.settings import EventSettings
from lanner.host.addresses import addresses_of, local_settings
from lanner.host.runtime import Runtime
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import INFINITE
from lanner.model.errors import LannerError
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import Credentials
from lanner.services.listener import RpcListener, RpcSettings
from lanner.spark.flight.settings import (
    FlightSettings,
    PipelineUnavailable,
    flight_listener,
    flight_listener_if_available,
)
from lanner.transfer.refusals import Side
from lanner.transfer.settings import TransferSettings
from lanner.transfer.shell import TransferListener

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from lanner.com.server.activator import ClassTable
    from lanner.model.directory_objects import Queue
    from lanner.spark.flight.server import FlightListener
    from lanner.transfer.transfer import Transfer

_LOG = logging.getLogger(__name__)

# What SIGHUP changes in a running queue manager; everything else needs a restart.
RELOADABLE = ("log.level", "quota.queue_manager_kb", "quota.journal_kb", "peers")

Kilobytes = int | Literal["none"] | None
_COMPUTER_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")
# An address of the peers table that is none, but a name that DNS has; digits alone are an address mistyped.
_HOST_NAME = re.compile(r"(?![0-9.]+$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
# How long a thread that computes may keep the loop's thread waiting; the interpreter's own is ten times that.
_SWITCH_INTERVAL = 0.0005  # seconds
_M_ARENA_MAX = -8  # of mallopt(3)


class SettingsError(LannerError):
    """The configuration cannot be used; the message names the file, the key and what is wrong with it."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LogSettings(_Table):
    level: Literal["debug", "info", "warning", "error"] = "info"


class QuotaSettings(_Table):
    """Kilobytes. A quota that is not set stays what it was; a new queue manager has 8 GiB, and no journal quota."""

    queue_manager_kb: Kilobytes = None
    journal_kb: Kilobytes = None

    @field_validator("queue_manager_kb", "journal_kb", mode="before")
    @classmethod
    def _in_range(cls, value: object) -> object:
        if value in (None, "none"):
            return value
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < INFINITE:
            raise ValueError(f'kilobytes, 0 to {INFINITE - 1}, or "none" for no limit')
        return value


class SecuritySettings(_Table):
    # MS-MQDMPR 3.1.1.1 HardenedSecurity: no RPC, and no transfer over anything but HTTP.
    hardened: bool = False
    # MS-MQQB 3.1.1.2 SendInsecureNacks: tell strangers why a message was refused.
    send_insecure_nacks: bool = False


_TRANSFER = TransferSettings()
Interval = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Number = Annotated[int, Field(ge=1)]


class TransferTable(_Table):
    """The fields of TransferSettings that an operator may want to change, under the same names. Times are seconds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # False: nothing is sent to other computers and nothing taken from them.
    enabled: bool = True
    port: int = _TRANSFER.port
    window_size: int = _TRANSFER.window_size
    round_trip_delay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = _TRANSFER.round_trip_delay
    ack_wait_timeout: float = _TRANSFER.ack_wait_timeout
    direct_ack_wait_multiplier: Number = _TRANSFER.direct_ack_wait_multiplier
    session_initialization_timeout: Interval = _TRANSFER.session_initialization_timeout
    cleanup_interval: Interval | None = _TRANSFER.cleanup_interval
    try_connect_interval: Interval = _TRANSFER.try_connect_interval
    order_ack_timeout: Interval = _TRANSFER.order_ack_timeout
    maximum_order_ack_delay: Interval = _TRANSFER.maximum_order_ack_delay
    resend_timeouts_short: Interval = _TRANSFER.resend_timeouts_short
    resend_timeouts_medium: Interval = _TRANSFER.resend_timeouts_medium
    resend_timeouts_long: Interval = _TRANSFER.resend_timeouts_long
    resend_timeouts_final: Interval = _TRANSFER.resend_timeouts_final
    message_id_history_size: int = _TRANSFER.message_id_history_size
    message_id_history_cleanup: Interval = _TRANSFER.message_id_history_cleanup
    max_in_sessions: int = _TRANSFER.max_in_sessions
    max_sessions_per_peer: Number = _TRANSFER.max_sessions_per_peer
    max_half_open: Number = _TRANSFER.max_half_open
    max_queues_for_others: Number = _TRANSFER.max_queues_for_others
    answers_pings: bool = _TRANSFER.answers_pings
    ping_port: int = _TRANSFER.ping_port
    pings_before_connecting: bool = _TRANSFER.pings_before_connecting

    @field_validator("*")
    @classmethod
    def _can_be_used(cls, value: object, info: ValidationInfo) -> object:
        if info.field_name not in (None, "enabled"):
            given: dict[str, Any] = {str(info.field_name): value}
            try:
                TransferSettings(**given)
            except ValueError as error:
                raise ValueError(str(error).partition(": ")[2]) from None
        return value


_RPC = RpcSettings()
_FLIGHT = FlightSettings()
Port = Annotated[int, Field(ge=1, le=0xFFFF)]


class RpcTable(_Table):
    """The fields of RpcSettings, under the same names."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # False: only the Unix socket of the data directory.
    enabled: bool = _RPC.enabled
    port: Port = _RPC.port
    read_port: Port = _RPC.read_port
    # 0: none.
    endpoint_mapper_port: Annotated[int, Field(ge=0, le=0xFFFF)] = _RPC.endpoint_mapper_port
    requires_authentication: bool = _RPC.requires_authentication
    keytab: Annotated[Path | None, Field(strict=False)] = _RPC.keytab


class ComTable(_Table):
    """How objects are served to COM clients."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # Only together with RPC and its endpoint mapper, whose port activation needs.
    enabled: bool = True
    # 0: any that is free; clients are told.
    port: Annotated[int, Field(ge=0, le=0xFFFF)] = ComSettings().port
    # The least that callers must have (MS-DCOM 3.1.1.5.4).
    authentication_level: Literal["none", "connect", "packet", "integrity", "privacy"] = "integrity"
    # The account of `lanner user` that we call the event sinks of clients as; none: as nobody.
    callback_user: str | None = None


_AUTHENTICATION_LEVELS = {
    "none": AuthLevel.NONE,
    "connect": AuthLevel.CONNECT,
    "packet": AuthLevel.PKT,
    "integrity": AuthLevel.PKT_INTEGRITY,
    "privacy": AuthLevel.PKT_PRIVACY,
}


class ActivexTable(_Table):
    """The fields of ActivexSettings, under the same names."""

    timeout: Literal["null", "error"] = ActivexSettings().timeout


class FlightTable(_Table):
    """The fields of FlightSettings, under the same names."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # None: if the packages of the data pipeline are installed.
    enabled: bool | None = None
    # None: the address of the queue manager if that is a loopback address, else 127.0.0.1.
    bind: str | None = None
    port: Port = _FLIGHT.port
    tls_certificate: Annotated[Path | None, Field(strict=False)] = _FLIGHT.tls_certificate
    tls_key: Annotated[Path | None, Field(strict=False)] = _FLIGHT.tls_key
    max_streams: Number = _FLIGHT.max_streams


_EVENTS = EventSettings()


class EventsTable(_Table):
    """The fields of EventSettings, under the same names."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # Whether what happens to messages is written down, for the data pipeline.
    enabled: bool = False
    keep_days: float = _EVENTS.keep_days
    max_mb: int = _EVENTS.max_mb

    @field_validator("keep_days", "max_mb")
    @classmethod
    def _can_be_used(cls, value: float, info: ValidationInfo) -> float:
        given: dict[str, Any] = {str(info.field_name): value}
        try:
            EventSettings(**given)
        except ValueError as error:
            raise ValueError(str(error).partition(": ")[2]) from None
        return value

    @property
    def settings(self) -> EventSettings | bool:
        """What the engine is told."""
        return EventSettings(self.keep_days, self.max_mb) if self.enabled else False


class MetricsSettings(_Table):
    # ADDRESS:PORT; none, no endpoint.
    bind: str | None = None

    @field_validator("bind")
    @classmethod
    def _address_and_port(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value


class Settings(BaseSettings):
    """Everything `lanner serve` can be told. The command line wins over the file, the file over the defaults."""

    model_config = SettingsConfigDict(extra="forbid")

    data: Path = Field(default_factory=lambda: Path(os.environ.get("LANNER_DATA", "data")))
    # None: the name the data directory has; the host's for a new one.
    name: str | None = None
    bind: str = "127.0.0.1"
    # None: the domain of this machine's host name.
    dns_domain: str | None = None
    log: LogSettings = LogSettings()
    quota: QuotaSettings = QuotaSettings()
    security: SecuritySettings = SecuritySettings()
    transfer: TransferTable = TransferTable()
    rpc: RpcTable = RpcTable()
    com: ComTable = ComTable()
    activex: ActivexTable = ActivexTable()
    flight: FlightTable = FlightTable()
    events: EventsTable = EventsTable()
    # Computer name to address.
    peers: dict[str, str] = Field(default_factory=dict)
    metrics: MetricsSettings = MetricsSettings()

    @field_validator("peers")
    @classmethod
    def _are_addresses(cls, value: dict[str, str]) -> dict[str, str]:
        for name, address in value.items():
            try:
                ipaddress.ip_address(address)
            except ValueError:
                if not _HOST_NAME.fullmatch(address):
                    raise ValueError(
                        f"{name} = {address!r} is no address, such as 192.0.2.7, and no host name"
                    ) from None
        if len({name.lower() for name in value}) < len(value):
            raise ValueError("a name is there twice; capitals make no difference")
        return value

    @property
    def transfer_settings(self) -> TransferSettings:
        """What transfer is told."""
        return TransferSettings(**self.transfer.model_dump(exclude={"enabled"}), peers=self.peers)

    @field_validator("name")
    @classmethod
    def _is_computer_name(cls, value: str | None) -> str | None:
        if value is not None and not _COMPUTER_NAME.fullmatch(value):
            raise ValueError("1 to 63 letters, digits, - and _")
        return value

    @field_validator("bind")
    @classmethod
    def _is_address(cls, value: str) -> str:
        try:
            ipaddress.ip_address(value)
        except ValueError:
            raise ValueError("an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all") from None
        return value


def split_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:9182` or `[::1]:9182`."""
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port) if port.isdecimal() else -1
    except ValueError:
        number = -1
    if not 0 <= number <= 0xFFFF:
        raise ValueError("an address and a port, such as 127.0.0.1:9182")
    return str(address), number


def setting_names(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """Every setting by its dotted name."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from setting_names(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def load_settings(config: Path | None, overrides: dict[str, object]) -> Settings:
    """The settings of a file, and what the command line says instead. SettingsError says what cannot be used."""
    where = "command line" if config is None else str(config)
    if config is not None:
        try:
            tomllib.loads(config.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(f"{config}: {error.strerror}; give an existing file with --config") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{config} is not TOML: {error}") from error

    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del env_settings, dotenv_settings, file_secret_settings  # one file and the command line
            if config is None:
                return (init_settings,)
            return (init_settings, TomlConfigSettingsSource(settings_cls, config))

    # The values come from outside and are checked here.
    given: dict[str, Any] = overrides
    try:
        return FromFile(**given)
    except ValidationError as error:
        raise SettingsError(f"{where}: {'; '.join(_complaints(error))}") from error


def _complaints(error: ValidationError) -> Iterator[str]:
    known = list(setting_names())
    tables = {name.rpartition(".")[0] for name in known} - {""}
    for item in error.errors():
        # A union names its member last: no part of the key.
        parts = [str(part) for part in item["loc"]]
        key = next((".".join(parts[:end]) for end in (2, 1) if ".".join(parts[:end]) in known), ".".join(parts))
        if key == "peers":
            # The names in it are the operator's own.
            key = ".".join(parts)
        if item["type"] == "extra_forbidden":
            table = key.rpartition(".")[0]
            near = [name for name in known if name.startswith(f"{table}.")] if table else [*known, *tables]
            yield f"unknown setting {key}; the nearest known one is {difflib.get_close_matches(key, near, 1, 0)[0]}"
        elif key in tables:
            yield f"{key} = {item['input']!r}: a table; write [{key}] and its settings below it"
        else:
            message = item["msg"].removeprefix("Value error, ")
            yield f"{key} = {item['input']!r}: {message[:1].lower()}{message[1:]}"


def dotted(settings: Settings) -> dict[str, object]:
    """Every setting with its value."""
    values: dict[str, object] = {}
    for name in setting_names():
        value: object = settings
        for part in name.split("."):
            value = getattr(value, part)
        values[name] = value
    return values


def _quota(value: Kilobytes) -> int | None:
    return INFINITE if value == "none" else value


class Listener(Protocol):
    """Something that serves others while the queue manager runs."""

    name: str

    @property
    def address(self) -> str:
        """Where it listens, as people write it."""

    async def start(self) -> None:
        """Listen; an OSError says why that cannot be."""

    async def stop(self) -> None:
        """Let go of the address and of everybody connected."""


class QueueCollector(Collector):
    """The queues' sizes, under the names of windows_exporter's msmq collector."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def describe(self) -> list[GaugeMetricFamily]:
        """What `collect` gives, without asking the engine."""
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
        """One sample of each for every queue; "Computer Queues" are the dead letters and the system journal."""
        families = self._families()
        qm = self._runtime.engine.queue_manager
        with self._runtime.lock:
            rows: list[tuple[str, Queue | None, Queue | None]] = [
                (_metric_name(queue), queue, queue.journal_queue)
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
    """Messages that were refused, here or by peers, or dropped here; windows_exporter has no such metrics."""

    def __init__(self, runtime: Runtime, transfer: Transfer) -> None:
        self._runtime = runtime
        self._transfer = transfer

    def describe(self) -> list[CounterMetricFamily]:
        """What `collect` gives, without asking the engine."""
        text = (
            "Messages refused, by queue, class of the negative acknowledgment, and side (here: by us, peer: by others)"
        )
        dropped = "Messages of other queue managers dropped because they came before (duplicate) or out of order"
        return [
            CounterMetricFamily("lanner_messages_refused", text, labels=["queue", "class", "side"]),
            CounterMetricFamily("lanner_messages_dropped", dropped, labels=["reason"]),
        ]

    def collect(self) -> list[CounterMetricFamily]:
        """One sample for each row of the table of refusals, and one for each reason to drop a message."""
        refused, dropped = self.describe()
        incoming = self._transfer.incoming
        with self._runtime.lock:
            for row in incoming.refusals:
                # Names of local queues are written as in the label `name` of the other metrics.
                queue = row.queue.lower() if row.side is Side.HERE else row.queue
                refused.add_metric([queue, row.message_class, row.side.value], row.count)
            dropped.add_metric(["duplicate"], incoming.duplicates)
            dropped.add_metric(["out_of_order"], incoming.out_of_order)
        return [refused, dropped]


def _metric_name(queue: Queue) -> str:
    return queue.destination_format_name if isinstance(queue, OutgoingQueue) else queue.pathname.lower()


def _counts(queue: Queue | None) -> tuple[int, int]:
    return (0, 0) if queue is None else (queue.total_bytes, queue.message_count)


class MetricsListener:
    """`[metrics] bind`: Prometheus asks here."""

    name = "metrics"

    def __init__(self, runtime: Runtime, bind: str, transfer: Transfer | None) -> None:
        self._host, self._port = split_address(bind)
        self._registry = CollectorRegistry()
        self._registry.register(QueueCollector(runtime))
        if transfer is not None:
            self._registry.register(TransferCollector(runtime, transfer))
        ProcessCollector(registry=self._registry)
        self._server: WSGIServer | None = None
        self.address = f"http://{bind}/metrics"

    async def start(self) -> None:
        self._server, self._thread = start_http_server(self._port, self._host, self._registry)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.address = f"http://{host}:{self._server.server_port}/metrics"

    async def stop(self) -> None:
        if self._server is not None:
            await asyncio.to_thread(self._server.shutdown)
            self._server.server_close()
            self._thread.join()


class Daemon:
    """One queue manager and what listens for it."""

    def __init__(self, load: Callable[[], Settings]) -> None:
        self._load = load
        self.settings = load()
        set_log_level(self.settings)
        check_bind(self.settings.bind)
        self.runtime = self._open()
        try:
            self.listeners = self._listeners()
        except BaseException:
            self.runtime.close()
            raise
        self._stop = asyncio.Event()

    def _open(self) -> Runtime:
        settings = self.settings
        overrides: dict[str, object] = {
            "local_addresses": addresses_of(settings.bind),
            "queue_manager_quota": _quota(settings.quota.queue_manager_kb),
            "journal_quota": _quota(settings.quota.journal_kb),
            "hardened_security": settings.security.hardened,
            "send_insecure_nacks": settings.security.send_insecure_nacks,
            "events": settings.events.settings,
        }
        if settings.dns_domain is not None:
            overrides["dns_domain"] = settings.dns_domain
        return Runtime(settings.data, local_settings(settings.name, **overrides))

    def _listeners(self) -> list[Listener]:
        """What listens, in the order in which it starts. The protocols on `bind` belong before the metrics."""
        listeners: list[Listener] = []
        transfer: Transfer | None = None
        settings = self.settings
        if settings.security.hardened:
            # MS-MQDMPR 3.1.1.1: no RPC requests, and no transfer over non-HTTP protocols, in either direction.
            _LOG.warning("security.hardened: no messages are taken from other computers, and RPC is off")
        else:
            if settings.transfer.enabled:
                listener = TransferListener(self.runtime.engine, settings.bind, settings.transfer_settings)
                listeners.append(listener)
                transfer = listener.transfer
            rpc = self._rpc(transfer)
            listeners.append(rpc)
            if settings.com.enabled and settings.rpc.enabled and settings.rpc.endpoint_mapper_port:
                listeners.append(self._com(rpc, transfer))
            flight = self._flight()
            if flight is not None:
                listeners.append(flight)
        if settings.metrics.bind is not None:
            listeners.append(MetricsListener(self.runtime, settings.metrics.bind, transfer))
        return listeners

    def _rpc(self, transfer: Transfer | None) -> RpcListener:
        return RpcListener(
            self.runtime.engine,
            self.runtime.users,
            directory=self.settings.data,
            bind=self.settings.bind,
            settings=RpcSettings(**self.settings.rpc.model_dump()),
            transfer=transfer,
            about=self.about,
        )

    def _com(self, rpc: RpcListener, transfer: Transfer | None) -> ComListener:
        runtime, settings = self.runtime, self.settings

        def classes() -> ClassTable:
            environment = Environment(
                runtime.engine,
                rpc.committer,
                transfer=transfer,
                users=runtime.users,
                certificates=runtime.certificates,
                settings=ActivexSettings(**settings.activex.model_dump()),
            )
            return {clsid: partial(coclass, environment) for clsid, coclass in COCLASSES.items()}

        credentials, user = None, settings.com.callback_user
        if user is not None:
            nt_hash = runtime.users.nt_hash(user)
            if nt_hash is None:
                raise SettingsError(f"com.callback_user: there is no account {user}; `lanner user add` makes one")
            credentials = Credentials(user, nt_hash=nt_hash)
        qm = runtime.engine.queue_manager
        return ComListener(
            classes,
            lambda: rpc.server,
            bind=settings.bind,
            names=tuple(dict.fromkeys([qm.computer_name, qm.qualified_computer_name])),
            settings=ComSettings(settings.com.port, _AUTHENTICATION_LEVELS[settings.com.authentication_level]),
            credentials=credentials,
        )

    def _flight(self) -> FlightListener | None:
        """The service of the data pipeline, where it is wanted or its packages are installed."""
        table = self.settings.flight
        if table.enabled is False:
            return None
        own = self.settings.bind
        bind = table.bind or (own if ipaddress.ip_address(own).is_loopback else _FLIGHT.bind)
        try:
            settings = FlightSettings(bind, **table.model_dump(exclude={"enabled", "bind"}))
            if table.enabled is None:
                return flight_listener_if_available(self.runtime, settings)
            return flight_listener(self.runtime, settings)
        except (ValueError, PipelineUnavailable) as error:
            raise SettingsError(f"flight: {error}") from error

    @property
    def name(self) -> str:
        return self.runtime.engine.queue_manager.computer_name

    def about(self) -> dict[str, object]:
        """What commands on this machine may ask for, beside what the engine knows."""
        settings = self.settings
        return {
            "version": lanner.__version__,
            "data": str(settings.data),
            "bind": settings.bind,
            "port": settings.transfer.port,
            "ping_port": settings.transfer.ping_port,
            "peers": settings.peers,
            "listeners": self.addresses,
        }

    @property
    def addresses(self) -> dict[str, str]:
        """Where it listens for what, as people write it."""
        found: dict[str, str] = {}
        for listener in self.listeners:
            found |= listener.addresses if isinstance(listener, RpcListener) else {listener.name: listener.address}
        return found

    async def run(self, on_ready: Callable[[Daemon], None]) -> None:
        """Listen until a signal says stop; then everything is on disk and closed."""
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: partial(self._stop_for, signal.SIGTERM),
            signal.SIGINT: partial(self._stop_for, signal.SIGINT),
            signal.SIGHUP: self.reload,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        started: list[Listener] = []
        try:
            for listener in self.listeners:
                try:
                    await listener.start()
                except OSError as error:
                    raise SettingsError(
                        f"{listener.name} cannot listen on {listener.address}: {error.strerror}; choose another address"
                    ) from error
                started.append(listener)
            on_ready(self)
            await self._stop.wait()
        finally:
            for listener in reversed(started):
                await listener.stop()
            await asyncio.to_thread(self.runtime.close)
            # uvloop does not do it when it is closed: the process would ignore Ctrl-C afterwards.
            for number in handlers:
                loop.remove_signal_handler(number)
            _LOG.info("queue manager %s has stopped", self.name)

    def _stop_for(self, number: signal.Signals) -> None:
        _LOG.info("%s: stopping", number.name)
        self._stop.set()

    def reload(self) -> None:
        """SIGHUP: take over what can be changed now, and say what waits for a restart."""
        try:
            new = self._load()
        except SettingsError as error:
            _LOG.error("the configuration stays as it was: %s", error)
            return
        before, after = dotted(self.settings), dotted(new)
        changed = [name for name in after if before[name] != after[name]]
        for name in changed:
            if name in RELOADABLE:
                _LOG.warning("%s is now %s", name, after[name])
            else:
                _LOG.warning("%s = %s needs a restart", name, after[name])
        if not changed:
            _LOG.warning("the configuration has not changed")
        set_log_level(new)
        self._set_quotas(new.quota)
        for listener in self.listeners:
            if isinstance(listener, TransferListener):
                listener.settings = dataclasses.replace(listener.settings, peers=new.peers)
        kept = {"log": new.log, "quota": new.quota, "peers": new.peers}
        self.settings = self.settings.model_copy(update=kept)

    def _set_quotas(self, quotas: QuotaSettings) -> None:
        engine = self.runtime.engine
        qm = engine.queue_manager
        with self.runtime.change() as change:
            for attribute, value in (
                ("queue_manager_quota", _quota(quotas.queue_manager_kb)),
                ("journal_quota", _quota(quotas.journal_kb)),
            ):
                if value is not None:
                    setattr(qm, attribute, value)
            engine.save_queue_manager()
        change.wait()


def set_log_level(settings: Settings) -> None:
    """The level of everything this package logs."""
    logging.getLogger("lanner").setLevel(settings.log.level.upper())


def check_bind(bind: str) -> None:
    """SettingsError unless `bind` is an address of this machine."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((bind, 0))
        except OSError as error:
            raise SettingsError(
                f"bind {bind} is no address of this machine ({error.strerror}): `ip address` lists them"
            ) from error


def serve(load: Callable[[], Settings], on_ready: Callable[[Daemon], None]) -> None:
    """Run a queue manager until SIGTERM or SIGINT."""

    def ready(daemon: Daemon) -> None:
        sys.setswitchinterval(_SWITCH_INTERVAL)
        # What is there now stays: no collection needs to look at it again.
        gc.collect()
        gc.freeze()
        on_ready(daemon)

    async def run() -> None:
        daemon = Daemon(load)
        await daemon.run(ready)

    limit_arenas()
    uvloop.run(run())


def limit_arenas() -> None:
    """Have all threads share the C library's heap: each of the many that serve Arrow streams would keep what it has freed to itself."""
    with suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
