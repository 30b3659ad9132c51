"""The Debian package.

It is built, installed without a network, run as its unit says, upgraded, removed and purged. The
tests run in their order, in one machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import lanner
from tests.machines.roots import HOME, Machine, make_machine

pytestmark = pytest.mark.machine

PROJECT = f"{HOME}/lanner"
CONFIGURATION = "/etc/lanner/lanner.toml"
DATA = "/var/lib/lanner"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        made = make_machine(Path(name))
        made.add_checkout()
        # As in images of containers: packages start no service.
        policy = made.path("/usr/sbin/policy-rc.d")
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        yield made


def package(machine: Machine, revision: int) -> str:
    architecture = machine.run(["dpkg", "--print-architecture"]).strip()
    return f"{PROJECT}/dist/lanner_{lanner.__version__}-{revision}_{architecture}.deb"


def served(machine: Machine, commands: str) -> str:
    """Run commands while ExecStart of the installed unit runs as its user, without systemd."""
    unit = machine.path("/lib/systemd/system/lanner.service").read_text()
    start = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert start is not None
    user = "setpriv --reuid lanner --regid lanner --clear-groups --no-new-privs"
    return machine.run(
        f"""
        {user} {start[1]} > /tmp/log 2>&1 & service=$!
        until lanner status --data {DATA} > /tmp/status 2>&1; do \
kill -0 $service || {{ cat /tmp/log; exit 1; }}; sleep 0.2; done
        {commands}
        stat -c 'owner %U' /proc/$service
        kill $service
        wait $service
        """,
        user=0,
    )


def test_it_is_built_from_locked_wheels(machine: Machine) -> None:
    machine.run("make package", directory=PROJECT, network=True)
    fields = machine.run(["dpkg-deb", "--field", package(machine, 1)])
    assert f"Version: {lanner.__version__}-1" in fields
    listed = machine.run(["dpkg-deb", "--contents", package(machine, 1)])
    assert "root/root" in listed
    assert "site-packages/lmdb/" in listed
    assert "hatchling" not in listed


def test_it_is_installed_without_a_network(machine: Machine) -> None:
    machine.run(["dpkg", "-i", package(machine, 1)], user=0)
    assert machine.run(["lanner", "--version"]) == f"lanner {lanner.__version__}\n"
    assert machine.run(["stat", "-c", "%U:%G %a", DATA]) == "lanner:lanner 700\n"
    enabled = machine.path("/etc/systemd/system/multi-user.target.wants/lanner.service")
    assert enabled.is_symlink()


def test_it_runs_as_its_own_user(machine: Machine) -> None:
    out = served(
        machine, f"lanner queue create orders --data {DATA}; lanner send orders kept --recoverable --data {DATA}"
    )
    assert "owner lanner" in out


def test_an_upgrade_keeps_messages_and_settings(machine: Machine) -> None:
    settings = machine.path(CONFIGURATION)
    settings.write_text(settings.read_text() + '\n[log]\nlevel = "warning"\n')
    machine.run("REVISION=2 packaging/debian/build", directory=PROJECT, network=True)
    machine.run(["dpkg", "-i", package(machine, 2)], user=0)
    assert 'level = "warning"' in settings.read_text()
    assert "kept" in served(machine, f"lanner peek orders --data {DATA}")


def test_removal_keeps_the_data_and_purge_removes_it(machine: Machine) -> None:
    machine.run(["dpkg", "--remove", "lanner"], user=0)
    assert machine.path(DATA).is_dir()
    assert machine.path(CONFIGURATION).exists()
    assert not machine.path("/usr/lib/lanner").exists()
    machine.run(["dpkg", "--purge", "lanner"], user=0)
    for path in (DATA, "/etc/lanner", "/lib/systemd/system/lanner.service"):
        assert not machine.path(path).exists(), path
    assert not machine.path("/etc/systemd/system/multi-user.target.wants/lanner.service").is_symlink()
    machine.run(shlex.split("getent passwd lanner"), code=2)
