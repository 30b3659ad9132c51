"""`distributed`: queues of two queue managers and a database, in one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest

import lanner
import lanner.aio
from lanner import errors
from tests.contract.covering import covers
from tests.contract.forms import FORMS, REMOTE_FORMS, Form, Place, blocking, bodies, new_queue, refused
from tests.contract.proxy import Proxy
from tests.contract.service import Service
from tests.contract.test_lost_connections import through
from tests.contract.test_transactions import filled
from tests.postgresql import PostgreSql, postgresql


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSql]:
    with postgresql() as started:
        yield started


@pytest.fixture
def table(server: PostgreSql) -> Iterator[str]:
    """A table of numbers, which are unique, but only at the end of a transaction."""
    name = f"t{uuid.uuid4().hex}"
    server.execute(f"CREATE TABLE {name} (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    yield name
    server.execute(f"DROP TABLE {name}")


@asynccontextmanager
async def connected(server: PostgreSql) -> AsyncIterator[psycopg.Connection[Any]]:
    """Connect as a program does; the driver blocks."""
    connection: psycopg.Connection[Any] = await asyncio.to_thread(lambda: psycopg.connect(server.dsn))
    try:
        yield connection
    finally:
        await asyncio.to_thread(connection.close)


def insert(connection: psycopg.Connection[Any], table: str, number: int) -> None:
    connection.execute(f"INSERT INTO {table} VALUES (%s)".encode(), (number,))


def numbers(server: PostgreSql, table: str) -> list[object]:
    return [number for (number,) in server.execute(f"SELECT id FROM {table} ORDER BY id")]


class Steps(logging.Handler):
    """Calls back before a step of a transaction is done."""

    def __init__(self, step: str, work: Callable[[], object]) -> None:
        super().__init__(logging.DEBUG)
        self._step, self._work = step, work

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().endswith(f": {self._step}"):
            self._work()


@contextlib.contextmanager
def before(form: Form, step: str, work: Callable[[], object]) -> Iterator[None]:
    """Do something before a step."""
    log = logging.getLogger(f"lanner.client.{'_async' if form.is_async else '_sync'}.distributed")
    handler, level = Steps(step, work), log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


@covers(
    "distributed", "DistributedTransaction.identifier", "DistributedTransaction.is_over", "DistributedTransaction.unit",
    "DistributedTransaction.commit", "DistributedTransaction.outstanding",
)  # fmt: skip
async def test_a_commit_does_everything_everywhere(
    place: Place, qm: lanner.aio.QueueManager, tmp_path: Path, server: PostgreSql, table: str
) -> None:
    source = await filled(qm, "7")
    async with place.form.embedded(tmp_path / "beta", "BETA") as beta, connected(server) as connection:
        target = await new_queue(beta, transactional=True)
        async with place.form.distributed(qm, {"beta": beta, "ledger": connection}) as tx:
            assert str(uuid.UUID(tx.identifier)) == tx.identifier
            assert repr(tx) == f"<DistributedTransaction {tx.identifier} of ALPHA>"
            message = await source.receive(0, transaction=tx)
            insert(connection, table, int(message.body))
            await target.send(message.body, transaction=tx)
            before_the_end = tx.is_over
            assert numbers(server, table) == []
            assert await bodies(target) == []
            await tx.commit()
        assert (before_the_end, tx.is_over) == (False, True)
        assert tx.outstanding == []
        assert (await bodies(source), await bodies(target), numbers(server, table)) == ([], ["7"], [7])
        assert await qm.transactions() == await beta.transactions() == server.prepared() == []


@covers("DistributedTransaction.put")
async def test_what_was_put_into_it_is_sent_everywhere_by_the_commit(
    place: Place, qm: lanner.aio.QueueManager, tmp_path: Path
) -> None:
    here = await new_queue(qm, transactional=True)
    async with place.form.embedded(tmp_path / "beta", "BETA") as beta:
        there = await new_queue(beta, transactional=True)
        async with place.form.distributed(qm, {"beta": beta}) as tx:
            tx.put(here, "a")
            tx.put(there, "b")
            assert (await bodies(here), await bodies(there)) == ([], [])
        assert (await bodies(here), await bodies(there)) == (["a"], ["b"])
        async with place.form.distributed(qm, {"beta": beta}) as tx:
            tx.put(there, "c")
            tx.put(qm.open("missing"), "d")
            with pytest.raises(errors.QueueNotFound):
                await tx.commit()
        assert tx.is_over
        assert await bodies(there) == ["b"]


@covers("DistributedTransaction.abort")
@pytest.mark.parametrize("is_error", [True, False])
async def test_an_abort_undoes_everything_everywhere(
    place: Place, qm: lanner.aio.QueueManager, tmp_path: Path, server: PostgreSql, table: str, *, is_error: bool
) -> None:
    """By hand, or because the block has raised; the connection can be used again."""
    source = await filled(qm, "7")
    async with place.form.embedded(tmp_path / "beta", "BETA") as beta, connected(server) as connection:
        target = await new_queue(beta, transactional=True)
        with contextlib.suppress(ZeroDivisionError):
            async with place.form.distributed(qm, {"beta": beta, "ledger": connection}) as tx:
                await source.receive(0, transaction=tx)
                insert(connection, table, 7)
                await target.send("7", transaction=tx)
                if is_error:
                    raise ZeroDivisionError
                await tx.abort()
        assert (await bodies(source), await bodies(target), numbers(server, table)) == (["7"], [], [])
        text = f"transaction {tx.identifier} has ended"
        await refused(errors.TransactionSequence, text, tx.abort())
        async with place.form.distributed(qm, {"ledger": connection}):
            insert(connection, table, 8)
        assert numbers(server, table) == [8]


@covers("DistributedTransaction.commit: TransactionAborted")
async def test_what_one_cannot_commit_happens_nowhere(
    place: Place, qm: lanner.aio.QueueManager, server: PostgreSql, table: str
) -> None:
    """A constraint that the database checks when it prepares."""
    source = await filled(qm, "7")
    async with connected(server) as connection:
        tx = place.form.distributed(qm, {"ledger": connection})

        async def insert_twice() -> None:
            async with tx:
                await source.receive(0, transaction=tx)
                for _ in range(2):
                    insert(connection, table, 7)
                await tx.commit()

        with pytest.raises(errors.TransactionAborted) as caught:
            await insert_twice()
        assert re.match(
            rf"distributed transaction {tx.identifier} was aborted: resource ledger: preparing: duplicate key value",
            str(caught.value),
        )
    assert (await bodies(source), numbers(server, table), server.prepared()) == (["7"], [], [])
    assert await qm.transactions() == []


async def test_one_queue_manager_alone_commits_in_one_phase(place: Place, qm: lanner.aio.QueueManager) -> None:
    """Its commit is the decision: nothing is prepared, and there is nothing to forget."""
    source, steps = await filled(qm, "a"), []
    with (
        before(place.form, "committing alone", lambda: steps.append(1)),
        before(place.form, "preparing .", lambda: steps.append(2)),
    ):
        async with place.form.distributed(qm, {}) as tx:
            await source.receive(0, transaction=tx)
    assert steps == [1]
    assert await bodies(source) == []


async def test_an_empty_transaction_does_nothing(place: Place, qm: lanner.aio.QueueManager) -> None:
    async with place.form.distributed(qm, {}) as tx:
        pass
    assert tx.is_over


async def test_what_is_not_part_of_it_is_refused(place: Place, qm: lanner.aio.QueueManager, tmp_path: Path) -> None:
    q = await new_queue(qm, transactional=True)
    async with place.form.embedded(tmp_path / "beta", "BETA") as beta:
        other = await new_queue(beta, transactional=True)
        tx = place.form.distributed(qm, {})
        block = "`async with`" if place.form.is_async else "`with`"
        text = f"transaction {tx.identifier} has not begun: enter its {block} block"
        await refused(errors.TransactionSequence, text, q.send("a", transaction=tx))
        async with tx:
            text = f"BETA takes no part in distributed transaction {tx.identifier}: name it among its resources"
            await refused(errors.TransactionUsage, text, other.send("a", transaction=tx))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "resource '': 1 to 64 letters, digits, dots, - and _, and a letter or a digit first"),
        (".", "resource '.': this is the name of the coordinator's own queue manager"),
        (
            "sqlite",
            "resource sqlite: object is no connection of PEP 249 with two-phase commit: it has no "
            + "xid, tpc_begin, tpc_prepare, tpc_commit, tpc_rollback, tpc_recover",
        ),
    ],
)
async def test_a_resource_has_a_name_and_two_phases(
    place: Place, qm: lanner.aio.QueueManager, name: str, text: str
) -> None:
    with pytest.raises(errors.InvalidParameter) as caught:
        place.form.distributed(qm, {name: object()})
    assert caught.value.args[0] == text


async def test_a_connection_with_an_open_transaction_is_refused(
    place: Place, qm: lanner.aio.QueueManager, server: PostgreSql, table: str
) -> None:
    async with connected(server) as connection:
        insert(connection, table, 1)
        text = "resource open: its connection has a transaction open: commit it or roll it back first"
        tx = place.form.distributed(qm, {"open": connection})
        await refused(errors.TransactionAborted, text, tx.__aenter__())
        connection.commit()
    assert numbers(server, table) == [1]


async def test_a_resource_that_is_gone_after_the_decision_hears_of_it_later(
    place: Place, qm: lanner.aio.QueueManager, server: PostgreSql, table: str
) -> None:
    """The transaction is committed.

    The next transaction with that resource passes the commit on to the database.
    """
    source = await filled(qm, "7")
    async with connected(server) as connection:
        with before(place.form, "committing ledger", connection.close):
            async with place.form.distributed(qm, {"ledger": connection}) as tx:
                await source.receive(0, transaction=tx)
                insert(connection, table, 7)
        assert tx.outstanding == ["ledger"]
    assert (await bodies(source), numbers(server, table)) == ([], [])
    assert len(server.prepared()) == 1
    ((row),) = await qm.transactions()
    assert (row["kind"], row["transaction"], row["resources"]) == ("decision", tx.identifier, ["ledger"])
    async with connected(server) as connection, place.form.distributed(qm, {"ledger": connection}):
        pass
    assert (numbers(server, table), server.prepared(), await qm.transactions()) == ([7], [], [])


@pytest.mark.parametrize("form", [form for form in FORMS if form.is_async], ids=str, indirect=True)
async def test_a_cancelled_commit_continues(
    place: Place, qm: lanner.aio.QueueManager, server: PostgreSql, table: str
) -> None:
    """A task is cancelled while it decides.

    The steps are done nevertheless, so that nothing is left in doubt.
    """
    source = await filled(qm, "7")
    async with connected(server) as connection:
        tx = place.form.distributed(qm, {"ledger": connection})
        await receive_and_insert(tx, source, connection, table)
        task = asyncio.ensure_future(tx.commit())
        with before(place.form, "deciding", task.cancel):
            with pytest.raises(asyncio.CancelledError):
                await task
            while not await asyncio.to_thread(numbers, server, table):
                pass
        while await qm.transactions():
            await asyncio.to_thread(server.prepared)
    assert (await bodies(source), numbers(server, table)) == ([], [7])


# By hand
# --------------------------------------------------------------------------------------------------


async def prepared(form: Form, qm: lanner.aio.QueueManager, q: lanner.aio.Queue, coordinator: str) -> str:
    """Prepare a branch that has received a message and sent another, and leave it.

    Return the identifier of the transaction.
    """
    identifier, tx = str(uuid.uuid4()), qm.transaction()
    await q.receive(0, transaction=tx)
    await q.send("new", transaction=tx)
    backend, unit = blocking(qm)._backend, blocking(tx)._unit
    await called(form, backend.prepare, unit, coordinator=coordinator, identifier=identifier, resource="alpha")
    return identifier


async def called(form: Form, work: Callable[..., Any], *arguments: object, **named: object) -> Any:  # noqa: ANN401
    if form.is_async:
        return await work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)


@covers("QueueManager.transactions", "QueueManager.commit_transaction", "QueueManager.abort_transaction")
@pytest.mark.parametrize("is_commit", [True, False])
async def test_what_is_in_doubt_is_ended_by_hand(place: Place, qm: lanner.aio.QueueManager, *, is_commit: bool) -> None:
    q, coordinator = await filled(qm, "old"), str(uuid.uuid4())
    identifier = await prepared(place.form, qm, q, coordinator)
    assert await bodies(q) == []
    (row,) = await qm.transactions()
    assert (row["kind"], row["state"], row["transaction"]) == ("branch", "prepared", identifier)
    assert (row["coordinator"], row["resources"]) == (coordinator, ["alpha"])
    assert [(one["operation"], one["messages"]) for one in row["operations"]] == [("dequeue", 1), ("enqueue", 1)]
    if is_commit:
        assert await qm.commit_transaction(identifier) == [row]
    else:
        assert await qm.abort_transaction(identifier) == [row]
    assert await bodies(q) == (["new"] if is_commit else ["old"])
    assert await qm.transactions() == []
    event = "commit transaction" if is_commit else "abort transaction"
    lines = (place.data_of(qm) / "audit.log").read_text().splitlines()
    (record,) = (one for one in map(json.loads, lines) if one.get("transaction") == identifier)
    assert (record["event"], record["outcome"]) == (event, "done")


@covers(
    "QueueManager.commit_transaction: InvalidParameter", "QueueManager.abort_transaction: InvalidParameter",
    "QueueManager.commit_transaction: TransactionSequence", "QueueManager.abort_transaction: TransactionSequence",
)  # fmt: skip
async def test_what_the_coordinator_knows_better_is_not_ended_by_hand(
    place: Place, qm: lanner.aio.QueueManager
) -> None:
    unknown = str(uuid.uuid4())
    text = f"no transaction {unknown} is in doubt here: `lanner transaction list` shows all"
    await refused(errors.InvalidParameter, text, qm.commit_transaction(unknown))
    await refused(errors.InvalidParameter, text, qm.abort_transaction(unknown))
    await refused(errors.InvalidParameter, "x is no identifier of a transaction", qm.abort_transaction("x"))
    backend = blocking(qm)._backend
    active, decided = str(uuid.uuid4()), str(uuid.uuid4())
    for one in (active, decided):
        await called(place.form, backend.distributed, "begin distributed", identifier=one)
    await called(place.form, backend.distributed, "decide", identifier=decided, resources=["far"])
    text = f"transaction {active} is active: its program is about to end it"
    await refused(errors.TransactionSequence, text, qm.commit_transaction(active))
    await refused(errors.TransactionSequence, text, qm.abort_transaction(active))
    text = f"transaction {decided} is committed: it cannot be aborted"
    await refused(errors.TransactionSequence, text, qm.abort_transaction(decided))
    # Its resource was told by hand.
    await qm.commit_transaction(decided)
    await called(place.form, backend.distributed, "end distributed", transactions=[active], resources=[])
    assert await qm.transactions() == []


# Lost connections
# --------------------------------------------------------------------------------------------------


@covers("DistributedTransaction.commit: CommitInDoubt")
@pytest.mark.parametrize("form", REMOTE_FORMS, ids=str, indirect=True)
@pytest.mark.parametrize("when", ["asked", "done"])
async def test_a_decision_whose_answer_is_lost_is_in_doubt(
    form: Form,
    service: Service,
    qm: lanner.aio.QueueManager,
    tmp_path: Path,
    server: PostgreSql,
    table: str,
    when: Literal["asked", "done"],
) -> None:
    """The log has the outcome, and the next transaction with the resource does as it says."""
    source = await filled(qm, "7")
    with Proxy(service, form.where, tmp_path / "proxy") as proxy:
        async with through(form, proxy) as cut, connected(server) as connection:

            def lose() -> None:
                proxy.lose_call(1, when=when)
                proxy.listen_no_more()

            with before(form, "deciding", lose):
                tx = form.distributed(cut, {"ledger": connection})
                await receive_and_insert(tx, cut.open(source.name), connection, table)
                with pytest.raises(errors.CommitInDoubt, match="whether it is committed is in the log of ALPHA"):
                    await tx.commit()
            assert len(server.prepared()) == 1
    while any(row["kind"] != "decision" for row in await qm.transactions()):
        pass
    # On a busy machine the cut can hit an answer that was still on its way before the decision, so
    # "done" alone does not say that there is one.
    is_commit = bool(await qm.transactions())
    assert not (is_commit and when == "asked")
    async with connected(server) as connection, form.distributed(qm, {"ledger": connection}):
        pass
    assert (await bodies(source), numbers(server, table)) == (([], [7]) if is_commit else (["7"], []))
    assert (server.prepared(), await qm.transactions()) == ([], [])


@pytest.mark.parametrize("form", REMOTE_FORMS, ids=str, indirect=True)
async def test_a_decision_whose_answer_is_lost_is_looked_up_in_the_log(
    form: Form, service: Service, qm: lanner.aio.QueueManager, tmp_path: Path, server: PostgreSql, table: str
) -> None:
    source = await filled(qm, "7")
    with Proxy(service, form.where, tmp_path / "proxy") as proxy:
        async with through(form, proxy) as cut, connected(server) as connection:
            with before(form, "deciding", lambda: proxy.lose_call(1, when="done")):
                tx = form.distributed(cut, {"ledger": connection})
                await receive_and_insert(tx, cut.open(source.name), connection, table)
                await tx.commit()
    assert tx.outstanding == []
    assert (await bodies(source), numbers(server, table)) == ([], [7])
    assert (server.prepared(), await qm.transactions()) == ([], [])


async def receive_and_insert(
    tx: lanner.aio.DistributedTransaction, queue: lanner.aio.Queue, connection: psycopg.Connection[Any], table: str
) -> None:
    """Begin, and leave the end to the caller."""
    await tx.__aenter__()
    message = await queue.receive(0, transaction=tx)
    insert(connection, table, int(message.body))


@pytest.mark.parametrize("form", REMOTE_FORMS, ids=str, indirect=True)
async def test_a_program_that_is_gone_has_aborted_what_it_has_not_decided(
    form: Form, service: Service, qm: lanner.aio.QueueManager, tmp_path: Path
) -> None:
    """The queue manager aborts its own branch when the connection ends.

    The branch of another queue manager waits for the next program.
    """
    source = await filled(qm, "7")
    async with form.embedded(tmp_path / "beta", "BETA") as beta:
        target = await new_queue(beta, transactional=True)
        with Proxy(service, form.where, tmp_path / "proxy") as proxy:
            async with through(form, proxy) as cut:

                def lose() -> None:
                    proxy.lose_call(1, when="asked")
                    proxy.listen_no_more()

                with before(form, "deciding", lose), contextlib.suppress(errors.CommitInDoubt):
                    async with form.distributed(cut, {"beta": beta}) as tx:
                        await cut.open(source.name).receive(0, transaction=tx)
                        await target.send("7", transaction=tx)
        assert [row["kind"] for row in await beta.transactions()] == ["branch"]
        while await qm.transactions():
            pass
        assert await bodies(source) == ["7"]
        async with form.distributed(qm, {"beta": beta}):
            pass
        assert await beta.transactions() == []
        assert await bodies(target) == []
