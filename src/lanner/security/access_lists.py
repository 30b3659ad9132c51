"""Access lists of queues in words: the text form of a descriptor, and changes to it.

`AccessList` is the form for users and programs. `AccessChange` is one change in words; `changed`
applies it. A right is never both granted and denied to an account: a grant removes it from the
account's denying entries, and a denial from the allowing ones. The result is in canonical order
(MS-DTYP 2.4.5): explicit entries before inherited ones, and within each the denying ones first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from lanner.model.errors import IllegalOperation, IllegalSecurityDescriptor, InvalidOwner, InvalidParameter
from lanner.security.access import ALLOWING, DENYING, access_check
from lanner.security.access_masks import QueueAccess
from lanner.security.accounts import Accounts
from lanner.security.identity import Identity
from lanner.security.queue_rights import mask_of, words_of
from lanner.security.queue_security import NO_OWNERS
from lanner.wire.sddl import format_sddl, parse_sddl
from lanner.wire.security_descriptor import (
    MAX_ACL_SIZE,
    Ace,
    AceFlags,
    AceType,
    Acl,
    SecurityDescriptor,
    SecurityInformation,
    allow,
    deny,
)
from lanner.wire.sid import (
    ANONYMOUS_LOGON,
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    LOCAL_SYSTEM,
    Sid,
)

_ALL: Final = int(QueueAccess.GENERIC_ALL)
# The parts that GET_QUEUE_PERMISSIONS shows: the SACL needs a privilege.
SHOWN: Final = SecurityInformation.OWNER | SecurityInformation.GROUP | SecurityInformation.DACL
# The shortest entry has 20 bytes: 8, and a SID with one number.
MAX_ENTRIES: Final = MAX_ACL_SIZE // 20
# An entry is longer as text than as bytes, but by less than a factor of four.
MAX_SDDL: Final = 4 * MAX_ACL_SIZE
# The maximum number of words for the rights of one account.
MAX_WORDS: Final = 100
_MAX_RIGHTS_TEXT: Final = 4096


@dataclass(frozen=True, slots=True)
class AccessEntry:
    """One entry of an access list. `access` is "allow" or "deny"."""

    account: str
    sid: str
    access: str
    rights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AccessList:
    """The owner and the entries of a queue, in the order in which they are checked.

    `entries` None: the queue has no list, and everyone has all rights. `sddl` is None if the
    descriptor has entries without a text form. `own` has the rights of the user who asks, by this
    list and by role; None: the queue manager does not say.
    """

    owner: str | None
    owner_sid: str | None
    entries: tuple[AccessEntry, ...] | None
    sddl: str | None
    own: tuple[str, ...] | None = None

    @classmethod
    def of(cls, descriptor: SecurityDescriptor, accounts: Accounts, own: int | None = None) -> AccessList:
        owner, dacl = descriptor.owner, descriptor.dacl
        return cls(
            None if owner is None else accounts.name_of(owner),
            None if owner is None else str(owner),
            None if dacl is None else tuple(_entry(ace, accounts) for ace in dacl.aces),
            descriptor_text(descriptor),
            None if own is None else words_of(own),
        )

    def may(self, word: str) -> bool | None:
        """Return whether the user who asks has a right; None if it is not known."""
        if self.own is None:
            return None
        wanted = mask_of([word])
        return wanted & mask_of(self.own) == wanted

    def document(self) -> dict[str, Any]:
        """Return the list in the form of JSON."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> AccessList:
        entries = document["entries"]
        if entries is not None:
            entries = tuple(AccessEntry(**{**entry, "rights": tuple(entry["rights"])}) for entry in entries)
        own = document.get("own")
        return cls(
            document["owner"],
            document["owner_sid"],
            entries,
            document["sddl"],
            None if own is None else tuple(own),
        )


def descriptor_text(descriptor: SecurityDescriptor) -> str | None:
    """Return owner, group and list as SDDL; None if there are entries without a text form."""
    try:
        return format_sddl(descriptor.select(SHOWN))
    except ValueError:
        return None


def _entry(ace: Ace, accounts: Accounts) -> AccessEntry:
    access = "allow" if ace.ace_type in ALLOWING else "deny" if ace.ace_type in DENYING else AceType(ace.ace_type).name
    return AccessEntry(accounts.name_of(ace.sid), str(ace.sid), access, words_of(ace.mask))


@dataclass(frozen=True, slots=True)
class AccessChange:
    """A change of a queue's descriptor in words.

    `verb` is "grant", "deny", "revoke" (without rights: all entries of the account), "owner", or
    "set", which replaces the parts that `sddl` contains.
    """

    verb: str
    who: str = ""
    rights: tuple[str, ...] = ()
    sddl: str = ""
    # The descriptor in `sddl`, once it has been parsed.
    given: tuple[SecurityDescriptor, SecurityInformation] | None = None

    def read(self) -> AccessChange:
        """Parse the text, which takes time if it is long: do not hold the store's lock."""
        return replace(self, given=read_sddl(self.sddl)) if self.verb == "set" and self.given is None else self

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> AccessChange:
        """Parse a change from a client. Raises InvalidParameter if it is malformed."""
        texts = [document.get(key, "") for key in ("verb", "who", "sddl")]
        rights = document.get("rights", [])
        if not isinstance(rights, list) or not all(isinstance(text, str) for text in (*texts, *rights)):
            raise InvalidParameter("an access change has the texts `verb`, `who` and `sddl`, and the list `rights`")
        verb, who, sddl = texts
        return cls(verb, who, tuple(rights), sddl)


def changed(
    descriptor: SecurityDescriptor, change: AccessChange, accounts: Accounts
) -> tuple[SecurityDescriptor, SecurityInformation]:
    """Return the descriptor after a change, and the parts that the change is about.

    Raises IllegalUser for an unknown account, InvalidParameter for an unknown right,
    IllegalSecurityDescriptor for text that is no SDDL, and InvalidOwner.
    """
    if change.verb == "set":
        given, parts = change.given or read_sddl(change.sddl)
        if given.owner != descriptor.owner:
            _check_owner(given.owner, accounts)
        return descriptor.update(given, parts), parts
    who = accounts.sid_of(change.who)
    if change.verb == "owner":
        _check_owner(who, accounts)
        return replace(descriptor, owner=who), SecurityInformation.OWNER
    if change.verb not in ("grant", "deny", "revoke"):
        raise InvalidParameter(f"access {change.verb!r}: one of grant, deny, revoke, owner, set")
    mask = _mask_of(change.rights)
    if not mask and change.verb != "revoke":
        raise InvalidParameter(f"{change.verb} {change.who} which rights? Give at least one")
    aces = list(_explicit(descriptor))
    if change.verb == "revoke":
        aces = _without(aces, who, mask or ~0, ALLOWING | DENYING)
    elif change.verb == "grant":
        aces = _with(_without(aces, who, mask, DENYING), allow(who, mask))
    else:
        aces = _with(_without(aces, who, mask, ALLOWING), deny(who, mask))
    revision = Acl().revision if descriptor.dacl is None else descriptor.dacl.revision
    return replace(descriptor, dacl=Acl(_canonical(aces), revision)), SecurityInformation.DACL


def new_descriptor(
    access: Mapping[str, str | Iterable[str]] | str, accounts: Accounts, creator: Sid
) -> SecurityDescriptor:
    """Return the descriptor for a new queue, from SDDL or from rights in words by account.

    With words, the creator and the Administrators get all rights in addition.
    """
    if isinstance(access, str):
        descriptor = read_sddl(access)[0]
        _check_owner(descriptor.owner, accounts)
        return descriptor
    # The queue manager itself needs no entry, and an anonymous creator gets none.
    creators = () if creator in (LOCAL_SYSTEM, ANONYMOUS_LOGON) else (creator,)
    masks = dict.fromkeys((*creators, BUILTIN_ADMINISTRATORS), _ALL)
    if len(access) > MAX_ENTRIES:
        raise IllegalSecurityDescriptor(f"an access list of {len(access)} entries, at most {MAX_ENTRIES}")
    for who, rights in access.items():
        mask = _mask_of([rights] if isinstance(rights, str) else list(rights))
        if not mask:
            raise InvalidParameter(f"access of {who}: which rights? Give at least one")
        sid = accounts.sid_of(who)
        masks[sid] = masks.get(sid, 0) | mask
    return SecurityDescriptor(dacl=Acl(tuple(allow(sid, mask) for sid, mask in masks.items())))


def _mask_of(words: Sequence[str]) -> int:
    if len(words) > MAX_WORDS or sum(map(len, words)) > _MAX_RIGHTS_TEXT:
        raise IllegalSecurityDescriptor(f"too many words for the rights of one account, at most {MAX_WORDS}")
    return mask_of(words)


def packed(descriptor: SecurityDescriptor) -> bytes:
    """Return a descriptor as bytes. Raises IllegalSecurityDescriptor if a list is too large."""
    try:
        return descriptor.pack()
    except ValueError as error:
        raise IllegalSecurityDescriptor(str(error)) from None


def read_sddl(text: str) -> tuple[SecurityDescriptor, SecurityInformation]:
    """Return a descriptor and the parts that its text contains.

    Raises IllegalSecurityDescriptor.
    """
    if len(text) > MAX_SDDL or text.count("(") > MAX_ENTRIES:
        raise IllegalSecurityDescriptor(
            f"SDDL of {len(text)} characters with {text.count('(')} entries: at most {MAX_SDDL} and {MAX_ENTRIES}"
        )
    try:
        given = parse_sddl(text.strip())
    except ValueError as error:
        raise IllegalSecurityDescriptor(str(error)) from None
    parts = SecurityInformation(0)
    for part, is_there in (
        (SecurityInformation.OWNER, given.owner is not None),
        (SecurityInformation.GROUP, given.group is not None),
        (SecurityInformation.DACL, given.has_dacl),
        (SecurityInformation.SACL, given.has_sacl),
    ):
        if is_there:
            parts |= part
    if not parts:
        raise IllegalSecurityDescriptor("SDDL: it has no owner and no list")
    return given, parts


def refuse_lock_out(before: SecurityDescriptor, after: SecurityDescriptor, identity: Identity, queue: str) -> None:
    """Raise IllegalOperation if `identity` loses the right to change the list by its own change."""
    right = QueueAccess.CHANGE_QUEUE_PERMISSIONS
    if access_check(before, identity, right) and not access_check(after, identity, right):
        raise IllegalOperation(
            f"after this change {identity.name} could not change the access list of {queue} any more: "
            "use --force (force=True) if you want this"
        )


def _check_owner(owner: Sid | None, accounts: Accounts) -> None:
    if owner is not None and owner in NO_OWNERS:
        raise InvalidOwner(f"{accounts.name_of(owner)} cannot own a queue: an owner may change its access list")


def _explicit(descriptor: SecurityDescriptor) -> tuple[Ace, ...]:
    """Return the entries; if there is no list, the entries that mean the same."""
    if descriptor.dacl is None:
        return allow(EVERYONE, _ALL), allow(ANONYMOUS_LOGON, _ALL)
    return descriptor.dacl.aces


def _is_plain(ace: Ace) -> bool:
    """Return whether an entry is of the kind that grants and denials create here.

    The mask of such an entry may be changed.
    """
    return ace.ace_type in (AceType.ACCESS_ALLOWED, AceType.ACCESS_DENIED) and not ace.flags


def _with(aces: list[Ace], new: Ace) -> list[Ace]:
    """Add rights to the account's entry of the same kind, or add an entry."""
    for index, ace in enumerate(aces):
        if _is_plain(ace) and (ace.sid, ace.ace_type) == (new.sid, new.ace_type):
            return [*aces[:index], replace(ace, mask=ace.mask | new.mask), *aces[index + 1 :]]
    return [*aces, new]


def _without(aces: Iterable[Ace], who: Sid, mask: int, kinds: frozenset[AceType]) -> list[Ace]:
    """Remove rights from the entries of an account; an entry without rights is removed."""
    kept = []
    for ace in aces:
        if ace.sid == who and ace.ace_type in kinds:
            ace = replace(ace, mask=ace.mask & ~mask)  # noqa: PLW2901 (the same entry with fewer rights)
            if not ace.mask:
                continue
        kept.append(ace)
    return kept


def _canonical(aces: Iterable[Ace]) -> tuple[Ace, ...]:
    return tuple(sorted(aces, key=lambda ace: (AceFlags.INHERITED in ace.flags, ace.ace_type not in DENYING)))
