"""The directory of a domain, as configured in `[directory]`."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lanner.daemon.settings import SettingsError
from lanner.directory import AttributeFilter, Operator
from lanner.directory.ldap import CachedDirectory, LdapDirectory, Ldaps, LogOn, domain_controllers, named_server
from lanner.engine.settings import NotificationSettings
from lanner.model.directory_objects import Site
from lanner.model.enums import DirectoryOperationResult
from lanner.security.profile import Profile

if TYPE_CHECKING:
    from pathlib import Path

    from lanner.daemon.settings import DirectoryTable


@dataclass(frozen=True, slots=True)
class Membership:
    """The directory of the domain, and the site that this computer belongs to."""

    directory: CachedDirectory
    site: uuid.UUID | None


def member_of(table: DirectoryTable, data: Path, profile: Profile) -> Membership | None:
    """Return the membership that `[directory]` configures; None without a domain.

    A new queue manager needs the domain to be reachable.
    """
    if table.domain is None:
        return None
    directory = LdapDirectory(
        partial(domain_controllers, table.domain, tuple(table.name_servers)),
        log_on(table),
        profile=profile,
        find_server=partial(named_server, servers=tuple(table.name_servers)),
    )
    result = directory.initialize()
    site = None
    if result is DirectoryOperationResult.SUCCESS:
        wanted = [AttributeFilter("Name", Operator.EQUALS, table.site)]
        result, found = directory.read("Site", wanted, ["Name"])
        site = found.identifier if isinstance(found, Site) else None
    is_new = not data.exists() or not any(data.iterdir())
    if site is None and (is_new or result is DirectoryOperationResult.OBJECT_NOT_FOUND):
        raise SettingsError(
            f"directory.domain = {table.domain!r}, directory.site = {table.site!r}: {_reason(result)}"
            "; the log says what was tried"
        )
    return Membership(CachedDirectory(directory), site)


def _reason(result: DirectoryOperationResult) -> str:
    if result is DirectoryOperationResult.OBJECT_NOT_FOUND:
        return "the domain has no such site"
    return f"the domain cannot be reached as the account of this computer ({result.value})"


def notification_settings(table: DirectoryTable) -> NotificationSettings:
    """Return the settings of `[directory]` for change notifications."""
    return NotificationSettings(
        is_delayed=table.notifications == "delayed", sends_version_1=table.notification_version == 1
    )


def log_on(table: DirectoryTable) -> LogOn:
    """Return the computer's account.

    A keytab means Kerberos; a password NTLM, without a library, or LDAPS.
    """
    if table.keytab is not None:
        return LogOn(table.account, keytab=table.keytab, protocol="kerberos")
    if table.password_file is None:
        raise SettingsError(
            "directory.password_file or directory.keytab is needed: a domain answers only clients that log on"
        )
    try:
        password = table.password_file.read_text(encoding="utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"directory.password_file = {str(table.password_file)!r}: {error}") from None
    ldaps = Ldaps(table.domain or "", table.tls_authorities) if table.ldaps else None
    return LogOn(table.account, password, ldaps=ldaps)
