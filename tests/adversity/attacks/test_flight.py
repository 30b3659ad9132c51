"""The Flight service under attack.

The attacks are anonymous callers, other users' writers, endless publications and password guesses.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pwd
import re
import socket
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import lanner
from lanner.errors import AccessDenied, InsufficientResources, LannerError, ServiceNotAvailable
from lanner.host.addresses import local_settings
from lanner.host.runtime import Runtime
from lanner.rpc.security import Credentials
from lanner.security.identity import Identity
from lanner.security.log_lines import PER_PEER
from lanner.spark.flight.gates import AT_A_TIME
from lanner.wire.sid import Sid
from tests.adversity.attacks.limited_service import until
from tests.adversity.attacks.victim import ADMINISTRATOR, USER, Victim, victim

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
fl = pytest.importorskip("pyarrow.flight")
client = pytest.importorskip("lanner.spark.flight.client")
flight_errors = pytest.importorskip("lanner.spark.flight.errors")
service = pytest.importorskip("lanner.spark.flight.service")

Queues: TypeAlias = Any  # pyarrow may be missing
ROWS = pa.record_batch({"body": [b"one", b"two", b"three"]})
SETTINGS = "max_publication_messages = 4\nmax_writers = 3\n"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with victim(tmp_path_factory.mktemp("flight"), flight=True) as made:
        make_queue(made)
        yield made


def make_queue(target: Victim) -> None:
    with lanner.connect(data=target.data) as qm:
        # As open as a list can be.
        qm.create_queue("open", access={"Everyone": "full", "Anonymous": "full"})


def connect(target: Victim, user: str | None = None, password: str = "") -> Queues:
    return client.FlightQueues(target.listeners["flight"], user=user, password=password)


def test_nobody_does_anything_whatever_a_queue_allows(target: Victim) -> None:
    with connect(target) as nobody:
        for call in (
            nobody.info,
            lambda: nobody.queues("*"),
            lambda: nobody.bounds("open"),
            lambda: nobody.table("open"),
            lambda: nobody.stage([ROWS], ROWS.schema, writer="w", queue="open"),
            lambda: nobody.publish("w", 0, []),
            lambda: nobody.last_published("w"),
        ):
            with pytest.raises(flight_errors.NotAuthenticated):
                call()
    with lanner.connect(data=target.data) as qm:
        assert qm.open("open").count() == 0


def test_a_writers_name_is_its_owners(target: Victim) -> None:
    """A user who takes a writer's name first does not take it from its owner.

    Nothing that the owner has staged under that name is dropped.
    """
    with connect(target, *login(ADMINISTRATOR)) as alice, connect(target, *login(USER)) as bob:
        hers = alice.stage([ROWS], ROWS.schema, writer="nightly", batch=7, queue="open")["token"]
        taken = bob.stage([ROWS], ROWS.schema, writer="nightly", batch=7, queue="open")["token"]
        assert bob.publish("nightly", 7, [taken])["is_new"]
        assert bob.publish("nightly", 1 << 40, [])["is_new"]
        with pytest.raises(AccessDenied):
            bob.publish("nightly", 8, [hers])
        with pytest.raises(AccessDenied):
            bob.drop([hers])
        assert alice.last_published("nightly") is None
        assert alice.publish("nightly", 7, [hers])["is_new"]
        assert alice.last_published("nightly") == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a moment")
def test_others_do_not_learn_where_the_data_directory_is(target: Victim) -> None:
    """Only the service's own user and root can open the socket in the data directory.

    The account that they log on with makes no difference.
    """
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        queues = connect(target, *login(ADMINISTRATOR))
    finally:
        os.seteuid(0)
    with queues:
        found = queues.info()
        assert str(target.data) not in json.dumps(found)
        assert found["near"] is None
    with connect(target, *login(USER)) as bob:
        assert bob.info()["near"] == str(target.data.resolve() / "streams.sock")


def test_publications_and_writers_are_bounded(tmp_path: Path) -> None:
    with victim(tmp_path, SETTINGS, flight=True) as target:
        make_queue(target)
        exceed(target)


def exceed(target: Victim) -> None:
    with connect(target, *login(ADMINISTRATOR)) as alice:
        with pytest.raises(InsufficientResources, match="max_publication_messages"):
            alice.stage([ROWS, ROWS], ROWS.schema, writer="big", queue="open")
        # In parts.
        parts = [alice.stage([ROWS], ROWS.schema, writer="big", queue="open")["token"] for _ in range(2)]
        with pytest.raises(InsufficientResources, match="max_publication_messages"):
            alice.publish("big", 0, parts)
        with pytest.raises(InsufficientResources, match="max_writers"):
            publish_under_many_names(alice)


def test_stages_are_bounded(tmp_path: Path) -> None:
    """Staged data is in no queue, but it is on the disk."""
    settings = "max_stages = 3\nmax_staged_mb = 3\n"
    with victim(tmp_path, settings, flight=True) as target:
        make_queue(target)
        large = pa.record_batch({"body": [bytes(1 << 20)]})
        with connect(target, *login(USER)) as bob, connect(target, *login(ADMINISTRATOR)) as alice:
            for _ in range(2):
                bob.stage([large], large.schema, writer="w", queue="open")
            with pytest.raises(InsufficientResources, match="max_staged_mb"):
                bob.stage([large], large.schema, writer="w", queue="open")
            kept = bob.stage([ROWS], ROWS.schema, writer="kept", queue="open")["token"]
            with pytest.raises(InsufficientResources, match="max_stages"):
                bob.stage([ROWS], ROWS.schema, writer="w", queue="open")
            # Others have room of their own, and what is published or dropped makes room.
            alice.stage([large], large.schema, writer="w", queue="open")
            bob.publish("kept", 0, [kept])
            bob.drop_batch("w", 0)
            for _ in range(2):
                bob.stage([large], large.schema, writer="w", queue="open")


def test_stages_count_in_the_quota(tmp_path: Path) -> None:
    with victim(tmp_path, "[quota]\nqueue_manager_kb = 4096\n", flight=True) as target:
        make_queue(target)
        large = pa.record_batch({"body": [bytes(1 << 20)]})
        with connect(target, *login(USER)) as bob, connect(target, *login(ADMINISTRATOR)) as alice:
            bob.stage([large], large.schema, writer="w", queue="open")
            with pytest.raises(InsufficientResources, match=r"half of quota\.queue_manager_kb"):
                bob.stage([large], large.schema, writer="w", queue="open")
            alice.stage([large], large.schema, writer="w", queue="open")
            with lanner.connect(data=target.data) as qm:
                qm.open("open").send(bytes(2_000_000))
            with pytest.raises(InsufficientResources, match="messages and stages"):
                alice.stage([pa.record_batch({"body": [bytes(200_000)]})], ROWS.schema, writer="w", queue="open")


def test_a_dead_letter_queue_is_no_way_into_a_queue(target: Victim) -> None:
    with lanner.connect(data=target.data) as qm:
        hers = qm.create_queue("hers", access={ADMINISTRATOR.user: "full"})
        rows = pa.record_batch(
            {
                "body": [b"planted"],
                "time_to_reach_queue": pa.array([1], pa.int64()),
                "deadletter_format_name": [r"VICTIM\private$\hers"],
                "journal": pa.array([1], pa.int32()),
            }
        )
        with connect(target, *login(USER)) as bob, pytest.raises(AccessDenied, match="its dead-letter queue"):
            bob.stage([rows], rows.schema, writer="w", queue=r"DIRECT=TCP:127.0.51.99\private$\nowhere")
        assert hers.count() == 0


def test_one_account_does_not_hold_all_streams(tmp_path: Path) -> None:
    """A client that begins to write and then stays silent holds a stream."""
    with victim(tmp_path, "max_streams = 2\n", flight=True) as target:
        make_queue(target)
        with fl.connect(target.listeners["flight"]) as silent, connect(target, *login(ADMINISTRATOR)) as alice:
            options = fl.FlightCallOptions(headers=[silent.authenticate_basic_token(*login(USER))])
            command = json.dumps({"token": "ab", "writer": "w", "batch": 0, "queue": "open"}).encode()
            put, _ = silent.do_put(fl.FlightDescriptor.for_command(command), ROWS.schema, options)
            put.write_batch(ROWS)
            # Before bob tries: his own stream would otherwise be the one that counts, and the
            # silent one be refused.
            with lanner.connect(data=target.data) as qm:
                until(lambda: in_use(qm.status(), "flight streams") == 1)
            with connect(target, *login(USER)) as bob:
                assert is_refused(bob)
            alice.stage([ROWS], ROWS.schema, writer="w", queue="open")


def test_one_account_does_not_hold_all_calls(tmp_path: Path) -> None:
    """Users of one computer have one address. A poll that waits holds a call."""
    with victim(tmp_path, "max_calls = 4\n", flight=True) as target, ThreadPoolExecutor(2) as pool:
        make_queue(target)
        with connect(target, *login(USER)) as bob, connect(target, *login(ADMINISTRATOR)) as alice:
            poll = {"queues": [{"queue": "open", "after": 0}], "timeout_ms": 60_000}
            waits = [pool.submit(bob.act, "poll", **poll) for _ in range(2)]
            with lanner.connect(data=target.data) as qm:
                until(lambda: in_use(qm.status(), "flight calls") == 2)
                assert alice.info()["user"] == ADMINISTRATOR.user
                with pytest.raises(flight_errors.TooBusy):
                    bob.info()
                qm.open("open").send("the end of the polls")
            assert all(one.result() for one in waits)


def test_one_account_does_not_hold_all_connections_of_an_address(tmp_path: Path) -> None:
    settings = "max_connections_per_peer = 4\n"
    with victim(tmp_path, settings, flight=True) as target, contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(target, *login(USER))) for _ in range(3)]
        for one in held:
            assert one.info()["user"] == USER.user
        with connect(target, *login(USER)) as bob, pytest.raises(flight_errors.TooBusy):
            bob.info()
        until(lambda: gets_in(target, ADMINISTRATOR))
        held[0].close()
        until(lambda: gets_in(target, USER))


def gets_in(target: Victim, who: Credentials) -> bool:
    """Whether a user gets one more connection. The service may not have seen others end yet."""
    with contextlib.suppress(flight_errors.TooBusy, ServiceNotAvailable), connect(target, *login(who)) as queues:
        return bool(queues.info()["user"] == who.user)
    return False


def in_use(status: dict[str, Any], resource: str) -> object:
    """Return how much of a resource the queue manager counts."""
    return next(one["used"] for one in status["limits"] if one["resource"] == resource)


def is_refused(queues: Queues) -> bool:
    """Whether a user gets no further stream."""
    try:
        queues.stage([ROWS], ROWS.schema, writer="again", queue="open")
    except flight_errors.TooBusy as error:
        return "bob has 1 streams" in str(error)
    return False


def test_nobody_can_take_the_names_of_connections_to_come(target: Victim) -> None:
    """Every user of the machine sees the names that the front has bound, and may bind others."""
    with connect(target, *login(USER)) as bob:
        bob.info()
        seen = set(re.findall(r"@(lanner-[0-9a-f-]+)", Path("/proc/net/unix").read_text()))
        taken = [socket.socket(socket.AF_UNIX) for name in seen for _ in range(20)]
        try:
            for number, (name, one) in enumerate(zip(sorted(seen) * 20, taken, strict=True)):
                stem = name.rstrip("0123456789")
                following = int(name.removeprefix(stem) or 0) + 1 + number // len(seen)
                with contextlib.suppress(OSError):
                    one.bind(f"\0{stem}{following}")
            for _ in range(3):
                with connect(target, *login(USER)) as again:
                    assert again.info()["user"] == USER.user
        finally:
            for one in taken:
                one.close()


def test_the_socket_behind_the_port_is_of_the_service_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with victim(tmp_path, flight=True) as target:
            mode = (target.data / "flight.sock").stat().st_mode
    finally:
        os.umask(before)
    assert stat.S_IMODE(mode) & 0o077 == 0


def publish_under_many_names(queues: Queues) -> None:
    for number in range(10):
        queues.publish(f"writer {number}", 0, [])


@pytest.mark.parametrize("is_handshake", [True, False])
def test_a_dictionary_does_not_get_in(tmp_path: Path, is_handshake: bool) -> None:
    """Guessing passwords fails by the handshake and by the header of a call.

    It fails even though the right password is the last one tried.
    """

    def guess(password: str) -> bool:
        try:
            with fl.connect(made.listeners["flight"]) as caller:
                header = basic(ADMINISTRATOR.user, password)
                if is_handshake:
                    header = caller.authenticate_basic_token(ADMINISTRATOR.user, password)
                    if not header[1]:
                        return False
                options = fl.FlightCallOptions(headers=[header], timeout=2)
                return bool(list(caller.do_action(fl.Action("info", b""), options)))
        except (fl.FlightError, pa.ArrowException, LannerError):
            return False

    with victim(tmp_path, flight=True) as made:
        began = time.monotonic()
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(guess, [*[f"word{number}" for number in range(40)], ADMINISTRATOR.password]))
        assert not any(found)
        wrong = [line for line in made.log if "is wrong" in line or "without checking the password" in line]
        # A busy machine takes minutes, and each has lines of its own.
        minutes = 1 + int((time.monotonic() - began) / 60)
        assert 1 <= len(wrong) <= 3 * PER_PEER * minutes
        # Another user is not kept out.
        with connect(made, *login(USER)) as bob:
            assert bob.info()["user"] == USER.user


def login(who: Credentials) -> tuple[str, str]:
    return who.user, who.password


def basic(user: str, password: str) -> tuple[bytes, bytes]:
    return b"authorization", b"Basic " + base64.b64encode(f"{user}:{password}".encode())


@pytest.mark.parametrize("action", ["bounds", "measure", "position", "poll", "plan", "queues"])
def test_calls_that_compute_take_turns_with_the_users_others(tmp_path: Path, action: str) -> None:
    """A user's hundred calls at a time would leave a hundredth of the interpreter to all others."""
    runtime = Runtime(tmp_path / "data", local_settings("ALPHA"))
    with runtime.lock:
        runtime.engine.create_queue(runtime.engine.set_queue_defaults(r".\private$\open"))
    served = service.Service(runtime)
    alice, bob = (
        Identity(name, Sid.parse(f"S-1-5-21-1-2-3-{rid}"), is_administrator=True)
        for name, rid in (("alice", 1000), ("bob", 1001))
    )
    request: dict[str, object] = {"queue": "open"}
    if action == "position":
        request["time_ms"] = 0
    elif action == "poll":
        request = {"queues": [request]}
    body = json.dumps(request).encode()

    def call(user: Identity) -> object:
        if action == "plan":
            return served.plan(user, body)
        if action == "queues":
            return list(served.queues(user, "*"))
        return served.act(user, action, body, service.Client(lambda: False, lambda: None))

    gate = served._gates.of(bob)
    for _ in range(AT_A_TIME):
        gate.acquire()
    with ThreadPoolExecutor() as threads:
        his = threads.submit(call, bob)
        try:
            threads.submit(call, alice).result(30)
            assert not his.done()
        finally:
            gate.release()
        his.result(30)
    served.close()
    runtime.close()
