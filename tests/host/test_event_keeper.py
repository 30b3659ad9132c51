"""The thread that keeps the log of events."""

from __future__ import annotations

import time
from pathlib import Path

from lanner.engine.settings import EventSettings
from lanner.host.event_keeper import EventKeeper
from tests.store.conftest import open_store
from tests.store.test_event_log import add, found


def test_the_keeper_drops_what_is_old_and_writes_what_waits(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add(store, 1, now=1_000_000_000)
    store.flush_events()
    keeper = EventKeeper(store, EventSettings(keep_days=1))
    keeper.trim(1_000_000 + 86_399.0)
    assert found(store) == {1: 1}
    keeper.trim(1_000_000 + 86_401.0)
    assert found(store) == {}
    add(store, 2, now=int(time.time() * 1000))
    keeper.start()
    for _ in range(1000):
        if found(store):
            break
        time.sleep(0.002)
    keeper.stop()
    assert found(store) == {2: 2}
    store.close()
