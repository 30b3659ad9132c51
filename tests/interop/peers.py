"""Shared code of the tests with other implementations' RPC clients.

These are the server as a process, a KDC, and the message when something is missing.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.rpc_server import PASSWORD, REALM, USER

ROOT = Path(__file__).resolve().parents[2]
# python3-samba belongs to the system's Python.
SYSTEM_PYTHON = "/usr/bin/python3"
SERVICE_HOST = "qm1.mq.test"


@contextmanager
def rpc_server(
    folder: Path,
    address: str = "127.0.0.1",
    port: int = 0,
    *,
    keytab: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Run our server, give its port, and see it end in good order."""
    command = [sys.executable, "-m", "tests.interop.rpc_server", address, str(port), str(folder)]
    if keytab is not None:
        command.append(str(keytab))
    log = folder / "server.log"
    with log.open("wb") as errors:
        server = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            assert line, log.read_text()
            yield int(line)
        finally:
            server.stdin.close()
            try:
                assert server.wait(10) == 0, log.read_text()
            finally:
                server.kill()
                server.stdout.close()
    # Whatever a peer sends, nothing of ours may fail on it.
    assert "Traceback" not in log.read_text(), log.read_text()


def needs_system_samba() -> None:
    if (
        not Path(SYSTEM_PYTHON).exists()
        or subprocess.run(
            [SYSTEM_PYTHON, "-c", "import samba.tests.dcerpc.raw_protocol"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("the Debian package python3-samba is not installed")


def needs_endpoint_mapper_port(address: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, 135))
        except OSError as error:
            pytest.skip(f"port 135 of {address} cannot be bound ({error.strerror}); root may")


class Kdc:
    """A Kerberos realm of our own, with the user and the service of the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keytab = folder / "keytab"
        self.environment = {
            "KRB5_CONFIG": str(folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5RCACHEDIR": str(folder),
        }
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def write_configuration(self) -> None:
        (self.folder / "krb5.conf").write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_realm = false\n dns_lookup_kdc = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
            f"[domain_realm]\n .mq.test = {REALM}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {self.folder}/principal\n"
            f"  key_stash_file = {self.folder}/stash\n"
            f"  acl_file = {self.folder}/acl\n }}\n[logging]\n kdc = FILE:{self.folder}/kdc.log\n"
        )

    def run(self, *command: str) -> None:
        subprocess.run(command, env={**os.environ, **self.environment}, check=True, capture_output=True)


def kdc_is_missing() -> str | None:
    """Say what a KDC needs and this machine does not have."""
    found = {name: shutil.which(name, path="/usr/sbin:/usr/bin") for name in ("krb5kdc", "kdb5_util", "kadmin.local")}
    missing = [name for name, path in found.items() if path is None]
    try:
        import gssapi  # noqa: F401
    except ImportError:
        missing.append("the Python package gssapi")
    return ", ".join(missing) or None


@contextmanager
def kdc(folder: Path) -> Iterator[Kdc]:
    """Run a KDC (Debian: krb5-kdc and krb5-admin-server) on a loopback port."""
    realm = Kdc(folder)
    realm.write_configuration()
    realm.run("/usr/sbin/kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
    for query in (
        f"addprinc -pw {PASSWORD} {USER}",
        f"addprinc -randkey host/{SERVICE_HOST}",
        f"ktadd -k {realm.keytab} host/{SERVICE_HOST}",
    ):
        realm.run("/usr/sbin/kadmin.local", "-q", query)
    process = subprocess.Popen(
        ["/usr/sbin/krb5kdc", "-n"],
        env={**os.environ, **realm.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield realm
    finally:
        process.terminate()
        process.wait(10)


def smb_conf(folder: Path) -> Path:
    """Write a configuration for Samba's clients that touches nothing of the machine."""
    for name in ("private", "lock"):
        (folder / name).mkdir(exist_ok=True)
    path = folder / "smb.conf"
    path.write_text(
        f"[global]\nworkgroup = MQ\nrealm = {REALM}\nnetbios name = CLIENT\nprivate dir = {folder}/private\n"
        + "".join(f"{kind} directory = {folder}/lock\n" for kind in ("lock", "state", "cache"))
    )
    return path
