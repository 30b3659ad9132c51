"""RabbitMQ as a peer: one node with its own epmd, on loopback only, with default settings.

It has no plugins.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from bench.peers.process import Missing, PeerError, Server, compile_client, free_port, require, run_client

# Debian's /usr/sbin/rabbitmq-server changes the user and the directory; this script does not.
HOME = Path("/usr/lib/rabbitmq")
SERVER = HOME / "bin" / "rabbitmq-server"
START_SECONDS = 90.0


class Rabbit:
    name = "RabbitMQ"
    setting = "one node, default settings, durable queues, persistent messages, publisher confirms"

    def __init__(self, directory: Path) -> None:
        packages = "rabbitmq-server librabbitmq-dev"
        require(self.name, [str(SERVER), "epmd"], ["amqp.h", "amqp_tcp_socket.h"], packages)
        self._client = compile_client("rabbit", "rabbitmq")
        self.directory = directory
        directory.mkdir()
        self.port = free_port()
        self._epmd_port = free_port()
        self._dist_port = free_port()
        self._queues = 0
        self._epmd = Server(["epmd", "-address", "127.0.0.1", "-port", str(self._epmd_port)], directory)
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def version(self) -> str:
        return ", ".join(path.name.removeprefix("rabbitmq_server-") for path in HOME.glob("lib/rabbitmq_server-*"))

    def launch(self) -> None:
        """Start the node without waiting for it."""
        directory = self.directory
        (directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\n", encoding="ascii")
        (directory / "plugins").write_text("[].\n", encoding="ascii")
        self.server = Server(
            [str(SERVER)],
            directory,
            {
                "HOME": str(directory),  # for Erlang's cookie
                "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
                "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
                "RABBITMQ_LOG_BASE": str(directory / "log"),
                "RABBITMQ_PID_FILE": str(directory / "pid"),
                "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
                "RABBITMQ_CONF_ENV_FILE": "/dev/null",
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
                "RABBITMQ_NODE_PORT": str(self.port),
                "RABBITMQ_DIST_PORT": str(self._dist_port),
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
                "ERL_EPMD_PORT": str(self._epmd_port),
                "ERL_EPMD_ADDRESS": "127.0.0.1",
            },
        )

    def start(self) -> None:
        """Start the node and wait until it accepts messages."""
        self.launch()
        deadline = time.monotonic() + START_SECONDS
        while True:
            time.sleep(0.25)
            self.server.check()
            try:
                self.run("send", "quorum", 1)
            except PeerError:
                if time.monotonic() > deadline:
                    raise Missing(f"{self.name} is not measured, it did not start: {self.directory}/log") from None
            else:
                return

    def run(self, op: str, kind: str, count: int, **more: object) -> dict[str, float]:
        """Run the C client on a new queue."""
        self._queues += 1
        more.setdefault("queue", f"bench-{self._queues}")
        return run_client(self._client, 900, port=self.port, op=op, type=kind, count=count, **more)

    def rate(self, op: str, kind: str, count: int, **more: object) -> float:
        """Return the messages per second."""
        return count / self.run(op, kind, count, **more)["seconds"]

    def wait_for_first(self, queue: str) -> None:
        run_client(self._client, 300, port=self.port, op="first", queue=queue)

    @property
    def pid(self) -> int:
        """The process id of Erlang, for which the start script waits."""
        return int((self.directory / "pid").read_text(encoding="ascii"))

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.server.stop(number, patience=120)

    def close(self) -> None:
        self.server.stop()
        self._epmd.stop()
