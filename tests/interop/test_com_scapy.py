"""scapy's DCOM client uses an object of a whole queue manager from its own process.

It activates the object, calls it, resolves its exporter and releases it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import free_address
from tests.interop.com_daemon import PASSWORD, USER, ComDaemon, com_daemon

pytestmark = pytest.mark.skipif(importlib.util.find_spec("msrpcs") is None, reason="scapy-rpc is not installed")

PEER = Path(__file__).with_name("scapy_com.py")
CLSID_QUEUE_INFO = "d7d6e07c-dccd-11d0-aa4b-0060970debae"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComDaemon]:
    with com_daemon(tmp_path_factory.mktemp("com"), free_address()) as made:
        yield made


def run(daemon: ComDaemon, password: str, level: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PEER), daemon.address, f"{USER}@MQ", password, level, CLSID_QUEUE_INFO]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("level", ["PKT_INTEGRITY", "PKT_PRIVACY"])
def test_an_object_from_activation_to_release(daemon: ComDaemon, level: str) -> None:
    ended = run(daemon, PASSWORD, level)
    assert not ended.returncode, ended.stderr
    seen = json.loads(ended.stdout)
    assert seen.pop("resolver")[0] == daemon.address
    (status, found), (other_status, other) = seen.pop("Open"), seen.pop("Create")
    assert (status, other_status) == (0, 0)
    assert found != other
    assert seen == {
        # NTLM and SPNEGO.
        "providers": [10, 9],
        "references": 5,
        "hint": 5,
        "version": [5, 7],
        "type infos": 0,
        "open": [0, found],
        "Colour": [0x80020006, -1],
        "resolved": True,
        "left": 0,
        # The fault RPC_E_DISCONNECTED, in which it looks for an answer.
        "after release": "IndexError",
    }


def test_a_wrong_password(daemon: ComDaemon) -> None:
    ended = run(daemon, "wrong", "PKT_INTEGRITY")
    assert ended.returncode
    assert not ended.stdout
