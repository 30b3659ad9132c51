"""Transfer between queue managers over MS-MQQB, against a minimal transfer in Python."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path

from bench.nodes import Answer, Node
from bench.report import Figures
from bench.skeleton import Skeleton
from bench.workload import percentiles

SENDER, RECEIVER, SKELETON = "127.0.0.61", "127.0.0.62", "127.0.0.63"
PORT = 18010
KINDS = ("recoverable", "transactional", "express")


class Pair:
    """Two queue managers in two processes, on loopback addresses."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sender = Node(directory / "transfer-sender", SENDER, PORT)
        self._receiver = Node(directory / "transfer-receiver", RECEIVER, PORT)
        self._receiver.ask("create", name="plain")
        self._receiver.ask("create", name="tx", transactional=True)

    def rate(self, kind: str, count: int) -> Figures:
        """Measure a backlog from one queue manager until it is durable at the other.

        Returns messages/s, and the processor time that each side spends on one message.
        """
        name = "tx" if kind == "transactional" else "plain"
        there, here = rf"DIRECT=TCP:{RECEIVER}\private$\{name}", rf"DIRECT=OS:.\private$\{name}"
        self._sender.ask("pause", name=there)
        self._sender.ask("fill", name=there, count=count, kind=kind)
        before = [node.ask("cpu")["cpu"] for node in (self._sender, self._receiver)]
        start = self._sender.ask("resume", name=there)["time"]
        end = self._receiver.ask("await", name=here, count=count)["time"]
        after = [node.ask("cpu")["cpu"] for node in (self._sender, self._receiver)]
        self._receiver.ask("drain", name=here)
        spent = [(b - a) / count * 1e6 for a, b in zip(before, after, strict=True)]
        return {"messages/s": count / (end - start), "sender us": spent[0], "receiver us": spent[1]}

    def latency(self, count: int) -> Figures:
        """Measure the time from a recoverable send to its receive at the other queue manager.

        The clock starts before the send, which is synced.
        """
        answer: list[Answer] = []
        there, here = rf"DIRECT=TCP:{RECEIVER}\private$\plain", r"DIRECT=OS:.\private$\plain"
        waiting = threading.Thread(target=lambda: answer.append(self._receiver.ask("receive", name=here, count=count)))
        waiting.start()
        self._sender.ask("send", name=there, count=count, interval=0.002)
        waiting.join()
        return percentiles(answer[0]["seconds"])

    @cached_property
    def durable_skeleton(self) -> Skeleton:
        return Skeleton(SKELETON, PORT, self._directory / "skeleton")

    @cached_property
    def express_skeleton(self) -> Skeleton:
        return Skeleton(SKELETON, PORT + 1, None)

    def close(self) -> None:
        for name in ("durable_skeleton", "express_skeleton"):
            if name in self.__dict__:
                self.__dict__[name].close()
        self._sender.close()
        self._receiver.close()
