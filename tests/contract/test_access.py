"""Owners and access lists, in words and as SDDL."""

from __future__ import annotations

import pytest

import lanner.aio
from lanner import errors
from lanner.security.access_lists import AccessEntry
from lanner.wire.sddl import parse_sddl
from tests.contract.covering import covers
from tests.contract.forms import Place, new_name, refused
from tests.contract.service import BOB

# An account that no form knows by name.
STRANGER = "S-1-5-21-1-2-3-4000"
CLOSED = "D:(A;;GA;;;BA)"


async def closed(qm: lanner.aio.QueueManager) -> lanner.aio.Queue:
    """Create a queue that administrators own and may use."""
    queue = await qm.create_queue(new_name(), access=CLOSED)
    await queue.set_owner("Administrators")
    return queue


async def bob_of(place: Place, qm: lanner.aio.QueueManager) -> str:
    """Return the SID of the user that `as_bob` gives."""
    if place.service is None:
        return str(BOB.sid)
    await (queue := await qm.create_queue(new_name(), access={"bob": "send"})).send("x")
    entries = (await queue.access()).entries
    assert entries is not None
    return next(entry.sid for entry in entries if entry.account == "bob")


async def entries_of(queue: lanner.aio.Queue) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the entries in short form."""
    return [(one.account, one.access, one.rights) for one in (await queue.access()).entries or ()]


async def test_an_access_list_has_the_rights_of_the_user_who_asks(place: Place, qm: lanner.aio.QueueManager) -> None:
    queue = await closed(qm)
    found = await queue.access()
    assert found.own == ("full",)
    await queue.grant("Everyone", "get-permissions", "receive")
    async with place.as_bob(qm) as bob:
        his = await bob.open(queue.name).access()
        assert his.own == ("receive", "get-permissions")
        assert [his.may(word) for word in ("receive", "peek", "send", "delete-queue")] == [True, True, False, False]


@covers("QueueManager.create_queue")
async def test_a_new_queue_is_its_makers_and_others_may_send(place: Place, qm: lanner.aio.QueueManager) -> None:
    """DECISIONS, safe defaults; root and the service's user make queues for the Administrators."""
    queue = await qm.create_queue(new_name())
    entries = await entries_of(queue)
    assert entries[-3:] == [
        ("Administrators", "allow", ("full",)),
        ("Everyone", "allow", ("send",)),
        ("Anonymous", "allow", ("send",)),
    ]
    # Elsewhere the creator is a user, who has an entry too.
    owner = (await queue.access()).owner
    assert owner not in ("Anonymous", "Everyone", "SYSTEM")
    assert [account for account, *_ in entries[:-3]] == ([] if owner == "Administrators" else [owner])
    async with place.as_bob(qm) as bob:
        his = bob.open(queue.name)
        await his.send("x")
        for call in (his.receive, his.peek, his.purge, his.access):
            with pytest.raises(errors.AccessDenied):
                await call()
    assert await queue.count() == 1


@covers("Queue.access", "Queue.grant", "Queue.deny", "Queue.revoke", "Queue.set_access", "Queue.set_owner")
async def test_an_access_list_is_read_and_changed_in_words_and_as_sddl(qm: lanner.aio.QueueManager) -> None:
    queue = await closed(qm)
    found = await queue.access()
    assert (found.owner, found.owner_sid) == ("Administrators", "S-1-5-32-544")
    assert found.entries == (AccessEntry("Administrators", "S-1-5-32-544", "allow", ("full",)),)
    assert found.sddl == "O:BAD:(A;;0xf003f;;;BA)"
    await queue.grant("everyone", "send", "Peek")
    await queue.grant("Anonymous", "send,get-properties")
    await queue.deny(STRANGER, "receive")
    # Denying entries come first, whatever was done first.
    assert await entries_of(queue) == [
        (STRANGER, "deny", ("receive",)),
        ("Administrators", "allow", ("full",)),
        ("Everyone", "allow", ("peek", "send")),
        ("Anonymous", "allow", ("send", "get-properties")),
    ]
    await queue.revoke("Everyone", "peek")
    await queue.revoke("Anonymous")
    await queue.grant(STRANGER, "peek")
    assert await entries_of(queue) == [
        (STRANGER, "deny", ("delete-messages",)),
        ("Administrators", "allow", ("full",)),
        ("Everyone", "allow", ("send",)),
        (STRANGER, "allow", ("peek",)),
    ]
    text = (await queue.access()).sddl
    assert text is not None
    await queue.set_access("D:(A;;GA;;;BA)(A;;GW;;;WD)")
    assert ("Everyone", "allow", ("send", "get-properties", "get-permissions")) in await entries_of(queue)
    await queue.set_access(text)
    assert (await queue.access()).sddl == text
    await queue.set_owner("Administrators")
    assert (await queue.access()).owner == "Administrators"
    descriptor = (await queue.attributes()).security
    assert descriptor == parse_sddl(text).pack()


async def test_a_new_queue_has_the_list_that_was_given(qm: lanner.aio.QueueManager) -> None:
    queue = await qm.create_queue(new_name(), access={"Everyone": "send", STRANGER: ["receive", "send"]})
    entries = await entries_of(queue)
    assert ("Administrators", "allow", ("full",)) in entries
    assert entries[-2:] == [("Everyone", "allow", ("send",)), (STRANGER, "allow", ("receive", "send"))]
    for access, kind in (
        ({"Everyone": ""}, errors.InvalidParameter),
        ({"Everyone": "sing"}, errors.InvalidParameter),
        ({"no-such-account": "send"}, errors.IllegalUser),
        ("nonsense", errors.IllegalSecurityDescriptor),
        ("O:AND:(A;;GA;;;BA)", errors.InvalidOwner),
    ):
        name = new_name()
        with pytest.raises(kind):
            await qm.create_queue(name, access=access)
        assert not await qm.open(name).exists()


@covers(
    "Queue.grant: IllegalUser", "Queue.set_owner: InvalidOwner", "Queue.set_access: IllegalSecurityDescriptor",
)  # fmt: skip
async def test_what_cannot_be_is_refused_with_a_reason(qm: lanner.aio.QueueManager) -> None:
    queue = await closed(qm)
    how = "give a user or group of `lanner user list`, a Unix user, Everyone, Anonymous, Administrators, or a SID"
    await refused(errors.IllegalUser, f"there is no account 'nobody-here': {how}", queue.grant("nobody-here", "send"))
    with pytest.raises(errors.IllegalUser, match="is not a SID"):
        await queue.deny("S-1-nonsense", "send")
    with pytest.raises(errors.InvalidParameter, match="'sing' is no right on a queue: one of full, admin, receive"):
        await queue.grant("Everyone", "sing")
    with pytest.raises(errors.InvalidParameter, match="which rights"):
        await queue.deny("Everyone")
    for who in ("Anonymous", "Everyone", "Authenticated Users"):
        text = f"{who} cannot own a queue: an owner may change its access list"
        await refused(errors.InvalidOwner, text, queue.set_owner(who))
    with pytest.raises(errors.InvalidOwner):
        await queue.set_access("O:WD")
    for text in ("", "D:(A;;GA;;;BA", "D:(A;;0x1000;;;BA)"):
        with pytest.raises(errors.IllegalSecurityDescriptor):
            await queue.set_access(text)
    assert (await queue.access()).sddl == "O:BAD:(A;;0xf003f;;;BA)"
    for part in (queue.journal, qm.dead_letter):
        with pytest.raises(errors.IllegalOperation, match="has no access list"):
            await part.access()
        with pytest.raises(errors.IllegalOperation, match="has no access list"):
            await part.grant("Everyone", "full")
    with pytest.raises(errors.QueueNotFound):
        await qm.open(new_name()).access()


@covers("Queue.grant: IllegalOperation")
async def test_the_rights_of_the_list_decide_who_changes_it(qm: lanner.aio.QueueManager, place: Place) -> None:
    queue = await closed(qm)
    who = await bob_of(place, qm)
    async with place.as_bob(qm) as bob:
        theirs = bob.open(queue.name)
        text = f"bob has no right CHANGE_QUEUE_PERMISSIONS on queue {queue.path_name}"
        await refused(errors.AccessDenied, text, theirs.grant(who, "full"))
        await refused(errors.AccessDenied, text, theirs.set_access("D:(A;;GA;;;WD)"))
        # Not even that the change would lock its maker out.
        await refused(errors.AccessDenied, text, theirs.revoke("Administrators"))
        text = f"bob has no right GET_QUEUE_PERMISSIONS on queue {queue.path_name}"
        await refused(errors.AccessDenied, text, theirs.access())
        text = f"bob has no right TAKE_QUEUE_OWNERSHIP on queue {queue.path_name}"
        await refused(errors.AccessDenied, text, theirs.set_owner(who))
        await queue.grant(who, "admin")
        text = f"bob cannot make {STRANGER} the owner of a queue, only itself"
        await refused(errors.AccessDenied, text, theirs.set_owner(STRANGER))
        await theirs.grant("Everyone", "send")
        await theirs.deny("Anonymous", "send")
        with pytest.raises(errors.IllegalOperation, match=r"bob could not change the access list of .* use --force"):
            await theirs.revoke(who)
        with pytest.raises(errors.IllegalOperation, match="use --force"):
            await theirs.deny("Everyone", "change-permissions")
        await theirs.set_owner(who)
        # The owner may change the list without an entry.
        await theirs.revoke(who)
        await theirs.grant("Owner", "peek", force=True)
        await refused(
            errors.AccessDenied,
            f"bob has no right CHANGE_QUEUE_PERMISSIONS on queue {queue.path_name}",
            theirs.grant(who, "full"),
        )
    assert await entries_of(queue)


async def test_words_grant_what_they_say(qm: lanner.aio.QueueManager, place: Place) -> None:
    """Each word alone is enough for what it names."""
    queue = await closed(qm)
    who = await bob_of(place, qm)
    await queue.send("x")
    async with place.as_bob(qm) as bob:
        theirs = bob.open(queue.name)
        await queue.grant(who, "send")
        await theirs.send("y")
        with pytest.raises(errors.AccessDenied):
            await theirs.peek(0)
        await queue.grant(who, "peek")
        assert (await theirs.peek(0)).body == "x"
        with pytest.raises(errors.AccessDenied):
            await theirs.receive(0)
        await queue.grant(who, "receive")
        assert (await theirs.receive(0)).body == "x"
        with pytest.raises(errors.AccessDenied):
            await theirs.set(label="theirs")
        await queue.grant(who, "admin")
        await theirs.set(label="theirs")
        await queue.set_access(CLOSED)
        await queue.grant(who, "full")
        assert (await queue.access()).entries == (
            AccessEntry("Administrators", "S-1-5-32-544", "allow", ("full",)),
            AccessEntry("bob" if place.service is not None else who, who, "allow", ("full",)),
        )
        await bob.delete_queue(queue.name)
