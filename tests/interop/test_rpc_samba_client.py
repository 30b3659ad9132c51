"""Samba's libdcerpc and its torture tests against our server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.peers import ROOT, SYSTEM_PYTHON, needs_system_samba, rpc_server, smb_conf
from tests.interop.rpc_server import DOMAIN, PASSWORD, USER


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


# rpc.scanner asks every operation of every interface for what it does with nothing.
@pytest.mark.parametrize("test", ["rpc.mgmt", "rpc.epmapper", "rpc.scanner"])
def test_smbtorture_neither_stops_nor_breaks_the_server(environment: dict[str, str], test: str) -> None:
    smbtorture = shutil.which("smbtorture")
    if smbtorture is None:
        pytest.skip("the Debian package samba-testsuite is not installed")
    command = [
        smbtorture,
        f"--configfile={environment['SMB_CONF_PATH']}",
        f"-U{DOMAIN}/{USER}%{PASSWORD}",
        f"ncacn_ip_tcp:127.0.0.1[{environment['PORT']}]",
        test,
    ]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    # Its own verdict depends on what Windows answers beyond the protocol; that it went through says that ours answered.
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    after = subprocess.run(
        [SYSTEM_PYTHON, str(Path(__file__).with_name("samba_client.py")), "ntlm,seal"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert after.returncode == 0, after.stderr
