"""The routes: each does what its command does, and an error is a problem document."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import lanner
from lanner.model.errors import QueueNotFound
from tests.http.service import HttpService

API = "/api/v1"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpService]:
    made = HttpService(tmp_path_factory.mktemp("http") / "alpha", "[events]\nenabled = true\n")
    try:
        yield made
    finally:
        made.close()


def _queue(alice: httpx.Client, name: str, **attributes: object) -> str:
    """Make a queue; the path of its route."""
    made = alice.post(f"{API}/queues", json={"name": f"private$\\{name}", **attributes})
    assert made.status_code == 201, made.text
    return f"{API}/queues/private$%5C{name}"


def _send(alice: httpx.Client, path: str, *labels: str) -> None:
    for label in labels:
        answer = alice.post(f"{path}/messages", json={"body": f"body of {label}", "label": label, "recoverable": True})
        assert answer.status_code == 201, answer.text


def _messages(alice: httpx.Client, path: str, **given: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = alice.get(f"{path}/messages", params=given).json()["messages"]  # type: ignore[arg-type]
    return found


def test_a_queue_is_made_changed_shown_and_deleted(alice: httpx.Client) -> None:
    path = _queue(alice, "life", label="one", quota_kb=100, journaling=True)
    found = alice.get(path).json()
    assert (found["label"], found["quota_kb"], found["journaling"]) == ("one", 100, True)
    changed = alice.patch(path, json={"label": "two", "quota_kb": None, "privacy_level": "body"}).json()
    assert (changed["label"], changed["quota_kb"], changed["privacy_level"]) == ("two", None, "body")
    assert alice.patch(path, json={}).status_code == 400
    assert alice.patch(path, json={"colour": "red"}).status_code == 400
    assert alice.delete(path).status_code == 204
    assert alice.get(path).status_code == 404


def test_queues_come_in_pages(alice: httpx.Client) -> None:
    for number in range(5):
        _queue(alice, f"paged-{number}", label=f"{9 - number}")
    page: dict[str, str | int] = {"page": 2, "page_size": 2, "sort": "label", "columns": "label"}
    for name in ("paged-*", "paged", "*PAGED-?", "private$\\paged-*"):
        found = alice.get(f"{API}/queues", params={"name": name, **page}).json()
        assert (found["total"], found["items"]) == (5, [{"label": "7"}, {"label": "8"}]), name
    assert alice.get(f"{API}/queues", params={"name": "aged-*", **page}).json()["total"] == 0
    assert alice.get(f"{API}/queues", params={"sort": "colour"}).json()["title"] == "InvalidParameter"


def test_an_error_has_the_status_and_the_text_of_python(service: HttpService, alice: httpx.Client) -> None:
    answer = alice.get(f"{API}/queues/private$%5Cnone")
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    with lanner.connect(data=service.data) as qm, pytest.raises(QueueNotFound) as caught:
        qm.open(r".\private$\none").attributes()
    assert problem["detail"] == caught.value.args[0]
    assert problem["msmq_status"] == f"{QueueNotFound.status & 0xFFFF_FFFF:#010x}"
    assert problem["status"] == 404


def test_messages_are_sent_and_looked_at(alice: httpx.Client) -> None:
    path = _queue(alice, "looked")
    _send(alice, path, "first", "second", "third")
    octets = base64.b64encode(b"\x00\xff").decode()
    alice.post(f"{path}/messages", json={"body": octets, "body_encoding": "base64", "label": "octets"})
    assert [one["label"] for one in _messages(alice, path)] == ["first", "second", "third", "octets"]
    assert [one["label"] for one in _messages(alice, path, label="ir")] == ["first", "third"]
    assert [one["label"] for one in _messages(alice, path, body="SECOND")] == ["second"]
    assert _messages(alice, path, label="octets")[0]["body"] == octets
    assert [one["label"] for one in _messages(alice, path, filter="recoverable=no")] == ["octets"]
    assert _messages(alice, path, until="2000-01-01") == []
    assert len(_messages(alice, path, **{"class": "Normal"})) == 4
    misspelt = alice.get(f"{path}/messages", params={"class": "nack_bad"}).json()["detail"]
    assert "class is compared with a number, or one of normal, report, ack_reach_queue" in misspelt
    assert _messages(alice, path, filter="class~nack_bad") == []
    one = alice.get(f"{path}/messages", params={"limit": 1}).json()
    assert (len(one["messages"]), one["scanned"]) == (1, 1)
    rest = _messages(alice, path, after=one["after"])
    assert [message["label"] for message in rest] == ["second", "third", "octets"]
    lookup_id = rest[0]["lookup_id"]
    assert alice.get(f"{path}/messages/{lookup_id}").json()["body"] == "body of second"
    assert alice.delete(f"{path}/messages/{lookup_id}").status_code == 204
    assert alice.get(f"{path}/messages/{lookup_id}").status_code == 404
    assert alice.delete(f"{path}/messages").json() == {"messages": 3}
    assert alice.post(f"{path}/messages", json={"body": "%", "body_encoding": "base64"}).status_code == 400


def test_a_search_stops_after_so_many_messages(alice: httpx.Client) -> None:
    path = _queue(alice, "deep")
    _send(alice, path, "a", "b", "c", "wanted")
    found = alice.get(f"{path}/messages", params={"label": "wanted", "scan": 2}).json()
    assert (found["messages"], found["scanned"]) == ([], 2)
    found = alice.get(f"{path}/messages", params={"label": "wanted", "scan": 2, "after": found["after"]}).json()
    assert [one["label"] for one in found["messages"]] == ["wanted"]


def test_messages_are_moved_copied_and_sent_again(alice: httpx.Client) -> None:
    path, other = _queue(alice, "from"), _queue(alice, "to", transactional=True)
    _send(alice, path, "one", "two", "three", "four")
    one, two, *_ = [message["lookup_id"] for message in _messages(alice, path)]
    assert alice.post(f"{path}/messages/{one}/move", json={"target": "private$\\to"}).json() == {"messages": 1}
    assert "id" in alice.post(f"{path}/messages/{two}/copy", json={"target": "private$\\to"}).json()
    changes = {"target": "private$\\to", "changes": {"label": "edited", "body": "other"}}
    assert "id" in alice.post(f"{path}/messages/{two}/resend", json=changes).json()
    many = {"target": "private$\\to", "filter": ["label~three"]}
    assert alice.post(f"{path}/messages/copy", json=many).json() == {"messages": 1}
    assert alice.post(f"{path}/messages/move", json=many).json() == {"messages": 1}
    assert [message["label"] for message in _messages(alice, path)] == ["four"]
    labels = [message["label"] for message in _messages(alice, other)]
    assert labels == ["one", "two", "edited", "three", "three"]
    assert alice.post(f"{path}/messages/move", json={"target": "private$\\to"}).status_code == 400


def test_a_message_goes_to_a_transactional_queue(alice: httpx.Client) -> None:
    path = _queue(alice, "unit", transactional=True)
    _send(alice, path, "in a transaction")
    assert _messages(alice, path)[0]["transactional"] is True


def test_access_is_shown_and_changed(alice: httpx.Client, bob: httpx.Client) -> None:
    path = _queue(alice, "shared")
    _send(alice, path, "x")
    assert bob.get(f"{path}/messages").status_code == 403
    changed = alice.post(f"{path}/access", json={"verb": "grant", "who": "bob", "rights": ["receive"]}).json()
    assert "bob" in [entry["account"] for entry in changed["entries"]]
    assert bob.get(f"{path}/messages").status_code == 200
    alice.post(f"{path}/access", json={"verb": "revoke", "who": "bob"})
    assert bob.get(f"{path}/messages").status_code == 403
    sddl = alice.get(f"{path}/access").json()["sddl"]
    assert alice.post(f"{path}/access", json={"verb": "set", "sddl": sddl}).json()["sddl"] == sddl
    assert alice.post(f"{path}/access", json={"verb": "grant"}).status_code == 400


def test_an_outgoing_queue_is_shown_and_steered(service: HttpService, alice: httpx.Client) -> None:
    far = r"DIRECT=TCP:127.255.255.9\private$\far"
    with lanner.connect(data=service.data) as qm:
        qm.open(far).send(lanner.Message(body="x", recoverable=True))
    path = f"{API}/outgoing/DIRECT%3DTCP:127.255.255.9%5Cprivate$%5Cfar"
    for verb, state in (("pause", "ONHOLD"), ("resume", None)):
        assert alice.post(f"{path}/{verb}").status_code == 204
        (found,) = [one for one in alice.get(f"{API}/outgoing").json() if one["name"] == far]
        assert found["messages"] == 1
        assert state is None or state in str(found["state"]).upper()


def test_a_dead_letter_has_a_reason_and_is_returned(service: HttpService, alice: httpx.Client) -> None:
    path = _queue(alice, "mortal")
    with lanner.connect(data=service.data) as qm:
        message = lanner.Message(body="x", label="late", use_dead_letter_queue=True, time_to_be_received=0.1)
        message.recoverable = True
        qm.open(r".\private$\mortal").send(message)
    for _ in range(100):
        letters = [one for one in alice.get(f"{API}/deadletters").json() if one["label"] == "late"]
        if letters:
            break
        time.sleep(0.05)
    assert [one["reason"] for one in letters] == ["it was not received in time"]
    assert "id" in alice.post(f"{API}/deadletters/{letters[0]['lookup_id']}/return").json()
    assert "late" not in [one["label"] for one in alice.get(f"{API}/deadletters").json()]
    assert alice.get(path).status_code == 200


def test_users_are_administered_and_the_audit_log_has_who_did_it(service: HttpService, alice: httpx.Client) -> None:
    made = alice.post(f"{API}/users", json={"name": "carol", "password": "long enough"})
    assert made.status_code == 201
    assert alice.patch(f"{API}/users/carol", json={"role": "administrator"}).json()["administrator"] is True
    assert alice.delete(f"{API}/users/carol").status_code == 204
    assert alice.delete(f"{API}/users/carol").status_code == 400
    lines = [json.loads(line) for line in (service.data / "audit.log").read_text().splitlines()]
    (added,) = [line for line in lines if line["event"] == "add user"]
    assert (added["who"], added["from"], added["user"]) == ("alice", "http 127.0.0.1", "carol")
    assert "long enough" not in json.dumps(lines)


def test_definitions_make_the_same_queues_elsewhere(service: HttpService, alice: httpx.Client, tmp_path: Path) -> None:
    _queue(alice, "defined", label="as it was", quota_kb=77, transactional=True)
    told = alice.get(f"{API}/definitions").json()
    assert "password" not in json.dumps(told["users"])
    other = HttpService(tmp_path / "beta")
    try:
        with other.client("alice") as client:
            wanted = [one for one in told["queues"] if one["name"].endswith("defined")]
            for kind in ("created", "changed"):
                done = client.post(f"{API}/definitions", json={"queues": wanted}).json()
                assert done["refused"] == []
                assert done[kind] == [r".\private$\defined"]
            found = client.get(f"{API}/queues/private$%5Cdefined").json()
            assert (found["label"], found["quota_kb"], found["transactional"]) == ("as it was", 77, True)
            new = client.post(f"{API}/definitions", json={"users": [{"name": "dora"}]}).json()
            assert "add a `password`" in new["refused"][0]["detail"]
    finally:
        other.close()


def test_events_are_streamed_and_one_message_is_traced(alice: httpx.Client) -> None:
    path = _queue(alice, "followed")
    with alice.stream("GET", f"{API}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        next(lines)
        sent = alice.post(f"{path}/messages", json={"body": "x", "recoverable": True}).json()["id"]
        for line in lines:
            if line.startswith("data:") and sent in line.replace("\\\\", "\\"):
                event = json.loads(line.removeprefix("data:"))
                break
    assert event["event"] == "arrived"
    alice.delete(f"{path}/messages")
    for _ in range(50):
        told = alice.get(f"{API}/events/trace", params={"message": sent}).json()
        kinds = [one["event"] for one in told["events"]]
        if len(kinds) > 1:
            break
        time.sleep(0.05)
    assert kinds == ["arrived", "purged"]
    # A long log is looked through in several answers.
    more = {"message": sent, "after": told["events"][0]["number"]}
    assert [one["event"] for one in alice.get(f"{API}/events/trace", params=more).json()["events"]] == ["purged"]


def test_metrics_are_those_of_the_listener(alice: httpx.Client) -> None:
    answer = alice.get(f"{API}/metrics", params={"name[]": "windows_msmq_messages_in_queue"})
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert lines[1] == "# TYPE windows_msmq_messages_in_queue gauge"
    assert {line.partition("{")[0] for line in lines if not line.startswith("#")} == {"windows_msmq_messages_in_queue"}


def test_the_overview_of_a_user_is_asked_for_once_a_second(alice: httpx.Client) -> None:
    before = alice.get(f"{API}/overview").json()
    _queue(alice, "unseen")
    assert alice.get(f"{API}/overview").json()["queues"] in (before["queues"], before["queues"] + 1)


def test_a_session_has_the_address_of_its_user(alice: httpx.Client) -> None:
    """All users of the HTTP process come to the queue manager from that process."""
    found = alice.get(f"{API}/sessions").json()
    assert ("alice", "http 127.0.0.1") in [(one["user"], one["address"]) for one in found], found


@pytest.mark.parametrize("path", ["peers", "sessions", "transactions", "status", "settings", "tokens"])
def test_what_there_is_to_see_is_shown(alice: httpx.Client, path: str) -> None:
    assert alice.get(f"{API}/{path}").status_code == 200


def test_a_misspelt_parameter_is_refused(alice: httpx.Client) -> None:
    path = _queue(alice, "misspelt")
    answer = alice.get(f"{path}/messages", params={"lable": "x"})
    assert (answer.status_code, answer.json()["title"]) == (400, "InvalidParameter")
    assert "unknown parameter 'lable': one of after, " in answer.json()["detail"]
    assert "this address has none" in alice.get(f"{API}/whoami", params={"x": 1}).json()["detail"]


def test_the_routes_are_described(alice: httpx.Client) -> None:
    document = alice.get("/api/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert f"{API}/queues/{{name}}/messages/{{lookup_id}}/resend" in document["paths"]


def test_the_description_has_the_log_ons_and_the_problems(alice: httpx.Client) -> None:
    """A client generated from the description logs on, and reads the errors that really come."""
    document = alice.get("/api/openapi.json").json()
    components = document["components"]
    ways = components["securitySchemes"]
    assert {(one["type"], one.get("scheme")) for one in ways.values()} == {
        ("http", "bearer"),
        ("http", "basic"),
        ("apiKey", None),
    }
    assert document["security"] == [{name: []} for name in ways]
    open_to_all = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            failure = operation["responses"]["default"]["content"]["application/problem+json"]["schema"]
            assert failure == {"$ref": "#/components/schemas/Problem"}
            assert "422" not in operation["responses"], (method, path)
            if operation.get("security") == []:
                open_to_all.add(f"{method} {path.removeprefix(API)}")
    assert open_to_all == {"post /session", "get /health/live", "get /health/ready"}
    members = components["schemas"]["Problem"]["properties"]
    for answer in (alice.get(f"{API}/queues/private$%5Cnone"), alice.get(f"{API}/queues", params={"page": 0})):
        assert set(answer.json()) <= set(members)


def test_a_name_with_a_null_is_refused_by_its_name(alice: httpx.Client) -> None:
    """RPC carries the text of the error in a string that ends at a null."""
    answer = alice.delete(f"{API}/users/%00")
    assert (answer.status_code, answer.json()["detail"]) == (400, "there is no user \\x00")


def test_a_body_that_is_no_json_is_refused_in_words(alice: httpx.Client) -> None:
    answer = alice.post(f"{API}/queues", content='{"name": ', headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["title"]) == (400, "InvalidParameter")
    assert answer.json()["detail"].startswith("body, character 9: not JSON: ")
    form = alice.post(f"{API}/queues", data={"name": "private$\\x"})
    assert form.status_code == 400
    assert "Content-Type" in form.json()["detail"]
