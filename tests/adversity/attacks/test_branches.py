"""A user without rights prepares branches of distributed transactions and never ends them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import lanner
from lanner import errors
from lanner.client import QueueManager
from lanner.client._sync.lanner_backend import LannerBackend
from lanner.host.distributed import MAX_BRANCHES
from tests.adversity.attacks.victim import ADMINISTRATOR, USER, victim


def prepare(manager: QueueManager, **more: Any) -> None:  # noqa: ANN401 (JSON)
    """Prepare an empty transaction as a branch of a coordinator that does not exist."""
    backend = manager._backend
    assert isinstance(backend, LannerBackend)
    connection = backend.connections.now()
    begun, _ = connection.call({"request": "begin", "identifier": str(uuid.uuid4())})
    names = {"coordinator": str(uuid.uuid4()), "identifier": str(uuid.uuid4()), "resource": "none"}
    connection.call({"request": "prepare", "transaction": begun["transaction"], **names, **more})


def test_branches_of_one_user_are_bounded(tmp_path: Path) -> None:
    with victim(tmp_path) as place:
        with lanner.connect(place.address, user=USER.user, password=USER.password) as enemy:
            for _ in range(MAX_BRANCHES):
                prepare(enemy)
            with pytest.raises(errors.InsufficientResources, match="branches of this user wait for their outcome"):
                prepare(enemy)
            # What is committed at once does not wait.
            prepare(enemy, single_phase=True)
        # Another connection does not help the enemy, and another user has room.
        with (
            lanner.connect(place.address, user=USER.user, password=USER.password) as enemy,
            pytest.raises(errors.InsufficientResources),
        ):
            prepare(enemy)
        with lanner.connect(place.address, user=ADMINISTRATOR.user, password=ADMINISTRATOR.password) as other:
            prepare(other)
