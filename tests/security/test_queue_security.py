"""MS-MQDMPR 3.1.7.1.3.1 and 3.1.1.1: default descriptors, and which bits an entry may use."""

from __future__ import annotations

import pytest

from lanner.model.errors import IllegalSecurityDescriptor, InvalidOwner
from lanner.security.identity import ANONYMOUS, SYSTEM, Identity
from lanner.security.profile import Profile
from lanner.security.queue_security import (
    Guarded,
    check_owner,
    check_rights,
    checked_descriptor,
    create_default_queue_security_descriptor,
    default_connected_network_security,
    default_enterprise_security,
    default_queue_manager_security,
    default_site_security,
    is_open_default,
    without_anonymous_owner,
)
from lanner.wire.sddl import format_sddl, parse_sddl
from lanner.wire.security_descriptor import Acl, Control, SecurityDescriptor, allow
from lanner.wire.sid import EVERYONE, Sid

DOMAIN = Sid.parse("S-1-5-21-1-2-3")
ALICE = Identity("alice", DOMAIN.child(1000), is_domain_user=True)
BOB = DOMAIN.child(1001)
GUEST = Identity("guest", DOMAIN.child(501), is_domain_user=True, is_guest=True)
HOST = DOMAIN.child(2000)


def text(data: bytes) -> str:
    return format_sddl(SecurityDescriptor.unpack(data))


def create(
    supplied: str | None = None,
    caller: Identity = ALICE,
    *,
    host: Sid | None = None,
    integrated: bool = False,
    srmp: bool = False,
    profile: Profile = Profile.DOCUMENT,
) -> str:
    data = create_default_queue_security_descriptor(
        None if supplied is None else parse_sddl(supplied).pack(),
        caller,
        profile=profile,
        machine_sid=(lambda: host) if integrated else None,
        is_domain_user=lambda sid: sid.domain == DOMAIN,
        reachable_over_srmp=srmp,
    )
    return text(data)


@pytest.mark.spec("DMPR-3.1.7.1.3.1-1")
def test_the_machine_gets_its_entry_only_when_the_directory_knows_its_sid() -> None:
    with_host = create(integrated=True, host=HOST)
    assert f"(A;;0x20020;;;{HOST})" in with_host
    assert create(integrated=True, host=None) == with_host.replace(f"(A;;0x20020;;;{HOST})", "")
    assert create() == create(integrated=True, host=None)


@pytest.mark.spec("DMPR-3.1.7.1.3.1-2")
def test_supplied_lists_are_kept_and_keep_the_default_entries_out() -> None:
    supplied = f"O:{ALICE.sid}G:BAD:P(D;;0x4;;;AN)(A;;0x2;;;WD)S:(AU;FA;0x3;;;WD)"
    assert create(supplied, integrated=True, host=HOST, srmp=True) == supplied
    # An empty list is a list; so is a NULL one.
    assert create(f"O:{ALICE.sid}D:") == f"O:{ALICE.sid}D:"
    assert create(f"O:{ALICE.sid}D:NO_ACCESS_CONTROL") == f"O:{ALICE.sid}D:NO_ACCESS_CONTROL"
    # A SACL alone is kept, and does not stand in for the DACL.
    kept = create("S:(AU;FA;0x3;;;WD)")
    assert kept == f"O:{ALICE.sid}D:(A;;0x20020;;;WD)(A;;0xf003f;;;{ALICE.sid})S:(AU;FA;0x3;;;WD)"


@pytest.mark.spec("DMPR-3.1.7.1.3.1-3")
@pytest.mark.parametrize(
    ("supplied", "caller", "owner"),
    [
        (None, ALICE, str(ALICE.sid)),
        (f"O:{BOB}", ALICE, str(BOB)),
        (f"O:{BOB}", ANONYMOUS, str(BOB)),
        (None, ANONYMOUS, "AN"),
        (None, SYSTEM, "AN"),
        ("O:S-1-5-21-9-9-9-1000", ALICE, "AN"),
        ("O:BAD:(A;;0x4;;;WD)", ALICE, "AN"),
    ],
)
def test_the_owner_is_supplied_or_the_caller_and_must_be_a_domain_user(
    supplied: str | None, caller: Identity, owner: str
) -> None:
    assert create(supplied, caller).startswith(f"O:{owner}D:")


@pytest.mark.spec("DMPR-3.1.7.1.3.1-4")
@pytest.mark.parametrize(
    ("supplied", "caller", "owner"),
    [
        (None, GUEST, str(GUEST.sid)),
        (f"O:{GUEST.sid}", ALICE, str(GUEST.sid)),
        (None, ANONYMOUS, "AN"),
        ("O:S-1-5-21-9-9-9-1000", ALICE, "AN"),
    ],
)
def test_everyone_gets_everything_when_nobody_real_owns_the_queue(
    supplied: str | None, caller: Identity, owner: str
) -> None:
    assert create(supplied, caller) == f"O:{owner}D:(A;;0xf003f;;;WD)"


@pytest.mark.spec("DMPR-3.1.7.1.3.1-5")
def test_a_domain_user_owns_its_queue_and_everyone_may_look_at_it() -> None:
    assert create() == f"O:{ALICE.sid}D:(A;;0x20020;;;WD)(A;;0xf003f;;;{ALICE.sid})"
    assert create(f"O:{BOB}") == f"O:{BOB}D:(A;;0x20020;;;WD)(A;;0xf003f;;;{BOB})"


@pytest.mark.spec("DMPR-3.1.7.1.3.1-6")
def test_a_queue_reached_over_srmp_takes_messages_from_everyone_and_from_anonymous() -> None:
    assert create(srmp=True) == f"O:{ALICE.sid}D:(A;;0x20024;;;WD)(A;;0x4;;;AN)(A;;0xf003f;;;{ALICE.sid})"
    assert create(caller=ANONYMOUS, srmp=True) == "O:AND:(A;;0xf003f;;;WD)(A;;0x4;;;AN)"


@pytest.mark.spec("DMPR-3.1.7.1.3.1-7")
def test_order_of_the_entries_and_self_relative_form() -> None:
    data = create_default_queue_security_descriptor(
        None, ALICE, profile=Profile.DOCUMENT, machine_sid=lambda: HOST, reachable_over_srmp=True
    )
    descriptor = SecurityDescriptor.unpack(data)
    assert descriptor.dacl is not None
    assert [str(ace.sid) for ace in descriptor.dacl.aces] == ["S-1-1-0", "S-1-5-7", str(HOST), str(ALICE.sid)]
    assert Control.SELF_RELATIVE in Control(int.from_bytes(data[2:4], "little"))
    assert data == descriptor.pack()


KINDS = {
    Guarded.QUEUE_MANAGER: 0x000F_00F7,
    Guarded.QUEUE: 0x000F_003F,
    Guarded.SITE: 0x000F_0037,
    Guarded.ENTERPRISE: 0x000F_0037,
    Guarded.CONNECTED_NETWORK: 0x000F_0031,
}


@pytest.mark.spec("DMPR-3.1.1.1-4")
@pytest.mark.parametrize("place", range(32))
@pytest.mark.parametrize("kind", Guarded)
def test_entries_use_only_bits_of_their_own_enumeration(kind: Guarded, place: int) -> None:
    descriptor = SecurityDescriptor(dacl=Acl((allow(EVERYONE, 1 << place),)))
    if KINDS[kind] >> place & 1:
        check_rights(descriptor, kind)
    else:
        with pytest.raises(IllegalSecurityDescriptor, match=f"{1 << place:#x} is no right"):
            check_rights(descriptor, kind)


@pytest.mark.spec("DMPR-3.1.1.1-4")
@pytest.mark.parametrize("profile", Profile)
def test_the_defaults_pass_their_own_check(profile: Profile) -> None:
    queue = create_default_queue_security_descriptor(None, ALICE, profile=profile, machine_sid=lambda: HOST)
    defaults = {
        Guarded.QUEUE: queue,
        Guarded.QUEUE_MANAGER: default_queue_manager_security(ALICE, profile=profile, machine_sid=HOST),
        Guarded.SITE: default_site_security(ALICE, profile=profile),
        Guarded.ENTERPRISE: default_enterprise_security(ALICE, profile=profile),
        Guarded.CONNECTED_NETWORK: default_connected_network_security(ALICE, profile=profile),
    }
    for kind, data in defaults.items():
        assert checked_descriptor(data, kind).pack() == data


def test_a_descriptor_that_is_set_has_its_generic_rights_mapped() -> None:
    checked = checked_descriptor(parse_sddl("D:(A;;GR;;;WD)(A;;GA;;;BA)").pack(), Guarded.QUEUE)
    assert format_sddl(checked) == "D:(A;;0x2002b;;;WD)(A;;0xf003f;;;BA)"


def test_fail_bytes_that_are_no_descriptor() -> None:
    with pytest.raises(IllegalSecurityDescriptor, match="security descriptor header"):
        checked_descriptor(b"\x01", Guarded.QUEUE)


def test_defaults_of_the_other_objects() -> None:
    """MS-MQDSSM 3.1.6.1.1.8 and 3.1.6.1.3.4; enterprise and connected network follow the site."""
    assert text(default_queue_manager_security(ALICE)) == (
        f"O:{ALICE.sid}D:(A;;0x20020;;;WD)(A;;0xf00f7;;;{ALICE.sid})"
    )
    assert text(default_queue_manager_security(ALICE, machine_sid=HOST, is_foreign=True)) == (
        f"O:{ALICE.sid}D:(A;;0x20024;;;WD)(A;;0xf00f7;;;{HOST})(A;;0x20034;;;{HOST})(A;;0xf00f7;;;{ALICE.sid})"
    )
    document = Profile.DOCUMENT
    read, every = "(A;;0x20020;;;WD)", f"(A;;0xf0037;;;{ALICE.sid})"
    assert text(default_site_security(ALICE, profile=document)) == f"O:{ALICE.sid}D:{read}{every}"
    assert text(default_site_security(ANONYMOUS, profile=document)) == "O:AND:(A;;0xf0037;;;WD)"
    assert text(default_enterprise_security(ALICE, profile=document)) == f"O:{ALICE.sid}D:(A;;0x20021;;;WD){every}"
    network = default_connected_network_security(GUEST, profile=document)
    assert text(network) == f"O:{GUEST.sid}D:(A;;0xf0031;;;WD)"


# Safe defaults
# --------------------------------------------------------------------------------------------

SENDERS = "(A;;0x4;;;WD)(A;;0x4;;;AN)"
ADMINISTRATORS = "(A;;0xf003f;;;BA)"
UNIX_USER = Identity("carol", Sid.parse("S-1-22-1-1000"))
UNKNOWN = "S-1-5-21-9-9-9-1000"


@pytest.mark.parametrize("caller", [ALICE, UNIX_USER], ids=lambda caller: caller.name)
def test_the_account_that_makes_a_queue_owns_it_and_everybody_may_send(caller: Identity) -> None:
    """DECISIONS, safe defaults: creator and Administrators have full control, all others send."""
    full = f"(A;;0xf003f;;;{caller.sid})"
    assert create(None, caller, profile=Profile.SAFE) == f"O:{caller.sid}D:{full}{ADMINISTRATORS}{SENDERS}"
    with_host = create(None, caller, integrated=True, host=HOST, srmp=True, profile=Profile.SAFE)
    assert with_host == f"O:{caller.sid}D:{full}{ADMINISTRATORS}{SENDERS}(A;;0x20020;;;{HOST})"


@pytest.mark.parametrize("caller", [SYSTEM, ANONYMOUS, GUEST], ids=lambda caller: caller.name)
@pytest.mark.parametrize("supplied", [None, "O:AN", "O:WD", "O:AU", "O:SY", f"O:{GUEST.sid}"])
def test_administrators_own_what_no_account_made(caller: Identity, supplied: str | None) -> None:
    assert create(supplied, caller, profile=Profile.SAFE) == f"O:BAD:{ADMINISTRATORS}{SENDERS}"


@pytest.mark.parametrize("owner", ["AN", "WD", "AU", "OW", "SY", str(GUEST.sid), UNKNOWN])
def test_an_owner_that_nobody_proves_to_be_is_replaced_by_the_creator(owner: str) -> None:
    supplied = "D:(A;;0x2;;;WD)"
    assert create(f"O:{owner}{supplied}", ALICE, profile=Profile.SAFE) == f"O:{ALICE.sid}{supplied}"


def test_a_creator_may_name_another_known_owner() -> None:
    owned = create(f"O:{BOB}", ALICE, profile=Profile.SAFE)
    assert owned == f"O:{BOB}D:(A;;0xf003f;;;{BOB})(A;;0xf003f;;;{ALICE.sid}){ADMINISTRATORS}{SENDERS}"
    assert create("O:BA", ALICE, profile=Profile.SAFE).startswith("O:BAD:")
    # Root knows whom it names.
    assert create(f"O:{UNKNOWN}", SYSTEM, profile=Profile.SAFE).startswith(f"O:{UNKNOWN}D:")


def test_supplied_lists_are_kept_in_the_safe_profile_too() -> None:
    supplied = f"O:{ALICE.sid}G:BAD:P(D;;0x4;;;AN)(A;;0x2;;;WD)S:(AU;FA;0x3;;;WD)"
    assert create(supplied, profile=Profile.SAFE) == supplied


@pytest.mark.parametrize("caller", [SYSTEM, ANONYMOUS, GUEST], ids=lambda caller: caller.name)
def test_other_objects_are_owned_by_administrators_too(caller: Identity) -> None:
    assert text(default_site_security(caller)) == "O:BAD:(A;;0x20020;;;WD)(A;;0xf0037;;;BA)"
    assert text(default_enterprise_security(caller)) == "O:BAD:(A;;0x20021;;;WD)(A;;0xf0037;;;BA)"
    assert text(default_connected_network_security(caller)).startswith("O:BAD:")
    assert text(default_queue_manager_security(ANONYMOUS)) == "O:BAD:(A;;0x20020;;;WD)(A;;0xf00f7;;;BA)"
    supplied = parse_sddl("O:AN").pack()
    assert text(default_queue_manager_security(caller, supplied)).startswith("O:BAD:")


@pytest.mark.parametrize("owner", ["AN", "WD", "AU", "OW"])
def test_fail_to_make_an_unproven_account_the_owner(owner: str) -> None:
    with pytest.raises(InvalidOwner, match="cannot own a queue"):
        check_owner(parse_sddl(f"O:{owner}").owner)
    check_owner(BOB)
    check_owner(None)


# Migration
# ------------------------------------------------------------------------------------------------

OPEN = "(A;;0xf003f;;;WD)"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"O:AND:{OPEN}", f"O:BAD:{ADMINISTRATORS}{SENDERS}"),
        (f"O:AND:{OPEN}(A;;0x4;;;AN)", f"O:BAD:{ADMINISTRATORS}{SENDERS}"),
        (f"O:AND:{OPEN}(A;;0x20020;;;{HOST})", f"O:BAD:{ADMINISTRATORS}{SENDERS}(A;;0x20020;;;{HOST})"),
        (f"O:ANG:BAD:{OPEN}", f"O:BAG:BAD:{ADMINISTRATORS}{SENDERS}"),
        # Each of these differs from the default in one thing, so an operator made it.
        ("O:AND:", "O:BAD:"),
        ("O:AND:(A;;0x4;;;WD)", "O:BAD:(A;;0x4;;;WD)"),
        (f"O:AND:{OPEN}(A;;0xf003f;;;{BOB})", f"O:BAD:{OPEN}(A;;0xf003f;;;{BOB})"),
        (f"O:AND:{OPEN}(A;;0x2;;;AN)", f"O:BAD:{OPEN}(A;;0x2;;;AN)"),
        (f"O:AND:(D;;0x4;;;{BOB}){OPEN}", f"O:BAD:(D;;0x4;;;{BOB}){OPEN}"),
        (f"O:AND:{OPEN}(A;;0x4;;;WD)", f"O:BAD:{OPEN}(A;;0x4;;;WD)"),
        ("O:AND:(A;ID;0xf003f;;;WD)", "O:BAD:(A;ID;0xf003f;;;WD)"),
        ("O:AND:NO_ACCESS_CONTROL", "O:BAD:NO_ACCESS_CONTROL"),
        ("O:AN", "O:BA"),
    ],
)
def test_an_anonymous_owner_is_replaced_and_a_hand_made_list_kept(before: str, after: str) -> None:
    assert format_sddl(without_anonymous_owner(parse_sddl(before))) == after


@pytest.mark.parametrize("host", [None, HOST])
@pytest.mark.parametrize("srmp", [False, True])
def test_the_default_of_the_documents_is_recognised(srmp: bool, host: Sid | None) -> None:
    made = create(None, SYSTEM, integrated=True, host=host, srmp=srmp)
    assert is_open_default(parse_sddl(made))
