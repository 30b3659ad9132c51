"""`lanner transaction`, `lanner doctor` and the daemon's resources.

The tests cover which transactions are in doubt and who resolves them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import lanner
from lanner.client._sync.distributed import backend_of
from lanner.model.branches import Branch
from tests.cli.conftest import Run, Served, free_address
from tests.cli.test_outgoing import wait_for
from tests.postgresql import PostgreSql, postgresql


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSql]:
    with postgresql() as started:
        yield started


def left_behind(manager: lanner.QueueManager) -> str:
    """Leave a branch of a coordinator elsewhere behind, which has sent a message to "t"."""
    queue, transaction = manager.open("t"), manager.transaction()
    if not queue.exists():
        manager.create_queue("t", transactional=True)
    queue.send("new", transaction=transaction)
    identifier, backend = str(uuid.uuid4()), backend_of(manager)
    named: dict[str, Any] = {"coordinator": str(uuid.uuid4()), "identifier": identifier, "resource": "here"}
    backend.prepare(transaction.unit(backend), **named)
    return identifier


def decided(manager: lanner.QueueManager, *resources: str) -> str:
    """Leave a commit behind that resources have not received."""
    identifier, backend = str(uuid.uuid4()), backend_of(manager)
    backend.distributed("begin distributed", identifier=identifier)
    backend.distributed("decide", identifier=identifier, resources=list(resources))
    return identifier


def check_commands(run: Run, branch: str, commit: str) -> None:
    """Check the commands with a running queue manager and without one."""
    rows = {row["transaction"]: row for row in run("transaction", "list", "--json").json}
    assert rows.keys() == {branch, commit}
    text = run("transaction", "list").out
    assert f"{branch} branch" in " ".join(text.split())
    assert f"{commit} decision committed far" in " ".join(text.split())
    shown = run("transaction", "show", branch[:13]).out
    assert f"branch {branch}: prepared" in shown
    assert r"1 message of ALPHA\private$\t" in shown
    assert run("transaction", "show", commit, "--json").json == [rows[commit]]
    found = run("doctor").out
    assert f"{branch} is prepared and not decided, its messages are locked (resource: here)" in found
    assert f"{commit} is committed, and resources have not received the commit: far" in found
    assert "it cannot be aborted" in run("transaction", "abort", commit, code=1).err
    unknown = uuid.uuid4()
    assert f"no transaction {unknown} is in doubt here" in run("transaction", "commit", unknown, code=1).err
    assert f"no transaction {unknown} is in doubt" in run("transaction", "show", unknown, code=3).err
    assert run("transaction", "commit", branch[:13]).out == f"{branch} is committed here\n"
    assert run("transaction", "commit", commit, "--json").json == [rows[commit]]
    assert "no transaction is in doubt" in run("transaction", "list", code=3).err
    assert "none is in doubt" in run("doctor").out
    assert run("receive", "t", "--json").json["body"] == "new"


def test_without_a_queue_manager_that_runs(run: Run, data: Path) -> None:
    with lanner.QueueManager(data, name="ALPHA") as manager:
        branch, commit = left_behind(manager), decided(manager, "far")
    check_commands(run, branch, commit)


def test_through_the_service(serve: Callable[..., Served], run: Run, data: Path) -> None:
    serve("--name", "ALPHA", "--bind", free_address(), "--json").ready()
    with lanner.connect(data=data) as manager:
        branch, commit = left_behind(manager), decided(manager, "far")
    check_commands(run, branch, commit)


def test_an_abort_by_hand(run: Run, data: Path) -> None:
    with lanner.QueueManager(data, name="ALPHA") as manager:
        branch = left_behind(manager)
        left_behind(manager)
    assert "give more of it" in run("transaction", "abort", "", code=2).err
    assert run("transaction", "abort", branch).out == f"{branch} is aborted here\n"
    assert len(run("transaction", "list", "--json").json) == 1


# Databases of the settings
# --------------------------------------------------------------------------------------------


def resources(folder: Path, **tables: str) -> Path:
    """Write settings with databases, by name and connection string, that are looked at often."""
    text = "[coordinator]\ninterval = 0.05\n"
    for name, dsn in tables.items():
        text += f'[coordinator.resources.{name}]\nmodule = "psycopg"\nconnection = "{dsn}"\n'
    path = folder / "lanner.toml"
    path.write_text(text)
    return path


def prepare(server: PostgreSql, coordinator: str, transaction: str, resource: str, number: int) -> None:
    """Leave a branch behind in the database, as a program that was killed."""
    with closing(psycopg.connect(server.dsn)) as connection:
        branch = Branch(uuid.UUID(coordinator), uuid.UUID(transaction), resource)
        connection.tpc_begin(connection.xid(*branch.xid))
        connection.execute("INSERT INTO ledger VALUES (%s)", (number,))
        connection.tpc_prepare()


def test_the_daemon_resolves_what_is_in_doubt_in_its_databases(
    serve: Callable[..., Served], run: Run, data: Path, tmp_path: Path, server: PostgreSql
) -> None:
    """By its log: one is committed and one was not decided.

    What is another coordinator's or resource's stays.
    """
    server.execute("CREATE TABLE ledger (id int)")
    with lanner.QueueManager(data, name="ALPHA") as manager:
        committed = decided(manager, "ledger")
        own = backend_of(manager).distributed("coordinator", resource="ledger")["identifier"]
    other = str(uuid.uuid4())
    for coordinator, transaction, resource, number in (
        (own, committed, "ledger", 1),
        (own, str(uuid.uuid4()), "ledger", 2),
        (other, committed, "ledger", 3),
        (own, committed, "stock", 4),
    ):
        prepare(server, coordinator, transaction, resource, number)
    config = resources(tmp_path, ledger=server.dsn)
    serve("--config", config, "--bind", free_address(), "--json").ready()
    wait_for(server.prepared, lambda found: len(found) == 2)
    assert server.execute("SELECT id FROM ledger") == [(1,)]
    wait_for(lambda: run("transaction", "list", code=3).err, lambda text: "no transaction is in doubt" in text)
    assert "ledger takes part in distributed transactions" in run("doctor", "--config", config).out
    for gid in server.prepared():
        server.execute(f"ROLLBACK PREPARED '{gid}'")


def test_the_doctor_knows_a_postgresql_that_prepares_nothing(run: Run, data: Path, tmp_path: Path) -> None:
    run("queue", "create", "orders", "--name", "alpha")
    with postgresql(max_prepared_transactions=0) as server:
        config = resources(tmp_path, ledger=server.dsn, gone="host=/nowhere password=geheim")
        text = run("doctor", "--config", config, code=1).out
        assert "resource ledger: PostgreSQL keeps no prepared transactions: set max_prepared_transactions" in text
        assert "coordinator.resources.gone: host=/nowhere password=... cannot be opened" in text
        assert "geheim" not in text
        with psycopg.connect(server.dsn) as connection, lanner.QueueManager(data) as manager:
            distributed = lanner.distributed(manager, {"ledger": connection})
            with pytest.raises(lanner.errors.UnsupportedOperation, match="set max_prepared_transactions"):
                distributed.__enter__()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[coordinator.resources."a b"]\nmodule = "psycopg"\nconnection = ""', "1 to 64 letters"),
        ('[coordinator.resources.a]\nmodul = "psycopg"', "coordinator.resources.a can have module, connection"),
        ('[coordinator.resources.a]\nmodule = "import os"\nconnection = ""', "coordinator.resources.a.module"),
        ("[coordinator]\ninterval = 0", "coordinator.interval"),
        ('[coordinator.resources.a]\nmodule = "psycopg"\nconnection = 7', "coordinator.resources.a.connection"),
    ],
)
def test_settings_that_cannot_be_used(run: Run, tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "lanner.toml"
    path.write_text(text)
    assert complaint in run("doctor", "--config", path, code=1).out


def test_a_driver_that_is_not_installed(run: Run, tmp_path: Path) -> None:
    run("queue", "create", "orders", "--name", "alpha")
    path = tmp_path / "lanner.toml"
    path.write_text('[coordinator.resources.a]\nmodule = "no_such_driver"\nconnection = ""')
    assert "No module named 'no_such_driver'; install the driver" in run("doctor", "--config", path, code=1).out
