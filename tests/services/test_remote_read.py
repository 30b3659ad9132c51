"""Remote read as a client sees it: opening, the two phases of a receive, closing (MS-MQQP 3.1.4.1 to 3.1.4.4)."""

from __future__ import annotations

import pytest

from lanner.rpc.ndr import NULL_HANDLE, Syntax
from tests.services.remote_read_peer import Site, served


@pytest.mark.parametrize("syntax", [Syntax.NDR20, Syntax.NDR64])
@served
async def test_open_receive_end_close(site: Site, syntax: Syntax) -> None:
    site.send(b"one", b"two")
    q = await site.opened(syntax=syntax)
    read = await q.read()
    assert read.status == 0
    assert read.context != NULL_HANDLE
    assert read.body == b"one"
    assert await q.end(read) == 0
    assert site.count() == 1
    assert await q.receive() == b"two"
    assert await q.close() == 0
    assert len(site.queues) == 0
