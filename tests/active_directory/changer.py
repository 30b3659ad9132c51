"""A queue manager in its own process that changes other computers' objects in the domain.

Commands arrive as lines of JSON; each is answered by one line.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

from lanner.daemon.domain import member_of
from lanner.daemon.settings import DirectoryTable
from lanner.directory.ldap.cached import CachedDirectory
from lanner.host.addresses import local_settings
from lanner.host.runtime import Runtime
from lanner.model.directory_objects import GUID_NULL, Queue, QueueManager
from lanner.model.enums import QueueType
from lanner.security.profile import Profile
from lanner.transfer.embedded import EmbeddedTransfer
from lanner.transfer.settings import TransferSettings


def answer(runtime: Runtime, request: dict[str, object]) -> dict[str, object]:
    engine = runtime.engine
    identifier = uuid.UUID(str(request["identifier"])) if "identifier" in request else GUID_NULL
    values = request.get("values", {})
    assert isinstance(values, dict)
    kind = QueueManager if request["kind"] == "QueueManager" else Queue
    changed = kind(identifier=identifier)
    for name, value in values.items():
        setattr(changed, name, value)
    if isinstance(changed, Queue):
        changed.queue_type = QueueType.PUBLIC
    with runtime.change() as change:
        match request["event"]:
            case "create":
                result, made = engine.create_directory_object(changed, list(values))
                identifier = made or GUID_NULL
            case "write":
                result = engine.write_directory(changed, list(values))
            case _:
                result = engine.delete_directory_object(changed)
        outgoing = [queue.destination_format_name for queue in engine.outgoing_queues()]
    change.wait()
    return {"result": result.value, "identifier": str(identifier), "outgoing": outgoing}


def main() -> None:
    settings = json.loads(sys.argv[1])
    data = Path(settings["data"])
    member = member_of(DirectoryTable.model_validate(settings["directory"]), data, Profile.SAFE)
    assert member is not None
    assert isinstance(member.directory, CachedDirectory)
    own = local_settings(
        settings["name"],
        directory_integrated=True,
        dns_domain="mq.test",
        site_identifiers=(str(member.site),),
        local_addresses=frozenset({settings["bind"]}),
        profile=Profile.SAFE,
    )
    runtime = Runtime(data, own, member.directory)
    transfer = EmbeddedTransfer(runtime.engine, settings["bind"], TransferSettings(peers=settings["peers"]))
    manager = runtime.engine.queue_manager
    started = {"identifier": str(manager.identifier), "certificate": bool(manager.public_signing_key_list)}
    print(json.dumps(started), flush=True)  # noqa: T201 - the answer
    for line in sys.stdin:
        print(json.dumps(answer(runtime, json.loads(line))), flush=True)  # noqa: T201 - the answer
    transfer.close()
    runtime.close()
    member.directory.close()


if __name__ == "__main__":
    main()
