"""`lanner serve` with its HTTP process, and clients of it.

Alice is an administrator, bob is not.
"""

from __future__ import annotations

import httpx

from tests.contract.service import USERS, Service


class HttpService(Service):
    """A service, and how to reach it by HTTP."""

    @property
    def url(self) -> str:
        return f"http://{self.address}:15801"

    def client(self, user: str | None = None, *, token: str | None = None) -> httpx.Client:
        """Return a client that is logged on as a user, uses a token, or is anonymous."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        auth = None if user is None else (user, USERS[user])
        return httpx.Client(base_url=self.url, auth=auth, headers=headers, timeout=30.0, trust_env=False)
