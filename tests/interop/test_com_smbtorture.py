"""Samba's tests of the object resolver against ours.

Those that activate an object first (ComplexPing, ResolveOxid, rpc.remact) are not here: smbtorture
gives Samba's parser an array on its stack for the interfaces that come back, and stops with "Bad
talloc magic value" as soon as an activation succeeds, whoever answers it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.com.toys import DOMAIN, PASSWORD, USER, toy_server_in_thread
from tests.interop.peers import needs_endpoint_mapper_port, smb_conf

ADDRESS = "127.0.0.64"
# Run a test of the resolver with options of the binding, and return its report.
Torture: TypeAlias = Callable[[str, str], str]


@pytest.fixture
def torture(tmp_path: Path) -> Torture:
    smbtorture = shutil.which("smbtorture")
    if smbtorture is None:
        pytest.skip("the Debian package samba-testsuite is not installed")
    needs_endpoint_mapper_port(ADDRESS)

    def run(test: str, options: str) -> str:
        command = [
            smbtorture,
            f"--configfile={smb_conf(tmp_path)}",
            f"-U{DOMAIN}/{USER}%{PASSWORD}",
            f"ncacn_ip_tcp:{ADDRESS}[135{options}]",
            f"rpc.oxidresolve.oxidresolver.{test}",
        ]
        with toy_server_in_thread(tmp_path, ADDRESS, 135):
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout

    return run


@pytest.mark.spec("MQAC-2.1-3")
@pytest.mark.parametrize("test", ["ServerAlive", "ServerAlive2"])
@pytest.mark.parametrize("options", ["", ",sign", ",spnego,seal"])
def test_smbtorture_finds_us_alive(torture: Torture, test: str, options: str) -> None:
    said = torture(test, options)
    assert f"success: oxidresolver.{test}" in said, said


@pytest.mark.spec("MQAC-2.1-24")
def test_smbtorture_pings_a_set_that_it_never_made(torture: Torture) -> None:
    """It would like that to succeed; MS-DCOM 3.1.2.5.1.2 does not."""
    said = torture("SimplePing", ",sign")
    assert "r.out.result was WERR_OR_INVALID_SET" in said, said
