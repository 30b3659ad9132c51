"""A program that takes messages by MS-MQRR until it is killed.

Run as `python -m tests.adversity.mqrr_reader ADDRESS USER PASSWORD LOG`. It writes `got` when a
message has come, before it acknowledges it, and `done` when the acknowledgment was answered.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from uuid import uuid4

from lanner.client._async.mqrr_reader import MqrrReader
from lanner.client.target import Target
from lanner.rpc.security import Credentials
from lanner.services.interfaces.mqqp import RemoteReadAck
from lanner.wire.format_name import parse

READERS = 4


async def read(reader: MqrrReader, log: Path) -> None:
    queue = await reader.open(parse(r"DIRECT=OS:.\private$\work"))
    with log.open("a", buffering=1) as file:
        while True:
            entry, message = await queue.begin(timeout=60_000)
            body = message.body.decode()
            file.write(f"got {body}\n")
            await queue.end(entry, RemoteReadAck.RR_ACK)
            file.write(f"done {body}\n")


async def main() -> None:
    address, user, password, log = sys.argv[1:]
    target = Target(address, port=2103, credentials=Credentials(user, password))
    async with await MqrrReader.connect(target, client_id=uuid4()) as reader:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.gather(*(read(reader, Path(log)) for _ in range(READERS)))


if __name__ == "__main__":
    asyncio.run(main())
