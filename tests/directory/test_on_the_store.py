"""The embedded directory on a table of the real store.

Its contents survive closing the store.
"""

from __future__ import annotations

from pathlib import Path

from lanner.directory import AttributeFilter, EmbeddedDirectory, Operator
from lanner.model.directory_objects import Queue, QueueManager
from lanner.model.enums import DirectoryOperationResult
from lanner.store import Store

SUCCESS = DirectoryOperationResult.SUCCESS


def test_objects_survive_the_store_being_closed(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    with store.lock:
        directory = EmbeddedDirectory(store.table("directory"))
        site = directory.provision()
        manager = QueueManager(computer_name="alpha", site_identifier_list=[site], routing_server=True)
        assert directory.create_object(manager)[0] is SUCCESS
        queues = [Queue(pathname=f"alpha\\q{number}", label=str(number)) for number in range(20)]
        assert all(directory.create_object(queue)[0] is SUCCESS for queue in queues)
        assert directory.delete_object(queues[0]) is SUCCESS
        sid = directory.computer_sid("alpha")
        batch = store.pending_batch()
    store.sync(batch)
    store.close()

    store = Store.open(tmp_path)
    try:
        with store.lock:
            directory = EmbeddedDirectory(store.table("directory"))
            assert directory.provision() == site
            assert directory.computer_sid("alpha") == sid
            for queue in queues[1:]:
                result, found = directory.read(
                    "Queue", [AttributeFilter("Pathname", Operator.EQUALS, queue.pathname)], ["Label"]
                )
                assert result is SUCCESS
                assert isinstance(found, Queue)
                assert (found.identifier, found.label) == (queue.identifier, queue.label)
            gone = [AttributeFilter("Identifier", Operator.EQUALS, queues[0].identifier)]
            assert directory.read("Queue", gone)[0] is DirectoryOperationResult.OBJECT_NOT_FOUND
    finally:
        store.close()
