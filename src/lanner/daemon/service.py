"""The queue manager as a service: listeners, signals, shutdown.

One asyncio loop runs all listeners. SIGTERM and SIGINT stop the service, and SIGHUP reads the
configuration again.
"""

from __future__ import annotations

import asyncio
import ctypes
import datetime as dt
import gc
import ipaddress
import json
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import uvloop

import lanner
from lanner.activex import COCLASSES
from lanner.activex.coordinated import CoordinatedTransactions
from lanner.activex.environment import ActivexSettings, Environment
from lanner.com.server.listener import ComListener, ComSettings
from lanner.daemon.domain import member_of, notification_settings
from lanner.daemon.http_process import HttpListener
from lanner.daemon.metrics import MetricsListener, metrics_registry
from lanner.daemon.metrics_server import metrics_text
from lanner.daemon.notification import notify
from lanner.daemon.privileges import prepare
from lanner.daemon.reports import Reports
from lanner.daemon.resources import Resolver
from lanner.daemon.settings import (
    AUTHENTICATION_LEVELS,
    RELOADABLE,
    QuotaSettings,
    Settings,
    SettingsError,
    dotted,
    quota_in_kilobytes,
)
from lanner.daemon.telemetry import Telemetry
from lanner.host.addresses import addresses_of, local_settings
from lanner.host.budget import Budget, Usage, raise_descriptor_limit
from lanner.host.early_ports import close_early
from lanner.host.membership import KEYTAB_FILE, Membership
from lanner.host.runtime import Runtime
from lanner.model.directory_objects import KILOBYTE
from lanner.model.enums import INFINITE
from lanner.model.errors import LannerError
from lanner.rpc.security import Credentials
from lanner.security.audit import AuditLog
from lanner.security.log_lines import LINES
from lanner.security.logons import Logons
from lanner.security.profile import Profile
from lanner.services.listener import RpcListener
from lanner.spark.flight.settings import (
    FlightSettings,
    PipelineUnavailable,
    flight_listener,
    flight_listener_if_available,
)
from lanner.transfer.shell import TransferListener
from lanner.transfer.tls import TlsSettingsError

if TYPE_CHECKING:
    from lanner.com.server.activator import ClassTable
    from lanner.security.identity import Identity
    from lanner.spark.flight.server import FlightListener
    from lanner.transfer.transfer import Transfer

_LOG = logging.getLogger(__name__)

# How long a computing thread may keep the loop's thread waiting. The interpreter's default is ten
# times that.
_SWITCH_INTERVAL = 0.0005  # seconds
# In addition to those that Flight calls may use.
_MANY_THREADS = 512
_M_ARENA_MAX = -8  # of mallopt(3)


class Listener(Protocol):
    """A server that runs while the queue manager runs."""

    name: str

    @property
    def address(self) -> str:
        """The address in the form that people write."""

    async def start(self) -> None:
        """Begin to listen. Raises OSError if that is impossible."""

    async def stop(self) -> None:
        """Release the address and close all connections."""


class Daemon:
    """One queue manager and its listeners."""

    def __init__(self, load: Callable[[], Settings]) -> None:
        self._load = load
        self._started = dt.datetime.now(dt.UTC)
        self.settings = load()
        set_log_level(self.settings)
        check_bind(self.settings.bind)
        # Before anything is opened, because the budget divides the descriptors.
        self.budget = Budget(raise_descriptor_limit())
        self.budget.show("log lines", _log_lines)
        self.telemetry = None if self.settings.telemetry.endpoint is None else Telemetry(self.settings.telemetry)
        if self.telemetry is not None:
            self.budget.show("telemetry", self.telemetry.usage)
        self.runtime = self._open()
        self.logons = Logons(self.settings.security.lockout)
        self.budget.show("disk", self._disk)
        self.budget.show("express messages", self._express)
        self.budget.show("threads", _threads)
        try:
            self._keep_password_policy()
            self.listeners = self._listeners()
        except BaseException:
            self.runtime.close()
            raise
        self._stop = asyncio.Event()

    def _open(self) -> Runtime:
        settings = self.settings
        overrides: dict[str, object] = {
            "local_addresses": addresses_of(settings.bind),
            "queue_manager_quota": quota_in_kilobytes(settings.quota.queue_manager_kb),
            "journal_quota": quota_in_kilobytes(settings.quota.journal_kb),
            "express_memory": settings.quota.express_memory,
            "queue_share": settings.quota.queue_share,
            "peer_share": settings.quota.peer_share,
            "strangers_share": settings.quota.strangers_share,
            "hardened_security": settings.security.hardened,
            "profile": Profile(settings.security.profile),
            "send_insecure_nacks": settings.security.send_insecure_nacks,
            "trust_unsigned_sid": settings.security.trust_unsigned_sid,
            "legacy_crypto": settings.security.legacy_crypto,
            "legacy_signatures": settings.security.legacy_signatures,
            "events": settings.events.settings,
            "event_listener": None if self.telemetry is None else self.telemetry.heard,
            "audit": AuditLog(None if settings.log.audit == "none" else settings.data / settings.log.audit),
            "local_origin": f"service uid {os.geteuid()}",
        }
        if settings.dns_domain is not None:
            overrides["dns_domain"] = settings.dns_domain
        membership = self._membership = member_of(settings.directory, settings.data, Profile(settings.security.profile))
        if membership is None:
            return Runtime(settings.data, local_settings(settings.name, **overrides))
        if Membership.load(settings.data) is not None:
            raise SettingsError(
                f"directory.domain: `lanner domain join` has made the queue manager in {settings.data} a member of a "
                "domain; leave the table [directory] out"
            )
        overrides["directory_integrated"] = True
        overrides["notifications"] = notification_settings(settings.directory)
        overrides["dns_domain"] = settings.directory.domain
        if membership.site is not None:
            overrides["site_identifiers"] = (str(membership.site),)
        runtime = Runtime(settings.data, local_settings(settings.name, **overrides), membership.directory)
        if not runtime.engine.queue_manager.directory_integrated:
            runtime.close()
            raise SettingsError(
                f"directory.domain: the queue manager in {settings.data} was made outside a domain, and others know it "
                "by the identifier it has; `lanner domain join` takes it into one, or leave directory.domain out"
            )
        return runtime

    def _keep_password_policy(self) -> None:
        """Store the password policy where `lanner user` finds it.

        A service that cannot write the file may still be able to serve.
        """
        try:
            self.runtime.users.set_policy(self.settings.security.passwords)
        except (LannerError, OSError) as error:
            _LOG.error("security.min_password_length and security.ntlm cannot be kept for `lanner user`: %s", error)

    def _listeners(self) -> list[Listener]:
        """Return the listeners, in the order in which they start.

        The protocols on `bind` come before the metrics.
        """
        listeners: list[Listener] = []
        transfer: Transfer | None = None
        settings = self.settings
        if settings.security.hardened:
            # MS-MQDMPR 3.1.1.1: no RPC requests, and no transfer over non-HTTP protocols in either
            # direction.
            _LOG.warning("security.hardened: no messages are taken from other computers, and RPC is off")
        else:
            if settings.transfer.enabled:
                try:
                    listener = TransferListener(
                        self.runtime.engine, settings.bind, settings.transfer_settings, self.budget
                    )
                except TlsSettingsError as error:
                    raise SettingsError(f"transfer: {error}") from error
                listeners.append(listener)
                transfer = listener.transfer
            rpc = self._rpc(transfer)
            listeners.append(rpc)
            if settings.com.enabled and settings.rpc.enabled and settings.rpc.endpoint_mapper_port:
                listeners.append(self._com(rpc, transfer))
            flight = self._flight()
            if flight is not None:
                listeners.append(flight)
            if settings.http.enabled:
                listeners.append(HttpListener(rpc, settings.http, settings.http.address(settings.bind), self._hosts()))
        if settings.metrics.bind is not None:
            listeners.append(MetricsListener(self.runtime, settings.metrics.bind, transfer, self.budget))
        return listeners

    def _rpc(self, transfer: Transfer | None) -> RpcListener:
        rpc = self.settings.rpc.settings
        joined = self.settings.data / KEYTAB_FILE
        if rpc.keytab is None and joined.exists() and find_spec("gssapi") is not None:
            rpc = replace(rpc, keytab=joined)
        reports = Reports(self.settings.http.reports)
        return RpcListener(
            self.runtime.engine,
            self.runtime.users,
            directory=self.settings.data,
            bind=self.settings.bind,
            settings=rpc,
            transfer=transfer,
            about=self.about,
            logons=self.logons,
            budget=self.budget,
            questions={
                "metrics": self._metrics(transfer),
                "settings": lambda _identity, _request: self._shown_settings(),
                "reports": reports.show_list,
                "report": reports.read,
            },
        )

    def _metrics(self, transfer: Transfer | None) -> Callable[[Identity, Mapping[str, Any]], object]:
        registry = metrics_registry(self.runtime, transfer, self.budget)

        def answer(identity: Identity, request: Mapping[str, Any]) -> object:
            del identity
            names = [str(name) for name in request.get("names") or ()]
            body, content_type = metrics_text(registry, str(request.get("accept") or ""), names)
            return {"text": body.decode(), "content_type": content_type}

        return answer

    def _shown_settings(self) -> dict[str, object]:
        """Return every setting by its name, in the form of JSON. Passwords are not shown."""
        shown: dict[str, object] = json.loads(self.settings.model_dump_json())
        return shown

    def _com(self, rpc: RpcListener, transfer: Transfer | None) -> ComListener:
        runtime, settings = self.runtime, self.settings

        def classes() -> ClassTable:
            environment = Environment(
                runtime.engine,
                rpc.committer,
                transfer=transfer,
                users=runtime.users,
                certificates=runtime.certificates,
                transaction_manager=CoordinatedTransactions(runtime.engine, rpc.committer),
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
            settings=ComSettings(settings.com.port, AUTHENTICATION_LEVELS[settings.com.authentication_level]),
            credentials=credentials,
        )

    def _flight(self) -> FlightListener | None:
        """Return the service of the data pipeline, if it is enabled or its packages are there."""
        table = self.settings.flight
        if table.enabled is False:
            return None
        own = self.settings.bind
        bind = table.bind or (own if ipaddress.ip_address(own).is_loopback else FlightSettings().bind)
        try:
            processes = max(1, min((os.cpu_count() or 1) // 2, 4)) if table.processes is None else table.processes
            given = table.model_dump(exclude={"enabled", "bind", "processes"})
            settings = FlightSettings(bind, processes=processes, **given)
            if table.enabled is None:
                return flight_listener_if_available(self.runtime, settings, self.logons, self.budget)
            return flight_listener(self.runtime, settings, self.logons, self.budget)
        except (ValueError, PipelineUnavailable) as error:
            raise SettingsError(f"flight: {error}") from error

    def _hosts(self) -> list[str]:
        """Return the names by which browsers may reach this computer."""
        qm, settings = self.runtime.engine.queue_manager, self.settings
        return [qm.computer_name, qm.qualified_computer_name, *addresses_of(settings.bind), *settings.http.hosts]

    @property
    def name(self) -> str:
        return self.runtime.engine.queue_manager.computer_name

    def about(self) -> dict[str, object]:
        """Return what commands on this machine may query, beyond what the engine has."""
        settings = self.settings
        return {
            "version": lanner.__version__,
            "started": self._started.isoformat(timespec="seconds"),
            "data": str(settings.data),
            "bind": settings.bind,
            "port": settings.transfer.port,
            "ping_port": settings.transfer.ping_port,
            "peers": {name: peer.addresses for name, peer in settings.known_peers.items()},
            "tls": self._about_tls(),
            "listeners": self.addresses,
            "disk": self._disk_space(),
            "limits": [one.document() for one in self.budget.usage()],
        }

    def _disk_space(self) -> dict[str, int]:
        """Return the size and the free space of the data directory's disk, in octets."""
        said = shutil.disk_usage(self.settings.data)
        return {"total": said.total, "free": said.free}

    def _about_tls(self) -> dict[str, object]:
        """Return the paths of the TLS files for connections between queue managers.

        `lanner doctor PEER` uses the same files as this process.
        """
        table = self.settings.transfer
        files = {"certificate": table.tls_certificate, "key": table.tls_key, "authorities": table.tls_authorities}
        return {
            "port": table.tls_port,
            **{name: None if path is None else str(path.absolute()) for name, path in files.items()},
            "peers": {
                peer.name: None if peer.certificate is None else str(peer.certificate.absolute())
                for peer in self.settings.known_peers.values()
                if peer.has_tls
            },
        }

    def _disk(self) -> Usage:
        """Return how much of the queue manager's quota its messages use.

        It includes the other computer whose messages use most.
        """
        engine = self.runtime.engine
        qm = engine.queue_manager
        limit = qm.queue_manager_quota * KILOBYTE
        with self.runtime.lock:
            peer, most = max(engine.shares.by_peer.items(), key=lambda item: item[1], default=(None, 0))
            used = qm.total_bytes
        return Usage("bytes of messages", used, limit, int(limit * self.settings.quota.peer_share), peer, most)

    def _express(self) -> Usage:
        """Return how much memory express messages use."""
        memory = self.runtime.engine.express_memory
        limit = INFINITE * KILOBYTE if memory.limit is None else memory.limit
        return Usage("bytes of express messages in memory", memory.used, limit, refused=memory.refused)

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of the listeners by purpose, in the form that people write."""
        found: dict[str, str] = {}
        for listener in self.listeners:
            if isinstance(listener, RpcListener | TransferListener):
                found |= listener.addresses
            elif listener.address:
                found[listener.name] = listener.address
        return found

    async def run(self, on_ready: Callable[[Daemon], None]) -> None:
        """Listen until a signal stops the service; then sync everything to disk and close."""
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: partial(self._stop_for, signal.SIGTERM),
            signal.SIGINT: partial(self._stop_for, signal.SIGINT),
            signal.SIGHUP: self.reload,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        started: list[Listener] = []
        resolver = Resolver(self.runtime, self.settings.coordinator)
        try:
            for listener in self.listeners:
                try:
                    await listener.start()
                except OSError as error:
                    raise SettingsError(
                        f"{listener.name} cannot listen on {listener.address}: {error.strerror}; choose another address"
                    ) from error
                started.append(listener)
            close_early()
            resolver.start()
            if self.telemetry is not None:
                self.telemetry.start(self.name)
            on_ready(self)
            notify("READY=1")
            await self._stop.wait()
        finally:
            notify("STOPPING=1")
            await asyncio.to_thread(resolver.stop)
            for listener in reversed(started):
                await listener.stop()
            await asyncio.to_thread(self.runtime.close)
            if self.telemetry is not None:
                await asyncio.to_thread(self.telemetry.stop)
            if self._membership is not None:
                self._membership.directory.close()
            # uvloop does not restore the handlers when it is closed, so the process would ignore
            # Ctrl-C afterwards.
            for number in handlers:
                loop.remove_signal_handler(number)
            _LOG.info("queue manager %s has stopped", self.name)

    def _stop_for(self, number: signal.Signals) -> None:
        _LOG.info("%s: stopping", number.name)
        self._stop.set()

    def reload(self) -> None:
        """Handle SIGHUP: apply what can be changed now, and report what needs a restart."""
        try:
            new = self._load()
            for listener in self.listeners:
                if isinstance(listener, TransferListener):
                    # Certificates are read again even if only the files have changed.
                    listener.reload(new.transfer_settings)
        except (SettingsError, TlsSettingsError) as error:
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
        certificates = {name: getattr(new.transfer, name) for name in ("tls_certificate", "tls_key", "tls_authorities")}
        transfer = self.settings.transfer.model_copy(update=certificates)
        kept = {"log": new.log, "quota": new.quota, "peers": new.peers, "transfer": transfer}
        self.settings = self.settings.model_copy(update=kept)

    def _set_quotas(self, quotas: QuotaSettings) -> None:
        engine = self.runtime.engine
        qm = engine.queue_manager
        with self.runtime.change() as change:
            for attribute, value in (
                ("queue_manager_quota", quota_in_kilobytes(quotas.queue_manager_kb)),
                ("journal_quota", quota_in_kilobytes(quotas.journal_kb)),
            ):
                if value is not None:
                    setattr(qm, attribute, value)
            engine.express_memory.set_limit(quotas.express_memory)
            engine.save_queue_manager()
        change.wait()


def _log_lines() -> Usage:
    """Return how many log lines peers have caused in this minute."""
    return Usage("log lines a minute", LINES.written, LINES.in_total, refused=LINES.left_out)


def _threads() -> Usage:
    """Return the number of threads of this process.

    Everything that starts a thread for a connection or a call has a limit of its own. This limit is
    only a threshold for a warning.
    """
    return Usage("threads", sum(1 for _ in Path("/proc/self/task").iterdir()), _MANY_THREADS)


def set_log_level(settings: Settings) -> None:
    """Set the level of all loggers of this package."""
    logging.getLogger("lanner").setLevel(settings.log.level.upper())


def check_bind(bind: str) -> None:
    """Raise SettingsError unless `bind` is an address of this machine."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((bind, 0))
        except OSError as error:
            raise SettingsError(
                f"bind {bind} is no address of this machine ({error.strerror}): `ip address` lists them"
            ) from error


def serve(load: Callable[[], Settings], on_ready: Callable[[Daemon], None], *, user: str | None = None) -> None:
    """Run a queue manager until SIGTERM or SIGINT; as `user`, if root calls it."""

    def ready(daemon: Daemon) -> None:
        sys.setswitchinterval(_SWITCH_INTERVAL)
        # The objects that exist now stay, so no collection needs to examine them again.
        gc.collect()
        gc.freeze()
        on_ready(daemon)

    async def run() -> bool:
        daemon = Daemon(load)
        await daemon.run(ready)
        return any(getattr(listener, "has_stuck_stream", False) for listener in daemon.listeners)

    settings = load()
    set_log_level(settings)
    prepare(settings, user)
    limit_arenas()
    if uvloop.run(run()):
        # A thread of gRPC cannot be ended, and one that returns to Python while the interpreter is
        # finalized crashes the process. Everything is closed, so the process can end here.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def limit_arenas() -> None:
    """Make all threads share the C library's heap.

    Otherwise each of the many threads that serve Arrow streams would keep its freed memory to
    itself.
    """
    with suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
