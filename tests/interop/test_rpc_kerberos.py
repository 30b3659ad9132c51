"""Kerberos with tickets of an independent KDC: Lanner's own client and Samba's."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.rpc.blocking_client import RpcClient
from lanner.rpc.client_connection import ClientConnection
from lanner.rpc.pdu import AuthLevel, AuthType
from lanner.rpc.security import Credentials
from tests.interop.peers import (
    ROOT,
    SERVICE_HOST,
    SYSTEM_PYTHON,
    Kdc,
    kdc,
    kdc_is_missing,
    needs_system_samba,
    rpc_server,
    smb_conf,
)
from tests.interop.rpc_server import DOMAIN, ECHO, PASSWORD, REALM, USER

DATA = bytes(range(256)) * 80


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kdc, int]]:
    missing = kdc_is_missing()
    if missing is not None:
        pytest.skip(f"a KDC is missing: {missing} (Debian: krb5-kdc, krb5-admin-server)")
    folder = tmp_path_factory.mktemp("kerberos")
    with (
        kdc(folder) as found,
        rpc_server(folder, keytab=found.keytab, environment=found.environment) as port,
    ):
        yield found, port


@pytest.mark.parametrize(
    "level",
    [AuthLevel.CONNECT, AuthLevel.PKT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY],
    ids=lambda one: one.name,
)
def test_our_client(realm: tuple[Kdc, int], level: AuthLevel, monkeypatch: pytest.MonkeyPatch) -> None:
    found, port = realm
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    core = ClientConnection(
        credentials=Credentials(f"{USER}@{REALM}", PASSWORD),
        auth_type=AuthType.GSS_KERBEROS,
        level=level,
        host=SERVICE_HOST,
    )
    with RpcClient(socket.create_connection(("127.0.0.1", port), 10), core) as client:
        bound = client.bind_raw(ECHO)
        for size in (0, 1, 16, len(DATA)):
            assert bound.call_raw(0, DATA[:size]) == DATA[:size]


@pytest.mark.parametrize("kind", ["krb5", "spnego,krb5"])
@pytest.mark.parametrize("level", ["connect", "packet", "sign", "seal"])
def test_samba_client(realm: tuple[Kdc, int], kind: str, level: str, tmp_path: Path) -> None:
    needs_system_samba()
    found, port = realm
    environment = {
        **os.environ,
        **found.environment,
        "SMB_CONF_PATH": str(smb_conf(tmp_path)),
        "USERNAME": USER,
        "PASSWORD": PASSWORD,
        "DOMAIN": DOMAIN,
        "REALM": REALM,
        "TARGET_HOSTNAME": "127.0.0.1",
        "PORT": str(port),
    }
    script = Path(__file__).with_name("samba_client.py")
    ran = subprocess.run(
        [SYSTEM_PYTHON, str(script), f"{kind},{level},target_hostname={SERVICE_HOST}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ran.returncode == 0, ran.stderr
