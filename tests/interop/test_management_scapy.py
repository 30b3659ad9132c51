"""scapy queries and acts as an administrator, from its own process.

It uses the classes that scapy-rpc generated from the published IDL.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.rpc.security import ServerSecurity, TargetNames
from lanner.security.users import UserFile
from lanner.wire.property_ids import ManagementMachineProperty as Machine
from lanner.wire.property_ids import ManagementQueueProperty as Property
from tests.engine.harness import Harness
from tests.services.managed import Managed
from tests.statuses import MQ_ERROR_ACCESS_DENIED, MQ_ERROR_ILLEGAL_PROPID, MQ_ERROR_INVALID_PARAMETER

pytestmark = pytest.mark.skipif(importlib.util.find_spec("msrpcs") is None, reason="scapy-rpc is not installed")

PEER = Path(__file__).with_name("scapy_management.py")
PASSWORD = "Pass-word1"
# Scapy aligns the elements of an array as if the stub began with each. With a name of this length
# that is right.
REMOTE = r"OS:BETA\private$\orders"
assert len(REMOTE) % 4 in (2, 3)
# It sends a verification trailer with the first request, and does not align it: that is an action,
# whose stub ends at a multiple of four.


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Managed]:
    users = UserFile(tmp_path / "users.json")
    users.add("operator", PASSWORD, administrator=True)
    users.add("alice", PASSWORD)
    h = Harness(tmp_path / "data", resolve_identity=users.resolve)
    try:
        h.send(f"DIRECT={REMOTE}")
        manager = Managed(h, providers=ServerSecurity(users, TargetNames("ALPHA", "MQ", "alpha.mq.test", "mq.test")))
        try:
            yield manager
        finally:
            manager.close()
    finally:
        h.close()


def answers(manager: Managed, credentials: list[str], *calls: list[object]) -> list[object]:
    command = [sys.executable, str(PEER), str(manager.port), *credentials]
    with manager.unlocked():
        ended = subprocess.run(
            command, input="\n".join(map(json.dumps, calls)), capture_output=True, text=True, timeout=60, check=True
        )
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize("level", ["PKT_INTEGRITY", "PKT_PRIVACY"])
def test_an_administrator_asks_and_acts(manager: Managed, level: str) -> None:
    told = answers(
        manager,
        ["operator@MQ", PASSWORD, level],
        ["action", None, "CONNECT"],
        ["get", None, Machine.CONNECTED],
        ["action", None, "DISCONNECT"],
        ["get", None, Machine.CONNECTED],
        ["action", None, "No Such Word"],
        ["get", REMOTE, Property.STATE],
        ["action", REMOTE, "PAUSE"],
        ["get", REMOTE, Property.STATE],
        ["get", REMOTE, Property.MESSAGE_COUNT],
        ["get", REMOTE, 28],
    )
    assert told == [
        [0, None],
        [0, "CONNECTED"],
        [0, None],
        [0, "DISCONNECTED"],
        [MQ_ERROR_INVALID_PARAMETER, None],
        [0, "INACTIVE"],
        [0, None],
        [0, "ONHOLD"],
        [0, 1],
        [MQ_ERROR_ILLEGAL_PROPID, ""],
    ]


def test_the_verification_trailer_of_the_first_call_may_begin_anywhere(manager: Managed) -> None:
    """Scapy does not align it (MS-RPCE 2.2.2.13): TIDY and its terminator have ten octets."""
    assert answers(manager, ["operator@MQ", PASSWORD, "PKT_PRIVACY"], ["action", None, "TIDY"]) == [[0, None]]


@pytest.mark.parametrize("credentials", [[], ["alice@MQ", PASSWORD, "PKT_PRIVACY"]], ids=["anonymous", "a user"])
def test_anybody_else_is_refused(manager: Managed, credentials: list[str]) -> None:
    calls: list[list[object]] = [["action", REMOTE, "PAUSE"], ["get", None, Machine.CONNECTED]]
    assert answers(manager, credentials, *calls) == [[MQ_ERROR_ACCESS_DENIED, None], [MQ_ERROR_ACCESS_DENIED, ""]]
    assert next(manager.h.engine.outgoing_queues()).state.name == "INACTIVE"
