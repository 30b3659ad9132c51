"""A queue's attributes on their way to clients in other processes."""

from __future__ import annotations

from lanner.host.queue_documents import from_document, to_document
from lanner.model.directory_objects import Queue, attributes_of


def test_every_attribute_that_is_stored_is_in_the_document() -> None:
    stored = set(attributes_of(Queue, "directory", "persistent"))
    assert stored - set(to_document(Queue())) == set()


def test_attributes_of_a_newer_version_are_ignored() -> None:
    document = to_document(Queue()) | {"label": "Orders", "owner_comment": "new"}
    assert from_document(document).label == "Orders"
