"""The settings of `lanner serve`: one file, the command line wins, mistakes are named."""

from __future__ import annotations

import math
import re
from pathlib import Path
from uuid import UUID

import pytest

from lanner.daemon.service import check_bind
from lanner.daemon.settings import (
    RELOADABLE,
    Settings,
    SettingsError,
    TransferTable,
    dotted,
    load_settings,
    setting_names,
    split_address,
)
from lanner.host.addresses import addresses_of
from lanner.rpc.pdu import AuthLevel
from lanner.transfer.peers import Peer, PeerPolicy
from lanner.transfer.settings import TransferSettings

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "operator-guide.md"


def load(tmp_path: Path, text: str, **overrides: object) -> Settings:
    config = tmp_path / "lanner.toml"
    config.write_text(text)
    return load_settings(config, overrides)


def test_without_a_file_everything_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANNER_DATA", raising=False)
    assert dotted(load_settings(None, {})) == {
        "data": Path("data"),
        "name": None,
        "bind": "127.0.0.1",
        "dns_domain": None,
        "log.level": "info",
        "log.audit": "audit.log",
        "directory.notifications": "delayed",
        "directory.notification_version": 2,
        "flight.processes": None,
        "flight.reader_port": 0,
        "rpc.mqrr": True,
        "rpc.cancel_timeout": 5,
        "telemetry.endpoint": None,
        "telemetry.sample": 1.0,
        "quota.queue_manager_kb": None,
        "quota.express_mb": 1024,
        "quota.journal_kb": None,
        "quota.queue_share": 0.5,
        "quota.peer_share": 0.5,
        "quota.strangers_share": 0.75,
        "security.profile": "safe",
        "security.hardened": False,
        "security.send_insecure_nacks": False,
        "security.trust_unsigned_sid": False,
        "security.legacy_crypto": False,
        "security.legacy_signatures": False,
        "security.lockout_failures": 0,
        "security.lockout_seconds": 900.0,
        "security.min_password_length": 8,
        "security.ntlm": True,
        "http.enabled": True,
        "http.bind": None,
        "http.port": 15801,
        "http.tls_certificate": None,
        "http.tls_key": None,
        "http.hosts": [],
        "http.reports": None,
        "http.idle_timeout": 300.0,
        "http.session_timeout": 1800.0,
        "http.max_connections": 512,
        "http.max_connections_per_peer": 128,
        "metrics.bind": None,
        "peers": {},
        **{f"transfer.{name}": value for name, value in TransferTable().model_dump().items()},
        "rpc.enabled": True,
        "rpc.port": 2103,
        "rpc.read_port": 2105,
        "rpc.endpoint_mapper_port": 135,
        "rpc.authentication_level": "integrity",
        "rpc.require_mic": False,
        "rpc.keytab": None,
        "rpc.max_connections": 4096,
        "rpc.max_connections_per_peer": 512,
        "com.enabled": True,
        "com.port": 0,
        "com.authentication_level": "integrity",
        "com.callback_user": None,
        "activex.timeout": "null",
        "flight.enabled": None,
        "flight.bind": None,
        "flight.port": 1810,
        "flight.tls_certificate": None,
        "flight.tls_key": None,
        "flight.max_streams": 64,
        "flight.max_connections": 512,
        "flight.max_connections_per_peer": 64,
        "flight.max_calls": 256,
        "flight.allow_anonymous": False,
        "flight.max_publication_messages": 10_000_000,
        "flight.max_publication_mb": 65_536,
        "flight.max_writers": 100_000,
        "flight.max_stages": 10_000,
        "flight.max_staged_mb": 65_536,
        "flight.max_message_mb": 32,
        "events.enabled": False,
        "events.keep_days": 7,
        "events.max_mb": 1024,
        "coordinator.resources": {},
        "coordinator.interval": 60.0,
        "directory.domain": None,
        "directory.name_servers": [],
        "directory.account": "",
        "directory.password_file": None,
        "directory.keytab": None,
        "directory.ldaps": False,
        "directory.tls_authorities": None,
        "directory.site": "Default-First-Site-Name",
    }


def test_transfer_has_the_defaults_of_the_document() -> None:
    assert load_settings(None, {}).transfer_settings == TransferSettings()
    assert TransferTable().enabled


def test_the_documents_profile_believes_all_peers_and_all_times(tmp_path: Path) -> None:
    safe = load(tmp_path, "").transfer_settings
    assert (safe.peer_policy, safe.max_clock_skew) == (PeerPolicy.PINNED, 86_400)
    document = load(tmp_path, '[security]\nprofile = "document"').transfer_settings
    assert (document.peer_policy, document.max_clock_skew) == (PeerPolicy.OPEN, math.inf)
    text = '[security]\nprofile = "document"\n[transfer]\npeers = "known"\nmax_clock_skew = 60.0'
    written = load(tmp_path, text).transfer_settings
    assert (written.peer_policy, written.max_clock_skew) == (PeerPolicy.KNOWN, 60)
    with pytest.raises(SettingsError, match=r"transfer\.peers = 'all'"):
        load(tmp_path, '[transfer]\npeers = "all"')


def test_transfer_takes_what_it_is_given(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """[transfer]
        port = 1802
        window_size = 65535
        ack_wait_timeout = 120
        cleanup_interval = 60
        max_in_sessions = 0
        answers_pings = true
        [peers]
        BETA = "192.0.2.7"
        gamma = "gamma.example"
        [peers.delta]
        addresses = ["2001:db8::7", "delta.example"]
        guid = "01234567-89ab-cdef-0123-456789abcdef"
        certificate = "delta.pem"
        """,
    ).transfer_settings
    assert (settings.port, settings.window_size, settings.ack_wait_timeout) == (1802, 65535, 120)
    assert (settings.cleanup_interval, settings.max_in_sessions, settings.answers_pings) == (60, 0, True)
    guid = UUID("01234567-89ab-cdef-0123-456789abcdef")
    assert settings.peers == {
        "BETA": Peer("BETA", ("192.0.2.7",)),
        "gamma": Peer("gamma", ("gamma.example",)),
        "delta": Peer("delta", ("2001:db8::7", "delta.example"), guid, Path("delta.pem")),
    }


def test_the_command_line_wins_over_the_file_and_the_file_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANNER_DATA", "from-environment")
    monkeypatch.setenv("NAME", "from-nowhere")
    settings = load(tmp_path, 'name = "FILE"\nbind = "127.0.0.2"', bind="127.0.0.3")
    assert (settings.name, settings.bind, settings.data) == ("FILE", "127.0.0.3", Path("from-environment"))
    assert load(tmp_path, 'data = "from-file"').data == Path("from-file")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("bnid = 'x'", "unknown setting bnid; the nearest known one is bind"),
        ("[log]\nlevle = 'x'", "unknown setting log.levle; the nearest known one is log.level"),
        ("[quotas]\n", "unknown setting quotas; the nearest known one is quota"),
        ("bind = 'localhost'", "bind = 'localhost': an address of this machine"),
        ("name = 'a b'", "name = 'a b': 1 to 63 letters, digits, - and _"),
        ("log = 'info'", "log = 'info': a table; write [log]"),
        ("[rpc]\nport = 0", "rpc.port = 0: input should be greater than or equal to 1"),
        ("[rpc]\nendpoint_mapper_port = 65536", "rpc.endpoint_mapper_port = 65536: input should be less than"),
        ("[rpc]\nprot = 1", "unknown setting rpc.prot; the nearest known one is rpc.port"),
        ("[quota]\nqueue_manager_kb = true", "quota.queue_manager_kb = True: kilobytes"),
        ("[log]\nlevel = 'loud'", "log.level = 'loud'"),
        ("[quota]\nexpress_mb = 31", "quota.express_mb = 31: mebibytes, 32 to"),
        ("[quota]\nexpress_mb = true", "quota.express_mb = True: mebibytes"),
        ("[quota]\nqueue_manager_kb = -1", "quota.queue_manager_kb = -1: kilobytes"),
        ("[quota]\nqueue_manager_kb = 4294967295", "quota.queue_manager_kb = 4294967295: kilobytes"),
        (
            "[quota]\njournal_kb = 'all'",
            "quota.journal_kb = 'all': kilobytes, 0 to 4294967294, or \"none\" for no limit",
        ),
        ("[metrics]\nbind = '127.0.0.1'", "metrics.bind = '127.0.0.1': an address and a port, such as 127.0.0.1:9182"),
        ("[metrics]\nbind = '127.0.0.1:65536'", "metrics.bind = '127.0.0.1:65536'"),
        ("bind = ", "is not TOML"),
        ("transfer = 1", "transfer = 1: a table; write [transfer]"),
        ("[transfer]\nwindow = 1", "unknown setting transfer.window; the nearest known one is transfer.window_size"),
        ("[transfer]\nwindow_size = 0", "transfer.window_size = 0: 1 to 65535"),
        ("[transfer]\nwindow_size = 65536", "transfer.window_size = 65536: 1 to 65535"),
        ("[transfer]\nack_wait_timeout = 19.9", "transfer.ack_wait_timeout = 19.9: 20.0 to 120.0"),
        ("[transfer]\nport = 65536", "transfer.port = 65536: 0 to 65535"),
        ("[transfer]\nport = true", "transfer.port = True: input should be a valid integer"),
        ("[transfer]\nport = '1801'", "transfer.port = '1801': input should be a valid integer"),
        ("[transfer]\nenabled = 1", "transfer.enabled = 1: input should be a valid boolean"),
        ("[transfer]\ntry_connect_interval = 0", "transfer.try_connect_interval = 0: input should be greater than 0"),
        (
            "[transfer]\ntry_connect_interval = inf",
            "transfer.try_connect_interval = inf: input should be a finite number",
        ),
        ("[transfer]\nround_trip_delay = -1", "transfer.round_trip_delay = -1: input should be greater than or equal"),
        ("[transfer]\nmax_half_open = 0", "transfer.max_half_open = 0: input should be greater than or equal to 1"),
        ("[peers]\nbeta = '10.0.0.300'", "peers.beta.addresses = ['10.0.0.300']: '10.0.0.300' is no address"),
        ("[peers]\nbeta = 'a b'", "'a b' is no address"),
        ("[peers]\nbeta = 7", "peers.beta.addresses.0 = 7: input should be a valid string"),
        ("[peers.beta]\naddresses = []", "peers.beta.addresses = []: at least one address"),
        ("[peers.beta]\naddresses = ['a']\nguid = 'x'", "peers.beta.guid = 'x': input should be a valid UUID"),
        ("[peers.beta]\nguid = '01234567-89ab-cdef-0123-456789abcdef'", "peers.beta.addresses"),
        ("[peers]\nbeta = '192.0.2.7'\nBETA = '192.0.2.8'", "a name is there twice"),
        (
            "[peers.beta]\naddresses = ['a']\nguidd = 'x'",
            "unknown setting peers.beta.guidd; peers.beta can have addresses, guid, certificate, tls",
        ),
        (
            "[rpc]\nrequires_authentication = true\nauthentication_level = 'none'",
            'requires_authentication = true and authentication_level = "none" contradict each other',
        ),
        ("peers = 'x'", "peers = 'x': input should be a valid dictionary"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_key(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(complaint)) as error:
        load(tmp_path, text)
    assert "lanner.toml" in str(error.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "none.toml", {})


def test_the_limits_of_a_quota(tmp_path: Path) -> None:
    settings = load(tmp_path, '[quota]\nqueue_manager_kb = 4294967294\njournal_kb = "none"')
    assert (settings.quota.queue_manager_kb, settings.quota.journal_kb) == (0xFFFF_FFFE, "none")
    assert settings.quota.express_memory == 1 << 30
    assert load(tmp_path, '[quota]\nexpress_mb = "none"').quota.express_memory is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:9182", ("127.0.0.1", 9182)), ("[::1]:0", ("::1", 0)), ("0.0.0.0:65535", ("0.0.0.0", 65535))],
)
def test_an_address_and_its_port(text: str, expected: tuple[str, int]) -> None:
    assert split_address(text) == expected


def test_queue_managers_of_one_machine_differ_in_their_addresses() -> None:
    assert "127.0.0.1" in addresses_of("127.0.0.1")
    assert "127.0.0.1" in addresses_of("0.0.0.0")
    assert addresses_of("127.0.0.2") == {"127.0.0.2"}


def test_an_address_of_another_machine_is_refused() -> None:
    check_bind("127.0.0.1")
    # RFC 5737: an address for documentation.
    with pytest.raises(SettingsError, match=r"192\.0\.2\.1 is no address of this machine"):
        check_bind("192.0.2.1")


def test_the_operators_guide_has_every_setting_and_says_what_sighup_takes_over() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    rows = {row.split("`")[1]: row for row in guide.splitlines() if row.startswith("| `") and row.count("|") == 5}
    for name in setting_names():
        assert name in rows, name
        assert rows[name].rstrip(" |").endswith("yes" if name in RELOADABLE else "no"), name


@pytest.mark.parametrize(("old", "level"), [("true", "integrity"), ("false", "none")])
def test_the_old_name_of_the_authentication_level_is_taken_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, old: str, level: str
) -> None:
    settings = load(tmp_path, f"[rpc]\nrequires_authentication = {old}\n")
    assert settings.rpc.authentication_level == level
    assert f'write rpc.authentication_level = "{level}"' in caplog.text
    with pytest.raises(SettingsError, match=r"unknown setting rpc\.requires_authentication"):
        load(tmp_path, '[rpc]\nrequires_authentication = "perhaps"\n')


def test_a_profile_selects_the_authentication_level_and_the_operator_wins(tmp_path: Path) -> None:
    assert load(tmp_path, "").rpc.settings.authentication_level is AuthLevel.PKT_INTEGRITY
    document = '[security]\nprofile = "document"\n'
    assert load(tmp_path, document).rpc.settings.authentication_level is AuthLevel.NONE
    written = load(tmp_path, document + '[rpc]\nauthentication_level = "privacy"\n')
    assert written.rpc.settings.authentication_level is AuthLevel.PKT_PRIVACY
    with pytest.raises(SettingsError, match=r"rpc\.authentication_level"):
        load(tmp_path, '[rpc]\nauthentication_level = "much"\n')
