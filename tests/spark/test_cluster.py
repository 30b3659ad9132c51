"""The jobs on a real Spark cluster, run by `make test-cluster`.

It has a master and two workers on loopback, from the package that pip installs.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pyspark
import pytest
from deltalake import DeltaTable

from demo.generator import generate
from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.spark.flight.client import FlightQueues
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.jobs import JOBS
from tests.client.conftest import no_keys
from tests.spark.flight.test_kill import MESSAGES, check, fill, running
from tests.spark.jobs.test_lifecycle import outcome, status
from tests.spark.jobs.test_numbers import is_seen
from tests.spark.small import ROOT
from tests.spark.source.test_kill_on_spark import AT_ONCE, moved

pytestmark = pytest.mark.cluster

HOME = Path(pyspark.__file__).parent
ENVIRONMENT = os.environ | {
    "SPARK_HOME": str(HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
}
PATIENCE = 120.0  # seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two workers."""
    place = tmp_path_factory.mktemp("cluster")
    port, web = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"
    environment = ENVIRONMENT | {
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "SPARK_WORKER_DIR": str(place / "work"),
        "SPARK_DAEMON_MEMORY": "512m",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str) -> Path:
        log = place / f"{name}.log"
        with log.open("wb") as out:
            started.append(
                subprocess.Popen(
                    [str(HOME / "bin" / "spark-class"), *command],
                    env=environment,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    cwd=place,
                )
            )
        return log

    def wait(log: Path, text: str, count: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE
        while log.read_text(encoding="utf-8", errors="replace").count(text) < count:
            assert time.monotonic() < deadline, log.read_text(encoding="utf-8", errors="replace")
            assert all(process.poll() is None for process in started), log.read_text(encoding="utf-8")
            time.sleep(0.1)

    try:
        host = ["--host", "127.0.0.1", "--port"]
        master = start("master", "org.apache.spark.deploy.master.Master", *host, str(port), "--webui-port", str(web))
        wait(master, "I have been elected leader")
        for name in ("one", "two"):
            options = ["--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--webui-port", str(free_port())]
            start(name, "org.apache.spark.deploy.worker.Worker", *options, address)
        wait(master, "Registering worker", 2)
        yield address
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def run(command: list[str], directory: Path, **more: str) -> str:
    done = subprocess.run(
        command, cwd=directory, env=ENVIRONMENT | more, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_jobs_give_the_same_on_a_cluster(cluster: str, tmp_path: Path) -> None:
    world = generate(seed=21, orders=800)
    world.write_files(tmp_path / "packets")
    password = secrets.token_urlsafe()
    with QueueManager(tmp_path / "shop", "SHOP", dns_domain="example.com", public_keys=no_keys) as manager:
        runtime_of(manager).users.add("root", password, administrator=True)
        orders = manager.create_queue("orders", journal=True)
        orders.send_many(Message(body=f"{number}", recoverable=True) for number in range(300))
        orders.receive_many(200)
        with FlightListener(runtime_of(manager), FlightSettings(port=0)) as service:
            (tmp_path / "pipeline.toml").write_text(
                f"""
                [lake]
                path = "lake"
                [spark]
                master = "{cluster}"
                [spark.settings]
                "spark.executor.memory" = "512m"
                "spark.driver.host" = "127.0.0.1"
                "spark.driver.bindAddress" = "127.0.0.1"
                "spark.sql.shuffle.partitions" = 2
                "spark.executorEnv.LANNER_PASSWORD" = "{password}"
                [source]
                managers = ["{service.address}"]
                user = "root"
                [ingest]
                packet_files = "packets"
                """,
                encoding="utf-8",
            )
            lanner = [str(Path(sys.executable).parent / "lanner"), "pipeline"]
            told = json.loads(run([*lanner, "run", "all", "--json"], tmp_path, LANNER_PASSWORD=password))
    kept = sum(s.machine is world.restored and s.time <= world.backup_at for s in world.sightings)
    assert told["ingest"]["messages"] == len(world.sightings) + kept + 300
    assert told["lifecycle"]["messages"] == len(world.messages) + 300
    check_tables(tmp_path / "lake", world.truth()["messages"])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "orders on SHOP" in page

    # One of them as any program for spark-submit; all workers take part.
    listed = run([*lanner, "list", "--json"], tmp_path).splitlines()
    programs = {job["job"]: job["program"] for job in map(json.loads, listed)}
    assert set(programs) == set(JOBS)
    options = ["--master", cluster, "--executor-memory", "512m", "--conf", "spark.driver.host=127.0.0.1"]
    run([str(HOME / "bin" / "spark-submit"), *options, programs["acks"], "--config", "pipeline.toml"], tmp_path)
    check_tables(tmp_path / "lake", world.truth()["messages"])


# From one queue to another, batch by batch, until nothing is left; begun again from its checkpoint
# when Spark gives up.
MOVER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.spark.source.test_kill_on_spark import started

master, address, place = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")\
.config("spark.executor.memory", "512m")
for name in ("host", "bindAddress"):
    builder = builder.config(f"spark.driver.{name}", "127.0.0.1")
spark = builder.config("spark.executorEnv.LANNER_PASSWORD", "secret").getOrCreate()
for _ in range(5):
    query = started(spark, address, Path(place), is_last=True)
    try:
        query.awaitTermination()
        break
    except Exception as error:
        print(error)
else:
    sys.exit("it failed again and again")
spark.stop()
"""


def executors() -> list[psutil.Process]:
    """The Java machines of this test's own workers in which tasks run."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()) and "java" in process.name():
                found.append(process)
    return found


def test_executors_are_killed(cluster: str, accounts: Path, tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "mover.log"
    fill(data, accounts)
    with running(data) as (_, address), FlightQueues(address, user="root", password="secret") as queues:
        command = [sys.executable, "-c", MOVER, cluster, address, str(tmp_path)]
        with log.open("wb") as out:
            mover = subprocess.Popen(
                command, env=ENVIRONMENT | {"LANNER_PASSWORD": "secret"}, stdout=out, stderr=out, cwd=tmp_path
            )
        try:
            for batches in (1, 3):
                deadline = time.monotonic() + PATIENCE
                while moved(queues) < batches * AT_ONCE or not executors():
                    assert mover.poll() is None, log.read_text(encoding="utf-8")
                    assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
                    time.sleep(0.02)
                for executor in executors():
                    executor.kill()
            assert moved(queues) < MESSAGES, "they were killed on their way"
            assert mover.wait(2 * PATIENCE) == 0, log.read_text(encoding="utf-8")
        finally:
            mover.kill()
            mover.wait()
    check(data)


def newest(table: Path) -> list[str]:
    """The files of a table that is whole, of each of its parts."""
    whole = sorted(mark.parent for mark in table.glob("version=*/_SUCCESS"))
    parts = {place.name: place for version in whole for place in version.glob("part=*")}
    return [str(file) for place in parts.values() or whole[-1:] for file in place.glob("*.parquet")]


def test_four_queue_managers_into_delta_while_one_is_killed(cluster: str, accounts: Path, tmp_path: Path) -> None:
    """Each message and each event is in the lake once.

    One queue manager dies in between and comes back.
    """
    places = [tmp_path / f"data{number}" for number in range(4)]
    for place in places:
        fill(place, accounts)
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(running(place)) for place in places]
        addresses = [address for _, address in started]
        (tmp_path / "pipeline.toml").write_text(
            f"""
            [lake]
            path = "lake"
            format = "delta"
            [spark]
            master = "{cluster}"
            [spark.settings]
            "spark.executor.memory" = "512m"
            "spark.driver.host" = "127.0.0.1"
            "spark.driver.bindAddress" = "127.0.0.1"
            "spark.sql.shuffle.partitions" = 2
            "spark.executorEnv.LANNER_PASSWORD" = "secret"
            [source]
            managers = {json.dumps(addresses)}
            user = "root"
            retry_seconds = 60
            [ingest]
            queues = ["source"]
            max_messages_per_trigger = 100
            """,
            encoding="utf-8",
        )
        command = [str(Path(sys.executable).parent / "lanner"), "pipeline", "run", "ingest"]
        log = tmp_path / "ingest.log"

        def ingest() -> subprocess.Popen[bytes]:
            with log.open("ab") as out:
                environment = ENVIRONMENT | {"LANNER_PASSWORD": "secret"}
                return subprocess.Popen(command, env=environment, stdout=out, stderr=out, cwd=tmp_path)

        job = ingest()
        try:
            # The one that is read first is killed while it is read.
            victim, table = 0, tmp_path / "lake" / "messages"
            wait_for_commits(table, 2, job, log)
            started[victim][0].kill()
            started[victim][0].wait()
            assert len(rows_of(table)) < MESSAGES, "it was killed too late"
            time.sleep(1)
            port = int(addresses[victim].rpartition(":")[2])
            stack.enter_context(running(places[victim], port))
            # What gave up before it was back begins again from its checkpoints.
            for _ in range(3):
                if job.wait(4 * PATIENCE) == 0:
                    break
                job = ingest()
            assert job.returncode == 0, log.read_text(encoding="utf-8")
        finally:
            job.kill()
            job.wait()
    for name in ("messages", "events"):
        check_four(rows_of(tmp_path / "lake" / name))


# All four in one stream, which receives: what is in the table is no longer in a queue.
FLEET = """
import sys
from pyspark.sql import SparkSession
from lanner.spark.jobs.ingest import write_batch
from lanner.spark.jobs.lake import Lake

master, addresses, place = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")\
.config("spark.executor.memory", "512m")
for name in ("host", "bindAddress"):
    builder = builder.config(f"spark.driver.{name}", "127.0.0.1")
spark = builder.config("spark.executorEnv.LANNER_PASSWORD", "secret").getOrCreate()
lake = Lake(spark, f"{place}/lake", "delta")
reading = {"managers": addresses, "user": "root", "mode": "receive", "reader": "lake", "leaseSeconds": "5"}
reading |= {"maxMessagesPerTrigger": "200"}
for _ in range(5):
    stream = spark.readStream.format("msmq").options(**reading).load("source")
    writer = stream.writeStream.foreachBatch(lambda rows, number: write_batch(rows, lake, "messages", "fleet", number))
    query = writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True).start()
    try:
        query.awaitTermination()
        break
    except Exception as error:
        print(error)
else:
    sys.exit("it failed again and again")
spark.stop()
"""


def test_one_stream_of_four_queue_managers_into_delta_while_one_is_killed(
    cluster: str, accounts: Path, tmp_path: Path
) -> None:
    """Each message is in the table once, and in no queue any more."""
    places = [tmp_path / f"data{number}" for number in range(4)]
    for place in places:
        fill(place, accounts)
    table, log = tmp_path / "lake" / "messages", tmp_path / "fleet.log"
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(running(place)) for place in places]
        addresses = [address for _, address in started]
        command = [sys.executable, "-c", FLEET, cluster, ",".join(addresses), str(tmp_path)]
        with log.open("wb") as out:
            environment = ENVIRONMENT | {"LANNER_PASSWORD": "secret"}
            job = subprocess.Popen(command, env=environment, stdout=out, stderr=out, cwd=tmp_path)
        try:
            wait_for_commits(table, 3, job, log)
            started[1][0].kill()
            started[1][0].wait()
            found = rows_of(table)
            assert 0 < len(found) < 4 * MESSAGES, "it was killed too late"
            assert len({manager for manager, _ in found}) == 4, "a batch has messages of each"
            time.sleep(1)
            port = int(addresses[1].rpartition(":")[2])
            stack.enter_context(running(places[1], port))
            assert job.wait(4 * PATIENCE) == 0, log.read_text(encoding="utf-8")
        finally:
            job.kill()
            job.wait()
    check_four(rows_of(table))
    for place in places:
        with QueueManager(place, name="ALPHA", public_keys=no_keys, events=True) as manager:
            assert manager.open("source").count() == 0


def wait_for_commits(table: Path, count: int, job: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a Delta table has some commits."""
    deadline = time.monotonic() + 2 * PATIENCE
    while len(list((table / "_delta_log").glob("*.json"))) < count:
        assert job.poll() is None, log.read_text(encoding="utf-8")
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
        time.sleep(0.05)


def rows_of(table: Path) -> list[tuple[str, str]]:
    """The queue manager and the message of each row of a Delta table."""
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["qm_id", "msg_id_text"]).to_pylist()
    return [(row["qm_id"], row["msg_id_text"]) for row in rows]


def check_four(rows: list[tuple[str, str]]) -> None:
    """Assert that there is one row for each message of four queue managers."""
    found = Counter(rows)
    assert set(found.values()) == {1}, "a row is there twice"
    managers = {manager for manager, _ in found}
    assert len(managers) == 4
    assert Counter(manager for manager, _ in found) == dict.fromkeys(managers, MESSAGES)


def check_tables(lake: Path, messages: list[dict[str, object]]) -> None:
    rows = ds.dataset(newest(lake / "lifecycle"), format="parquet").to_table(columns=["source", "status"]).to_pylist()
    found = Counter(row["status"] for row in rows if row["source"] != "SHOP")
    assert found == Counter(status(message) for message in messages)
    assert Counter(row["status"] for row in rows if row["source"] == "SHOP") == {"received": 200, "waiting": 100}
    asked = [message for message in messages if is_seen(message) and message["acknowledge"]]
    acks = ds.dataset(newest(lake / "acks"), format="parquet").to_table(columns=["outcome"]).to_pylist()
    assert Counter(row["outcome"] for row in acks) == Counter(outcome(message) for message in asked)
