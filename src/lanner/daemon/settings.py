"""The settings of `lanner serve`: a file in TOML, the command line, and the defaults."""

from __future__ import annotations

import difflib
import ipaddress
import logging
import math
import os
import re
import ssl
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from lanner.activex.environment import ActivexSettings
from lanner.com.server.listener import ComSettings
from lanner.engine.settings import MIN_EXPRESS_MEMORY, EngineSettings, EventSettings
from lanner.model.branches import OWN_RESOURCE, check_resource_name
from lanner.model.enums import INFINITE
from lanner.model.errors import LannerError
from lanner.rpc.pdu import AuthLevel
from lanner.security.audit import AUDIT_FILE
from lanner.security.logons import LockoutPolicy
from lanner.security.users import PasswordPolicy
from lanner.services.listener import RpcSettings
from lanner.spark.flight.settings import FlightSettings
from lanner.transfer.peers import Peer, PeerPolicy
from lanner.transfer.settings import TransferSettings

_LOG = logging.getLogger(__name__)

# Settings that SIGHUP changes in a running queue manager; all others need a restart.
RELOADABLE = (
    "log.level",
    "quota.queue_manager_kb",
    "quota.journal_kb",
    "quota.express_mb",
    "transfer.tls_certificate",
    "transfer.tls_key",
    "transfer.tls_authorities",
    "peers",
)

Kilobytes = int | Literal["none"] | None
MEBIBYTE = 1 << 20
_MOST_MB = 1 << 30
_COMPUTER_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")
# A key of the peers table that is a DNS name instead of an address. Digits and dots alone are a
# mistyped address.
_HOST_NAME = re.compile(r"(?![0-9.]+$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")


# The defaults of profile "document" where they differ. A value written by the operator takes
# precedence.
DOCUMENT_DEFAULTS: dict[str, object] = {
    "quota.queue_share": 1.0,
    "quota.peer_share": 1.0,
    "quota.strangers_share": 1.0,
    "security.trust_unsigned_sid": True,
    "security.legacy_crypto": True,
    "security.legacy_signatures": True,
    "rpc.authentication_level": "none",
    "transfer.peers": "open",
    "transfer.max_clock_skew": math.inf,
}


class SettingsError(LannerError):
    """The configuration cannot be used; the message names the file, the key and the problem."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LogSettings(_Table):
    level: Literal["debug", "info", "warning", "error"] = "info"
    # A path, in the data directory if it is relative, or "none".
    audit: str = AUDIT_FILE

    @field_validator("audit")
    @classmethod
    def _is_path(cls, value: str) -> str:
        if not value.strip() or "\0" in value:
            raise ValueError('a file, or "none"')
        return value


_QUOTA = EngineSettings("")
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


class QuotaSettings(_Table):
    """Quotas in kilobytes.

    A quota that is not set keeps its value. A new queue manager has a quota of 8 GiB, and no
    journal quota.
    """

    queue_manager_kb: Kilobytes = None
    journal_kb: Kilobytes = None
    # Mebibytes of memory for express messages.
    express_mb: int | Literal["none"] = 1024
    # Shares of queue_manager_kb for messages of other computers: in a queue without a quota, of one
    # address, and of all addresses that are not in [peers].
    queue_share: Share = _QUOTA.queue_share
    peer_share: Share = _QUOTA.peer_share
    strangers_share: Share = _QUOTA.strangers_share

    @field_validator("queue_manager_kb", "journal_kb", mode="before")
    @classmethod
    def _in_range(cls, value: object) -> object:
        if value in (None, "none"):
            return value
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < INFINITE:
            raise ValueError(f'kilobytes, 0 to {INFINITE - 1}, or "none" for no limit')
        return value

    @field_validator("express_mb", mode="before")
    @classmethod
    def _has_room(cls, value: object) -> object:
        least = MIN_EXPRESS_MEMORY // MEBIBYTE
        if value != "none" and (
            not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST_MB
        ):
            raise ValueError(f'mebibytes, {least} to {_MOST_MB}, or "none" for no limit')
        return value

    @property
    def express_memory(self) -> int | None:
        """The value for the engine."""
        return None if self.express_mb == "none" else self.express_mb * MEBIBYTE


class SecuritySettings(_Table):
    # Selects the defaults of the settings in DOCUMENT_DEFAULTS, and engine behaviour that has no
    # setting.
    profile: Literal["safe", "document"] = "safe"
    # MS-MQDMPR 3.1.1.1 HardenedSecurity: no RPC, and no transfer except over HTTP.
    hardened: bool = False
    # MS-MQQB 3.1.1.2 SendInsecureNacks: tell strangers why a message was refused.
    send_insecure_nacks: bool = False
    # MS-MQQB 3.1.5.8.3: give an unsigned message the rights of the SID that it names.
    trust_unsigned_sid: bool = False
    # Accept RSA keys below 1,024 bits, as the base provider of MS-MQDMPR 3.1.3 has them.
    legacy_crypto: bool = False
    # MS-MQQB 3.1.5.8.3: accept signatures over the hash of MSMQ 1.0, which does not include the
    # queue that a message is for.
    legacy_signatures: bool = False
    # Wrong passwords, from any address, after which an account is locked for everyone; 0: never.
    lockout_failures: Annotated[int, Field(ge=0)] = 0
    lockout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 900.0
    # For new passwords.
    min_password_length: Annotated[int, Field(ge=1)] = PasswordPolicy().min_length
    # False: no NT hashes are kept, and NTLM logons are impossible.
    ntlm: bool = PasswordPolicy().ntlm

    @property
    def lockout(self) -> LockoutPolicy:
        return LockoutPolicy(self.lockout_failures, self.lockout_seconds)

    @property
    def passwords(self) -> PasswordPolicy:
        return PasswordPolicy(self.min_password_length, self.ntlm)


_TRANSFER = TransferSettings()
Interval = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Number = Annotated[int, Field(ge=1)]


class TransferTable(_Table):
    """The fields of TransferSettings that an operator may want to change, under the same names.

    Times are in seconds.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    # False: no messages are sent to other computers or accepted from them.
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
    max_connections: Number = _TRANSFER.max_connections
    max_sessions_per_peer: Number = _TRANSFER.max_sessions_per_peer
    max_half_open: Number = _TRANSFER.max_half_open
    max_unfinished_bytes: Number = _TRANSFER.max_unfinished_bytes
    max_unfinished_bytes_per_peer: Number = _TRANSFER.max_unfinished_bytes_per_peer
    max_waiting_bytes_in_total: Number = _TRANSFER.max_waiting_bytes_in_total
    max_pings: Number = _TRANSFER.max_pings
    max_pings_per_peer: Number = _TRANSFER.max_pings_per_peer
    max_queues_for_others: Number = _TRANSFER.max_queues_for_others
    max_queues_per_peer: Number = _TRANSFER.max_queues_per_peer
    max_queues_per_user: Number = _TRANSFER.max_queues_per_user
    # Which identifiers are believed from which addresses (PeerPolicy).
    peers: Literal["open", "pinned", "known"] = "pinned"
    # inf: any difference.
    max_clock_skew: Annotated[float, Field(ge=0)] = _TRANSFER.max_clock_skew
    answers_pings: bool = _TRANSFER.answers_pings
    ping_port: int = _TRANSFER.ping_port
    pings_before_connecting: bool = _TRANSFER.pings_before_connecting
    tls_certificate: Annotated[Path | None, Field(strict=False)] = _TRANSFER.tls_certificate
    tls_key: Annotated[Path | None, Field(strict=False)] = _TRANSFER.tls_key
    tls_authorities: Annotated[Path | None, Field(strict=False)] = _TRANSFER.tls_authorities
    tls_port: int = _TRANSFER.tls_port

    @field_validator("*")
    @classmethod
    def _can_be_used(cls, value: object, info: ValidationInfo) -> object:
        if info.field_name not in (None, "enabled", "peers"):
            given: dict[str, Any] = {str(info.field_name): value}
            try:
                TransferSettings(**given)
            except ValueError as error:
                raise ValueError(str(error).partition(": ")[2]) from None
        return value


_RPC = RpcSettings()
_FLIGHT = FlightSettings()
Port = Annotated[int, Field(ge=1, le=0xFFFF)]
AuthenticationLevel = Literal["none", "connect", "packet", "integrity", "privacy"]
AUTHENTICATION_LEVELS: dict[AuthenticationLevel, AuthLevel] = {
    "none": AuthLevel.NONE,
    "connect": AuthLevel.CONNECT,
    "packet": AuthLevel.PKT,
    "integrity": AuthLevel.PKT_INTEGRITY,
    "privacy": AuthLevel.PKT_PRIVACY,
}
# The name of rpc.authentication_level in older settings files.
_OLD_NAME = "requires_authentication"


class RpcTable(_Table):
    """The fields of RpcSettings, under the same names."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # False: only the Unix socket of the data directory.
    enabled: bool = _RPC.enabled
    port: Port = _RPC.port
    read_port: Port = _RPC.read_port
    # 0: none.
    endpoint_mapper_port: Annotated[int, Field(ge=0, le=0xFFFF)] = _RPC.endpoint_mapper_port
    # The lowest level that callers may use. Some interfaces demand more, unless it is "none".
    authentication_level: AuthenticationLevel = "integrity"
    # Windows sends one since version 7; older clients and some others do not.
    require_mic: bool = _RPC.require_mic
    mqrr: bool = _RPC.mqrr
    cancel_timeout: Number = _RPC.cancel_timeout
    keytab: Annotated[Path | None, Field(strict=False)] = _RPC.keytab
    max_connections: Number = _RPC.max_connections
    max_connections_per_peer: Number = _RPC.max_connections_per_peer

    @model_validator(mode="before")
    @classmethod
    def _read_old_name(cls, value: object) -> object:
        if not isinstance(value, dict) or not isinstance(value.get(_OLD_NAME), bool):
            return value
        given = dict(value)
        is_required = given.pop(_OLD_NAME)
        level = given.setdefault("authentication_level", "integrity" if is_required else "none")
        if is_required and level == "none":
            raise ValueError(f'{_OLD_NAME} = true and authentication_level = "none" contradict each other: remove one')
        _LOG.warning('rpc.%s has another name now: write rpc.authentication_level = "%s"', _OLD_NAME, level)
        return given

    @property
    def settings(self) -> RpcSettings:
        """The settings for the listener."""
        values = self.model_dump()
        return RpcSettings(**values | {"authentication_level": AUTHENTICATION_LEVELS[self.authentication_level]})


class ComTable(_Table):
    """How objects are served to COM clients."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # Needs RPC and its endpoint mapper, whose port is used for activation.
    enabled: bool = True
    # 0: any free port, which clients are told.
    port: Annotated[int, Field(ge=0, le=0xFFFF)] = ComSettings().port
    # The lowest level that callers may use (MS-DCOM 3.1.1.5.4).
    authentication_level: AuthenticationLevel = "integrity"
    # The account of `lanner user` that calls the event sinks of clients; none: anonymous calls.
    callback_user: str | None = None


class ActivexTable(_Table):
    """The fields of ActivexSettings, under the same names."""

    timeout: Literal["null", "error"] = ActivexSettings().timeout


class FlightTable(_Table):
    """The fields of FlightSettings, under the same names."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # None: enabled if the packages of the data pipeline are installed.
    enabled: bool | None = None
    # None: the address of the queue manager if it is a loopback address, otherwise 127.0.0.1.
    bind: str | None = None
    port: Port = _FLIGHT.port
    tls_certificate: Annotated[Path | None, Field(strict=False)] = _FLIGHT.tls_certificate
    tls_key: Annotated[Path | None, Field(strict=False)] = _FLIGHT.tls_key
    max_streams: Number = _FLIGHT.max_streams
    # Whether callers without a logon may read queues that allow it. They never publish.
    allow_anonymous: bool = _FLIGHT.allow_anonymous
    max_publication_messages: Number = _FLIGHT.max_publication_messages
    max_publication_mb: Number = _FLIGHT.max_publication_mb
    max_writers: Number = _FLIGHT.max_writers
    max_stages: Number = _FLIGHT.max_stages
    max_staged_mb: Number = _FLIGHT.max_staged_mb
    max_message_mb: Number = _FLIGHT.max_message_mb
    max_connections: Number = _FLIGHT.max_connections
    max_connections_per_peer: Number = _FLIGHT.max_connections_per_peer
    max_calls: Number = _FLIGHT.max_calls
    # None: one for every two cores, at most four.
    processes: int | None = None
    reader_port: Port = _FLIGHT.reader_port


_EVENTS = EventSettings()


class EventsTable(_Table):
    """The fields of EventSettings, under the same names."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # Whether to record the events of messages, for the data pipeline.
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
        """The value for the engine."""
        return EventSettings(self.keep_days, self.max_mb) if self.enabled else False


class MetricsSettings(_Table):
    # ADDRESS:PORT; none: no endpoint.
    bind: str | None = None

    @field_validator("bind")
    @classmethod
    def _address_and_port(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value


class TelemetryTable(_Table):
    """OpenTelemetry spans for the events of messages."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # The URL of a collector that speaks OTLP over HTTP, such as http://127.0.0.1:4318; none: no
    # spans.
    endpoint: str | None = None
    # The share of traces that is sampled, for messages whose sender has not decided.
    sample: Share = 1.0

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", value):
            raise ValueError("the address of a collector, such as http://127.0.0.1:4318")
        return value


class HttpTable(_Table):
    """The HTTP API and the console, in a process of their own."""

    model_config = ConfigDict(extra="forbid", strict=True)

    enabled: bool = True
    # None: the address of the queue manager if it is a loopback address, otherwise 127.0.0.1.
    bind: str | None = None
    port: Port = 15801
    tls_certificate: Annotated[Path | None, Field(strict=False)] = None
    tls_key: Annotated[Path | None, Field(strict=False)] = None
    # Names by which browsers reach this computer, in addition to its own names and addresses.
    hosts: list[str] = Field(default_factory=list)
    # A directory of pages (*.html) that the console shows to administrators: reports of the data
    # pipeline.
    reports: Annotated[Path | None, Field(strict=False)] = None
    # Seconds without connections and sessions after which the process ends, and idle seconds after
    # which a browser's session ends.
    idle_timeout: Interval = 300.0
    session_timeout: Interval = 1800.0
    max_connections: Number = 512
    max_connections_per_peer: Number = 128

    @field_validator("bind")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                ipaddress.ip_address(value)
            except ValueError:
                raise ValueError("an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all") from None
        return value

    def address(self, own: str) -> str:
        """Return the address to listen on.

        Raises SettingsError if others could read passwords, or the certificate cannot be used.
        """
        bind = self.bind or (own if ipaddress.ip_address(own).is_loopback else "127.0.0.1")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise SettingsError("http: tls_certificate and tls_key go together")
        if self.tls_certificate is None and not ipaddress.ip_address(bind).is_loopback:
            raise SettingsError(
                f"http.bind = {bind!r} can be reached from elsewhere: set http.tls_certificate and http.tls_key"
            )
        if self.tls_certificate is not None:
            self._try_certificate(self.tls_certificate)
        return bind

    def _try_certificate(self, certificate: Path) -> None:
        """Load the certificate and the key, as the HTTP process does at the first connection."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, self.tls_key)
        except OSError as error:
            raise SettingsError(
                f"http.tls_certificate {certificate} and http.tls_key {self.tls_key} cannot be used: {error}"
            ) from error


class ResourceTable(_Table):
    """A database whose in-doubt branches the daemon resolves.

    It has a PEP 249 module and the arguments of its `connect`.
    """

    module: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
    # May contain a password, so it is never shown.
    connection: SecretStr


class CoordinatorTable(_Table):
    # By the name that programs use in `lanner.distributed`.
    resources: dict[str, ResourceTable] = Field(default_factory=dict)
    # Seconds between two checks of the databases.
    interval: Interval = 60.0

    @field_validator("resources")
    @classmethod
    def _can_be_named(cls, value: dict[str, ResourceTable]) -> dict[str, ResourceTable]:
        for name in value:
            if name == OWN_RESOURCE:
                raise ValueError("the queue manager itself needs no table")
            try:
                check_resource_name(name)
            except LannerError as error:
                raise ValueError(str(error.args[0])) from None
        return value


_DOMAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})+")


class DirectoryTable(_Table):
    """The Active Directory that this computer is a member of.

    Without a domain the directory is in the store.
    """

    domain: str | None = None
    # Addresses of DNS servers that know the domain; none: those of this machine.
    name_servers: list[str] = []
    # The computer's account: DOMAIN\\NAME$ with a password, NAME$@REALM with a keytab.
    account: str = ""
    password_file: Path | None = None
    keytab: Path | None = None
    # Domain controllers are reached by TLS on port 636 and told the password.
    ldaps: bool = False
    # A PEM file of those who issue their certificates; none: those that this machine trusts.
    tls_authorities: Path | None = None
    # The site of a new queue manager.
    site: str = "Default-First-Site-Name"
    # When change notifications of other computers are processed (MS-MQCN notes 3 and 14).
    notifications: Literal["delayed", "immediate"] = "delayed"
    # Version 1 is sent only by a queue manager that is a directory server: Windows 2000 reads no
    # other.
    notification_version: Literal[1, 2] = 2

    @field_validator("domain")
    @classmethod
    def _is_domain(cls, value: str | None) -> str | None:
        if value is not None and not _DOMAIN_NAME.fullmatch(value):
            raise ValueError("the DNS name of a domain, such as example.com")
        return value

    @field_validator("name_servers")
    @classmethod
    def _are_addresses(cls, value: list[str]) -> list[str]:
        for address in value:
            try:
                ipaddress.ip_address(address)
            except ValueError:
                raise ValueError(f"{address!r} is no address, such as 192.0.2.7") from None
        return value

    @model_validator(mode="after")
    def _has_account(self) -> Self:
        if self.domain is not None and not self.account:
            raise ValueError("directory.account is needed: the computer's account in the domain, such as MQ\\HOST$")
        if self.ldaps and self.keytab is not None:
            raise ValueError("directory.ldaps takes directory.password_file, not directory.keytab")
        if self.tls_authorities is not None and not self.ldaps:
            raise ValueError("directory.tls_authorities is for LDAPS only: set directory.ldaps = true")
        return self


class PeerTable(_Table):
    """The settings of another computer. An address alone may replace the table."""

    addresses: list[str]
    guid: UUID | None = None
    certificate: Path | None = None
    # It has a certificate of transfer.tls_authorities.
    tls: bool = False

    @model_validator(mode="before")
    @classmethod
    def _read_address(cls, value: object) -> object:
        return value if isinstance(value, dict | PeerTable) else {"addresses": [value]}

    @field_validator("addresses")
    @classmethod
    def _are_addresses(cls, value: list[str]) -> list[str]:
        if not value:
            raise ValueError("at least one address")
        for address in value:
            try:
                ipaddress.ip_address(address)
            except ValueError:
                if not _HOST_NAME.fullmatch(address):
                    raise ValueError(f"{address!r} is no address, such as 192.0.2.7, and no host name") from None
        return value


class Settings(BaseSettings):
    """All settings of `lanner serve`.

    The command line takes precedence over the file, and the file over the defaults.
    """

    model_config = SettingsConfigDict(extra="forbid")

    data: Path = Field(default_factory=lambda: Path(os.environ.get("LANNER_DATA", "data")))
    # None: the name in the data directory; the host's for a new one.
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
    coordinator: CoordinatorTable = CoordinatorTable()
    directory: DirectoryTable = DirectoryTable()
    # By computer name.
    peers: dict[str, PeerTable] = Field(default_factory=dict)
    metrics: MetricsSettings = MetricsSettings()
    http: HttpTable = HttpTable()
    telemetry: TelemetryTable = TelemetryTable()

    @model_validator(mode="after")
    def _follow_profile(self) -> Self:
        """Apply the defaults of the profile to settings that the operator did not write."""
        if self.security.profile == "document":
            for name, default in DOCUMENT_DEFAULTS.items():
                table_name, _, key = name.partition(".")
                table: BaseModel = getattr(self, table_name)
                if key not in table.model_fields_set:
                    setattr(self, table_name, table.model_copy(update={key: default}))
        return self

    @field_validator("peers")
    @classmethod
    def _differ(cls, value: dict[str, PeerTable]) -> dict[str, PeerTable]:
        if len({name.lower() for name in value}) < len(value):
            raise ValueError("a name is there twice; capitals make no difference")
        return value

    @property
    def known_peers(self) -> dict[str, Peer]:
        """The peers in the form of the transfer."""
        return {
            name: Peer(name, tuple(peer.addresses), peer.guid, peer.certificate, peer.tls)
            for name, peer in self.peers.items()
        }

    @property
    def transfer_settings(self) -> TransferSettings:
        """The settings for the transfer."""
        given = self.transfer.model_dump(exclude={"enabled", "peers"})
        return TransferSettings(**given, peer_policy=PeerPolicy(self.transfer.peers), peers=self.known_peers)

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


# Settings that are tables under names of the operator's own.
_NAMED_TABLES: dict[str, type[BaseModel]] = {"peers": PeerTable, "coordinator.resources": ResourceTable}


def split_address(text: str) -> tuple[str, int]:
    """Split `127.0.0.1:9182` or `[::1]:9182`."""
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
    """Yield the dotted name of every setting."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from setting_names(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def load_settings(config: Path | None, overrides: dict[str, object]) -> Settings:
    """Return the settings of a file, overridden by the command line.

    Raises SettingsError, which names what cannot be used.
    """
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
            # only the file and the command line
            del env_settings, dotenv_settings, file_secret_settings
            if config is None:
                return (init_settings,)
            return (init_settings, TomlConfigSettingsSource(settings_cls, config))

    # The values are unchecked input; validation is done here.
    given: dict[str, Any] = overrides
    try:
        return FromFile(**given)
    except ValidationError as error:
        raise SettingsError(f"{where}: {'; '.join(_complaints(error))}") from error


def _complaints(error: ValidationError) -> Iterator[str]:
    known = list(setting_names())
    tables = {name.rpartition(".")[0] for name in known} - {""}
    for item in error.errors():
        # The location in a union ends with the name of its member, which is no part of the key.
        parts = [str(part) for part in item["loc"]]
        key = next((".".join(parts[:end]) for end in (2, 1) if ".".join(parts[:end]) in known), ".".join(parts))
        if key in _NAMED_TABLES:
            # The names in it are the operator's own.
            key = ".".join(parts)
        if item["type"] == "extra_forbidden":
            table = key.rpartition(".")[0]
            named = next((one for name, one in _NAMED_TABLES.items() if key.startswith(f"{name}.")), None)
            if named is not None:
                yield f"unknown setting {key}; {table} can have {', '.join(named.model_fields)}"
                continue
            near = [name for name in known if name.startswith(f"{table}.")] if table else [*known, *tables]
            yield f"unknown setting {key}; the nearest known one is {difflib.get_close_matches(key, near, 1, 0)[0]}"
        elif key in tables and item["type"] != "value_error":
            yield f"{key} = {item['input']!r}: a table; write [{key}] and its settings below it"
        else:
            message = item["msg"].removeprefix("Value error, ")
            yield f"{key} = {item['input']!r}: {message[:1].lower()}{message[1:]}"


def dotted(settings: Settings) -> dict[str, object]:
    """Return every setting with its value, by dotted name."""
    values: dict[str, object] = {}
    for name in setting_names():
        value: object = settings
        for part in name.split("."):
            value = getattr(value, part)
        values[name] = value
    return values


def quota_in_kilobytes(value: Kilobytes) -> int | None:
    return INFINITE if value == "none" else value
