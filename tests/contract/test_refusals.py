"""Errors have the same class and the same text in every form.

Covered: quotas, sizes, sharing and a full disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lanner
import lanner.aio
from lanner import errors
from lanner.store.format import FORMAT
from tests.contract.forms import FORMS, Form, Place, new_queue, refused
from tests.contract.service import Service
from tests.store.test_opening import set_format

MAX_PACKET = 4_194_304
FULL_DISK = (
    "the disk of the data directory is full: recoverable messages are refused until there is room; receiving continues"
)


async def test_a_full_queue_says_which_quota_is_used_up_and_what_to_do(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm, quota_kb=10)
    await q.send(bytes(6000))
    text = (
        f"queue {q.path_name} is full: quota 10 KiB, used 6 KiB, message 5 KiB; "
        "receive or purge messages, or raise the quota"
    )
    await refused(errors.InsufficientResources, text, q.send(bytes(5000)))
    small, large = lanner.Message(body=b"x"), lanner.Message(body=bytes(5000))
    await refused(errors.InsufficientResources, text, q.send_many([small, large, b"never"]))
    # Those before the one that was refused are sent, and say so.
    assert small.id is not None
    assert large.id is None
    assert await q.count() == 2
    tq = await new_queue(qm, quota_kb=1, transactional=True)
    text = text.replace(q.path_name, tq.path_name).replace("quota 10 KiB, used 6", "quota 1 KiB, used 0")
    async with qm.transaction() as tx:
        await refused(errors.InsufficientResources, text, tq.send(bytes(5000), transaction=tx))


@contextlib.asynccontextmanager
async def limited(
    form: Form, data: Path, start_own: Callable[..., Service], setting: str, embedded: dict[str, int]
) -> AsyncIterator[lanner.aio.QueueManager]:
    """Return a queue manager with a quota of its own.

    The quota is in the settings of a service or of this process.
    """
    if form.is_remote:
        service = start_own(f"[quota]\n{setting}\n")
        async with await Place(form, data, service).connect() as qm:
            yield qm
    else:
        async with form.embedded(data, **dict[str, Any](embedded)) as qm:
            yield qm


async def test_a_full_queue_manager_says_which_quota_is_used_up_and_what_to_do(
    form: Form, tmp_path: Path, start_own: Callable[..., Service]
) -> None:
    async with limited(form, tmp_path / "data", start_own, "queue_manager_kb = 20", {"queue_manager_quota": 20}) as qm:
        q = await new_queue(qm)
        await q.send(bytes(16000))
        text = (
            "queue manager ALPHA is full: quota 20 KiB, used 15 KiB, message 5 KiB; "
            "receive or purge messages, or raise the quota"
        )
        await refused(errors.InsufficientResources, text, q.send(bytes(5000)))
        await q.receive(0)
        await q.send(bytes(5000))


async def test_full_memory_for_express_messages_says_what_its_limit_is_and_what_to_do(
    form: Form, tmp_path: Path, start_own: Callable[..., Service]
) -> None:
    text = (
        "the memory for express messages is full: limit 32 MiB by quota.express_mb, used 30 MiB, message 3907 KiB; "
        "receive or purge messages, send recoverable ones, or raise the limit"
    )
    async with limited(form, tmp_path / "data", start_own, "express_mb = 32", {"express_memory": 32 << 20}) as qm:
        q = await new_queue(qm)
        body = bytes(4_000_000)
        for _ in range(8):
            await q.send(body)
        await refused(errors.InsufficientResources, text, q.send(body))
        small, large = lanner.Message(body=b"x"), lanner.Message(body=body)
        await refused(errors.InsufficientResources, text, q.send_many([small, large]))
        # Those before the one that was refused are sent, and say so.
        assert small.id is not None
        assert large.id is None
        await q.send(lanner.Message(body=body, recoverable=True))
        await q.receive(0)
        await q.send(body)


async def test_the_largest_message_fits_and_what_is_larger_says_how_large_it_is(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    body = bytes(range(256)) * 16367 + bytes(48)
    assert len(body) == 4_190_000
    await q.send(lanner.Message(body=body, recoverable=True))
    assert (await q.peek(0)).body == body
    assert (await q.receive(0)).body == body
    tq = await new_queue(qm, transactional=True)
    async with qm.transaction() as tx:
        await tq.send(body, transaction=tx)
    async with qm.transaction() as tx:
        assert (await tq.receive(0, transaction=tx)).body == body
    for size in (5_000_000, 100_000_000):
        for send in (q.send(bytes(size)), q.send_many(["before", bytes(size)])):
            with pytest.raises(errors.InsufficientResources) as raised:
                await send
            text = (
                rf"the message makes a packet of (\d+) bytes, at most {MAX_PACKET} can be sent \(body of {size} bytes\)"
            )
            found = re.fullmatch(text, raised.value.args[0])
            assert found is not None, raised.value
            assert 0 < int(found[1]) - size < 1000
    # The connection is as good as before.
    await q.send("small")


async def test_an_exclusive_reader_keeps_others_out(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send_many(["a", "b"])
    text = f"queue {q.path_name} is open elsewhere in a way that excludes this"
    async with qm.open(q.name, exclusive=True) as mine:
        for use in (q.receive(0), q.receive_many(1), q.purge(), qm.open(q.name, exclusive=True).receive(0)):
            await refused(errors.SharingViolation, text, use)
        with pytest.raises(errors.SharingViolation):
            async with qm.open(q.name, exclusive=True):
                pytest.fail("it is open exclusively")
        # Others may send and peek.
        await q.send("c")
        assert (await q.peek(0)).body == "a"
        assert (await mine.receive(0)).body == "a"
    assert (await q.receive(0)).body == "b"


@contextlib.contextmanager
def full_disk(place: Place, data: Path) -> Iterator[None]:
    """Keep the files of a queue manager from growing, as a full disk does."""
    process = 0 if place.service is None else place.service.process.pid
    size = sum(file.stat().st_blocks * 512 for file in data.iterdir())
    _, most = before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, before)


async def test_a_full_disk_refuses_sends_and_receives_continue(
    form: Form, tmp_path: Path, start_own: Callable[..., Service]
) -> None:
    place = Place(form, tmp_path / "data", start_own() if form.is_remote else None)
    async with place.manager() as qm:
        q = await new_queue(qm)
        message = lanner.Message(body=bytes(1_000_000), recoverable=True)
        await q.send(message)
        refusal: errors.StatusError | None = None
        sent = 1
        with full_disk(place, place.data_of(qm)):
            while refusal is None:
                assert sent < 1000, "the disk never became full"
                try:
                    await q.send(message)
                    sent += 1
                except errors.StatusError as error:
                    refusal = error
            assert (type(refusal), refusal.args[0]) == (errors.InsufficientResources, FULL_DISK)
            assert (await q.receive(0)).body == message.body
        assert await q.count() == sent - 1


# Queue managers in this process
# -------------------------------------------------------------------------------------

EMBEDDED = pytest.mark.parametrize("form", [form for form in FORMS if not form.is_remote], ids=str, indirect=True)


@EMBEDDED
async def test_a_directory_has_one_queue_manager(form: Form, tmp_path: Path) -> None:
    async with form.embedded(tmp_path / "data") as qm:
        with pytest.raises(errors.StoreLocked) as raised:
            async with form.embedded(tmp_path / "data"):
                pytest.fail("it is open already")
        assert raised.value.args[0] == (
            f"{tmp_path / 'data'} is open in process {os.getpid()}: "
            "stop that process, or give this one another data directory"
        )
        await new_queue(qm)


@EMBEDDED
async def test_a_directory_that_a_newer_version_wrote_is_left_alone(form: Form, tmp_path: Path) -> None:
    async with form.embedded(tmp_path / "data") as qm:
        await new_queue(qm)
    set_format(tmp_path / "data", 1000)
    with pytest.raises(errors.StoreVersion) as raised:
        async with form.embedded(tmp_path / "data"):
            pytest.fail("it cannot be read")
    assert raised.value.args[0] == (
        f"{tmp_path / 'data'} is in store format 1000, this version knows formats up to {FORMAT}: "
        "use the newer version of the program that wrote it"
    )


async def test_an_async_queue_manager_is_open_in_its_block_only(tmp_path: Path) -> None:
    qm = lanner.aio.QueueManager(tmp_path / "data", "ALPHA")
    uses: list[Callable[[], object]] = [
        lambda: qm.name,
        lambda: qm.identifier,
        lambda: qm.open("q"),
        qm.transaction,
        lambda: qm.create_queue("q").send(None),
        lambda: qm.queues().send(None),
        lambda: qm.status().send(None),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match=r"^the queue manager is not open: enter its `async with` block$"):
            use()
    await qm.close()


def test_a_blocking_queue_manager_is_open_without_a_block(tmp_path: Path) -> None:
    qm = lanner.QueueManager(tmp_path / "data", "ALPHA")
    qm.create_queue("q").send("x")
    assert qm.open("q").receive(0).body == "x"
    qm.close()
    with lanner.QueueManager(tmp_path / "data") as qm:
        assert qm.open("q").exists()


async def test_an_exclusive_queue_that_is_forgotten_is_free_again(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send("a")

    async def use() -> None:
        mine = qm.open(q.name, exclusive=True)
        assert await mine.receive_many(0) == []
        async with mine.receiving(1, 0) as held:
            assert len(held) == 1
        with pytest.raises(errors.SharingViolation):
            await q.receive(0)

    await use()
    # Soon: the thread of a blocking form may have the object a moment longer.
    for _ in range(100):
        try:
            assert await q.receive_many(1, 0.1) == []
        except errors.SharingViolation:
            continue
        return
    pytest.fail("it is open for ever")
