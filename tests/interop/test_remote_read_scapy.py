"""Remote reads by scapy and scapy-rpc: NDR and NDR64, without and with NTLM.

They run in a process of their own, because scapy is GPL.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path

import pytest

from lanner.wire.message import Message
from tests.services.remote_read_peer import serving
from tests.statuses import MQ_ERROR_INVALID_HANDLE, MQ_ERROR_IO_TIMEOUT

SCRIPT = Path(__file__).with_name("scapy_remote_read.py")
USER, PASSWORD = "alice", "Pass-word1"


@pytest.mark.parametrize("user", ["", USER], ids=["anonymous", "privacy"])
@pytest.mark.parametrize("syntax", ["NDR", "NDR64"])
def test_scapy_calls_all_eleven_methods(tmp_path: Path, syntax: str, user: str) -> None:
    if importlib.util.find_spec("msrpcs") is None:
        pytest.skip("scapy-rpc is not installed")

    async def main() -> None:
        async with serving(tmp_path, authenticates=True) as site:
            site.runtime.users.add(USER, PASSWORD)
            ids = site.send(b"one", b"two" * 5000, b"three", b"four")
            opener = await site.peer()
            handle = (await opener.open_remote_queue())["ph_queue"]
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-W",
                "ignore",
                str(SCRIPT),
                str(site.port),
                str(handle),
                syntax,
                user,
                PASSWORD,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                output, errors = await asyncio.wait_for(process.communicate(), 60)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            assert process.returncode == 0, errors.decode()
            seen = json.loads(output)
            read = {name: _body(seen.pop(name)) for name in ("peek", "receive", "receive2", "lookup")}
            assert read == {
                "peek": (False, b"one", []),
                "receive": (True, b"one", []),
                "receive2": (True, b"two" * 5000, [ids[1] & (1 << 56) - 1]),
                "lookup": (True, b"four", [ids[3] & (1 << 56) - 1]),
            }
            assert seen == {
                "is_ndr64": syntax == "NDR64",
                "version": "0601b11d",
                "port": site.port,
                "open": 0,
                "end": 0,
                "refuse": 0,
                "end_lookup": 0,
                "cursor": MQ_ERROR_INVALID_HANDLE,
                "cancel": MQ_ERROR_INVALID_HANDLE,
                "purge": 0,
                "empty": [MQ_ERROR_IO_TIMEOUT, False, 0, ""],
                "close": 0,
            }
            assert site.count() == 0

    asyncio.run(main())


def _body(told: list[object]) -> tuple[object, bytes, list[object]]:
    status, has_handle, size, octets, *rest = told
    assert status == 0
    packet = bytes.fromhex(str(octets))
    assert size == len(packet)
    return has_handle, bytes(Message(packet).body), rest
