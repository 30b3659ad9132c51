"""The HTTP process.

It starts at the first connection, relies on the queue manager for users, and answers with problem
documents.
"""

from __future__ import annotations

import httpx

from tests.http.service import HttpService


def test_the_overview_is_the_users_own(alice: httpx.Client, bob: httpx.Client) -> None:
    assert alice.get("/api/v1/overview").json()["administrator"] is True
    of_bob = bob.get("/api/v1/overview").json()
    assert (of_bob["user"], of_bob["administrator"], of_bob["queues"]) == ("bob", False, 0)
    assert "outgoing_queues" not in of_bob


def test_who_does_not_log_on_learns_nothing(service: HttpService) -> None:
    with service.client() as nobody:
        answer = nobody.get("/api/v1/queues")
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_another_name_of_this_address_is_refused(service: HttpService) -> None:
    with service.client("alice") as client:
        answer = client.get("/api/v1/overview", headers={"Host": "evil.example"})
    assert answer.status_code == 421
