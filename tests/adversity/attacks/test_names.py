"""Names chosen by a stranger.

Half a surrogate pair in one message must not stop monitoring, the pipeline or a session.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow.flight as fl
import pytest

import lanner
from lanner.model.enums import Acknowledgements
from lanner.wire.format_name import parse
from lanner.wire.identifiers import TxSequenceID
from tests.adversity.attacks.victim import ADMINISTRATOR, Victim, victim
from tests.adversity.network import PORT
from tests.adversity.stranger import Stranger, message
from tests.client.peers import free_address

_SETTINGS = f"""
[metrics]
bind = "127.0.0.1:0"
[transfer]
port = {PORT}
"""
_HALF = "\ud96c"


def _deliver(place: Victim, *packets: bytes) -> None:
    """Deliver packets in a session, and see that it has outlived them."""
    with Stranger.connect(free_address(), place.address).open() as stranger:
        for packet in packets:
            stranger.say(packet)
        with lanner.connect(data=place.data) as manager:
            queue = manager.open("orders")
            end = time.monotonic() + 20
            while not any(one.body == b"the last one" for one in queue):
                assert time.monotonic() < end, place.log
                time.sleep(0.02)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Victim]:
    with victim(tmp_path, _SETTINGS, flight=True) as place:
        with lanner.connect(data=place.data) as manager:
            manager.create_queue("orders")
        yield place


def _last(place: Victim) -> bytes:
    return message(rf"DIRECT=TCP:{place.address}\private$\orders", b"the last one", ordinal=9)


def test_a_name_in_a_message_does_not_silence_metrics_and_pipeline(place: Victim) -> None:
    asks = message(
        rf"DIRECT=TCP:{place.address}\private$\orders",
        administration_queue_format_name=parse(rf"DIRECT=OS:{_HALF}x\private$\answers"),
        acknowledgements_requested=Acknowledgements.FULL_REACH_QUEUE,
    )
    _deliver(place, asks, _last(place))
    with urllib.request.urlopen(place.listeners["metrics"], timeout=30) as answer:
        text = answer.read().decode()
    assert r"\\ud96cx" in text
    client = fl.connect(place.listeners["flight"])
    token = client.authenticate_basic_token(ADMINISTRATOR.user.encode(), ADMINISTRATOR.password.encode())
    listed = list(client.list_flights(b"", fl.FlightCallOptions(headers=[token])))
    assert any(b"orders" in flight.descriptor.path[0] for flight in listed)
    client.close()


def test_a_destination_that_cannot_be_written_as_utf8_is_refused_like_any_other(place: Victim) -> None:
    lost = message(
        rf"DIRECT=TCP:{place.address}\private$\or{_HALF}ders", sequence=TxSequenceID(1, int(time.time())), ordinal=1
    )
    _deliver(place, lost, _last(place))
    assert not [line for line in place.log if " ERROR " in line]
