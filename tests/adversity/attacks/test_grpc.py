"""gRPC messages that cost the Flight service more than they cost their sender.

Some of the senders have no account.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import lanner
from tests.adversity.attacks.victim import USER, Victim, victim

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
fl = pytest.importorskip("pyarrow.flight")
client = pytest.importorskip("lanner.spark.flight.client")

MIB: Final = 1 << 20
_QUEUE: Final = r"DIRECT=OS:VICTIM\private$\open"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with victim(tmp_path_factory.mktemp("grpc"), flight=True) as made:
        with lanner.connect(data=made.data) as manager:
            manager.create_queue("open")
        yield made


def peak(place: Victim) -> int:
    """Return the most memory that the service has had, in octets."""
    status = Path(f"/proc/{int((place.data / 'lock').read_text())}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def stranger(target: Victim, **options: int) -> Any:  # noqa: ANN401 (pyarrow may be missing)
    return fl.FlightClient(target.listeners["flight"], generic_options=list(options.items()))


@pytest.mark.parametrize("compression", [0, 2])
def test_a_request_without_an_account_takes_no_memory(target: Victim, compression: int) -> None:
    before = peak(target)
    # GRPC_COMPRESSION_CHANNEL_DEFAULT_ALGORITHM: none, or gzip.
    flight = stranger(target, **{"grpc.default_compression_algorithm": compression})
    with pytest.raises(fl.FlightError):
        flight.get_flight_info(fl.FlightDescriptor.for_command(bytes(300 * MIB)), fl.FlightCallOptions(timeout=30))
    assert peak(target) - before < 64 * MIB


def test_a_stranger_waits_for_a_call_of_an_account_before_it_says_much(target: Victim) -> None:
    """Below the limit of one message, and above that of a request."""
    before = peak(target)
    flights = [stranger(target, number=number) for number in range(8)]
    descriptor = fl.FlightDescriptor.for_command(bytes(20 * MIB))
    for flight in flights:
        with pytest.raises(fl.FlightError):
            flight.get_flight_info(descriptor, fl.FlightCallOptions(timeout=1))
    assert peak(target) - before < 64 * MIB


def put(target: Victim, batch: Any, **options: Any) -> None:  # noqa: ANN401 (pyarrow may be missing)
    flight = stranger(target)
    headers = [flight.authenticate_basic_token(USER.user, USER.password)]
    command = json.dumps({"token": secrets.token_hex(8), "writer": "w", "batch": 1, "queue": _QUEUE})
    given = fl.FlightCallOptions(headers=headers, timeout=60, **options)
    writer, reader = flight.do_put(fl.FlightDescriptor.for_command(command), batch.schema, given)
    try:
        writer.write_batch(batch)
        writer.write_metadata(json.dumps({"messages": len(batch)}).encode())
        writer.done_writing()
        reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_batch_is_not_unpacked(target: Victim, codec: str) -> None:
    before = peak(target)
    batch = pa.record_batch({"body": [bytes(300 * MIB)]})
    with pytest.raises((fl.FlightError, pa.ArrowException)):
        put(target, batch, write_options=pa.ipc.IpcWriteOptions(compression=codec))
    assert peak(target) - before < 64 * MIB


def test_a_batch_beyond_the_limit_ends_the_connection(target: Victim) -> None:
    with pytest.raises((fl.FlightError, pa.ArrowException)):
        put(target, pa.record_batch({"body": [bytes(MIB)] * 40}))


def test_who_has_an_account_writes_batches_of_any_size(target: Victim) -> None:
    """The first call of a connection logs on; its data arrive before they are examined."""
    put(target, pa.record_batch({"body": [bytes(MIB)] * 20}))
    large = pa.record_batch({"body": [bytes(MIB)] * 80})
    with client.FlightQueues(target.listeners["flight"], user=USER.user, password=USER.password) as queues:
        assert queues.stage([large], large.schema, writer="large", queue=_QUEUE)["messages"] == 80
