"""`lanner.connect` and `lanner.aio.connect`: a queue manager that is not in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.client import remote, remote_aio
from lanner.client.remote_session import CONNECT_TIMEOUT, Authentication, Target

if TYPE_CHECKING:
    from pathlib import Path


def connect(
    host: str | None = None,
    user: str | None = None,
    password: str | None = None,
    data: str | Path | None = None,
    *,
    domain: str = "",
    port: int | None = None,
    authentication: Authentication = "ntlm",
    timeout: float = CONNECT_TIMEOUT,
) -> remote.QueueManager:
    r"""Connect to a queue manager, Lanner or Windows, and use its queues as those of `lanner.QueueManager`.

    >>> with lanner.connect("beta", "alice", "secret") as qm:
    ...     print(qm.open(r".\private$\orders").receive(timeout=1.0).body)

    Without a `host` it is the one that runs on this machine on the directory `data` (else $LANNER_DATA, else ./data), and the kernel
    says who you are. Without a `user` you are nobody, and may do what a queue allows everyone. `port` None: the one that the
    endpoint mapper tells, or 2103. `timeout` is how many seconds the connection may take.
    """
    target = Target.of(
        host, user, password, data, domain=domain, port=port, authentication=authentication, timeout=timeout
    )
    return remote.QueueManager(target)


async def connect_aio(
    host: str | None = None,
    user: str | None = None,
    password: str | None = None,
    data: str | Path | None = None,
    *,
    domain: str = "",
    port: int | None = None,
    authentication: Authentication = "ntlm",
    timeout: float = CONNECT_TIMEOUT,  # noqa: ASYNC109 (the same word as `connect`)
) -> remote_aio.QueueManager:
    """The same for asyncio: `async with await lanner.aio.connect("beta") as qm: ...`."""
    target = Target.of(
        host, user, password, data, domain=domain, port=port, authentication=authentication, timeout=timeout
    )
    return await remote_aio.QueueManager.connect(target)
