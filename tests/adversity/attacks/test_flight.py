"""The Flight service: callers without a name, other people's writers, publications without end, and guesses at passwords."""

from __future__ import annotations

import base64
import json
import os
import pwd
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import lanner
from lanner.errors import AccessDenied, InsufficientResources, LannerError
from lanner.rpc.security import Credentials
from lanner.security.log_lines import PER_PEER
from tests.adversity.attacks.victim import ADMINISTRATOR, USER, Victim, victim

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
fl = pytest.importorskip("pyarrow.flight")
client = pytest.importorskip("lanner.spark.flight.client")
flight_errors = pytest.importorskip("lanner.spark.flight.errors")

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
    """Whoever takes a name first does not take it from others, and drops nothing that they have staged under it."""
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
    """Only the service's own user and root can open the socket in it, whatever account they log on with."""
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


def publish_under_many_names(queues: Queues) -> None:
    for number in range(10):
        queues.publish(f"writer {number}", 0, [])


@pytest.mark.parametrize("is_handshake", [True, False])
def test_a_dictionary_does_not_get_in(tmp_path: Path, is_handshake: bool) -> None:
    """Neither by the handshake nor by the header of a call, although the right password is the last that is tried."""

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
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(guess, [*[f"word{number}" for number in range(40)], ADMINISTRATOR.password]))
        assert not any(found)
        wrong = [line for line in made.log if "is wrong" in line or "without a look" in line]
        assert 1 <= len(wrong) <= 3 * PER_PEER
        # Another user is not kept out.
        with connect(made, *login(USER)) as bob:
            assert bob.info()["user"] == USER.user


def login(who: Credentials) -> tuple[str, str]:
    return who.user, who.password


def basic(user: str, password: str) -> tuple[bytes, bytes]:
    return b"authorization", b"Basic " + base64.b64encode(f"{user}:{password}".encode())
