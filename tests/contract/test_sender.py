"""`Sender`: messages to another computer without a queue manager.

More is in tests/client/test_sender.py.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import lanner
import lanner.aio
from lanner.client.runtimes import transfer_of
from tests.client.senders import AwaitedSender
from tests.contract.covering import covers
from tests.contract.forms import Form


@covers(
    "Sender.send", "Sender.send_many", "Sender.flush", "Sender.close", "Sender.guid", "Sender.next_ordinal",
    "Sender.remote_guid", "Sender.unacknowledged",
)  # fmt: skip
def test_a_sender_numbers_its_messages_and_knows_what_is_acknowledged(form: Form, tmp_path: Path) -> None:
    with lanner.QueueManager(tmp_path, "BETA", bind="127.0.0.83", public_keys=lambda: (b"", b"")) as beta:
        transfer = transfer_of(beta)
        assert transfer is not None
        inbox = beta.create_queue("inbox")
        sender = AwaitedSender("127.0.0.83") if form.is_async else lanner.Sender("127.0.0.83")
        try:
            assert isinstance(sender.guid, UUID)
            assert sender.send(r"private$\inbox", lanner.Message(body="a", recoverable=True)) == f"{sender.guid}\\1"
            assert sender.remote_guid == beta.identifier
            assert sender.send_many(r"private$\inbox", ["b", "c"]) == [f"{sender.guid}\\2", f"{sender.guid}\\3"]
            sender.flush()
            assert (sender.unacknowledged, sender.next_ordinal) == (0, 4)
            assert [message.body for message in inbox.receive_many(3, timeout=10)] == ["a", "b", "c"]
        finally:
            sender.close()
            if isinstance(sender, AwaitedSender):
                sender.stop()
