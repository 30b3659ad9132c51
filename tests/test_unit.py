"""packaging/lanner.service: what systemd says about it, and the service as it starts it.

SystemCallFilter, ProtectSystem and the other directives of the kernel's sandbox are applied by a
running systemd, which a test machine need not have: their syntax is checked here, not their effect.
"""

from __future__ import annotations

import configparser
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import lanner
from tests.client.peers import free_address
from tests.contract.service import LANNER
from tests.unit_of_service import NO_CAPABILITIES, UNIT, USER, Started, dropped, needs_root, shared_directory

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="install systemd")


@pytest.fixture
def shared() -> Iterator[Path]:
    yield from shared_directory()


class UnitParser(configparser.ConfigParser):
    """The names of a unit's settings have capitals."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


@pytest.fixture
def service() -> configparser.SectionProxy:
    parser = UnitParser(strict=False, interpolation=None)
    parser.read(UNIT)
    return parser["Service"]


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with the program where it is here."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/bin/lanner", str(LANNER)))
    return copy


def test_the_unit_has_what_a_service_needs(service: configparser.SectionProxy) -> None:
    assert service["Type"] == "notify"
    assert service["User"] == "lanner"
    assert service["AmbientCapabilities"] == service["CapabilityBoundingSet"] == "CAP_NET_BIND_SERVICE"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert int(service["LimitNOFILE"]) >= 65536
    assert service["StateDirectoryMode"] == "0700"
    assert "SystemCallFilter=@system-service" in UNIT.read_text()


@needs_systemd
def test_systemd_understands_the_unit(unit: Path) -> None:
    ran = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


@needs_systemd
def test_systemd_finds_the_service_well_protected(unit: Path) -> None:
    """3.0 of 10 at most."""
    command: list[str | Path] = ["systemd-analyze", "security", "--offline=true", "--threshold=30", unit]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_root
def test_the_command_of_the_unit_runs_as_another_user(service: configparser.SectionProxy, shared: Path) -> None:
    """It binds port 135 by its capability and drops that.

    Then it reports that it is ready and, later, that it stops.
    """
    data, config, address = shared / "data", shared / "lanner.toml", free_address()
    data.mkdir(0o700)
    shutil.chown(data, USER.pw_uid, USER.pw_gid)
    config.write_text(f'name = "ALPHA"\nbind = "{address}"\n')
    command = shlex.split(service["ExecStart"])
    places = {"/usr/bin/lanner": LANNER, "/etc/lanner/lanner.toml": config, "/var/lib/lanner": data}
    assert set(places) <= set(command)
    capability = service["AmbientCapabilities"].removeprefix("CAP_").lower()
    started = Started(shared, [*dropped(capability), *(places.get(word, word) for word in command)])
    try:
        assert started.state() == "READY=1"
        assert started.threads("Uid") == {"\t".join([str(USER.pw_uid)] * 4)}
        for field in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
            assert started.threads(field) == {NO_CAPABILITIES}
        socket.create_connection((address, 135)).close()
        with lanner.connect(data=data) as qm:
            assert qm.name == "ALPHA"
        assert started.stop() == 0
        assert started.state() == "STOPPING=1"
        assert {path.stat().st_uid for path in data.iterdir()} == {USER.pw_uid}
    finally:
        started.close()
