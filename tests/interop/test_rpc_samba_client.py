"""Samba's libdcerpc and its torture tests against our server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.rpc.blocking_client import connect_tcp
from lanner.rpc.security import Credentials
from tests.interop.peers import (
    ROOT,
    SYSTEM_PYTHON,
    needs_endpoint_mapper_port,
    needs_system_samba,
    rpc_server,
    smb_conf,
)
from tests.interop.rpc_server import DOMAIN, ECHO, PASSWORD, USER


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    needs_system_samba()
    folder = tmp_path_factory.mktemp("samba")
    with rpc_server(folder) as port:
        yield {
            **os.environ,
            "SMB_CONF_PATH": str(smb_conf(folder)),
            "USERNAME": USER,
            "PASSWORD": PASSWORD,
            "DOMAIN": DOMAIN,
            "TARGET_HOSTNAME": "127.0.0.1",
            "PORT": str(port),
        }


@pytest.mark.parametrize(
    "options",
    [
        "",
        "bigendian",
        *(f"{kind},{level}" for kind in ("ntlm", "spnego") for level in ("connect", "packet", "sign", "seal")),
        "ntlm,seal,bigendian",
    ],
)
def test_libdcerpc_echoes_20_kilobytes(environment: dict[str, str], options: str) -> None:
    script = Path(__file__).with_name("samba_client.py")
    ran = subprocess.run(
        [SYSTEM_PYTHON, str(script), options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ran.returncode == 0, ran.stderr


# They ask the endpoint mapper for everything that Samba knows; the scanner calls every operation it
# finds with nothing at all.
TORTURE_ADDRESS = "127.0.0.36"


@pytest.mark.parametrize("test", ["rpc.mgmt", "rpc.epmapper", "rpc.scanner"])
def test_smbtorture_neither_stops_nor_breaks_the_server(tmp_path: Path, test: str) -> None:
    smbtorture = shutil.which("smbtorture")
    if smbtorture is None:
        pytest.skip("the Debian package samba-testsuite is not installed")
    needs_endpoint_mapper_port(TORTURE_ADDRESS)
    command = [
        smbtorture,
        f"--configfile={smb_conf(tmp_path)}",
        f"-U{DOMAIN}/{USER}%{PASSWORD}",
        f"ncacn_ip_tcp:{TORTURE_ADDRESS}[135]",
        test,
    ]
    with rpc_server(tmp_path, TORTURE_ADDRESS, 135):
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        # rpc.epmapper also inserts, which MS-RPCE takes away, and wants "no more" together with the
        # last elements.
        assert ran.returncode == (1 if test == "rpc.epmapper" else 0), ran.stdout + ran.stderr
        with connect_tcp(TORTURE_ADDRESS, 135, credentials=Credentials(USER, PASSWORD), timeout=10) as client:
            assert client.bind_raw(ECHO).call_raw(0, b"still there") == b"still there"
