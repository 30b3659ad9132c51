"""A queue manager of the service as a member of a Samba domain."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanner.daemon.domain import member_of
from lanner.daemon.settings import DirectoryTable, Settings, SettingsError, load_settings
from lanner.directory.ldap import CachedDirectory
from lanner.host.addresses import local_settings
from lanner.host.runtime import Runtime
from lanner.security.profile import Profile
from tests.active_directory.conftest import World
from tests.active_directory.domain import ADDRESS, PASSWORD


def settings_of(world: World, path: Path, **changes: object) -> DirectoryTable:
    secret = path / "password"
    secret.write_text(f"{PASSWORD}\n")
    table: dict[str, object] = {
        "domain": "mq.test",
        "name_servers": [ADDRESS],
        "account": f"MQ\\{world.computer}$",
        "password_file": secret,
        "site": world.site_name,
    }
    return DirectoryTable.model_validate(table | changes)


def test_a_new_queue_manager_takes_the_identifier_of_its_object(world: World, tmp_path: Path) -> None:
    member = member_of(settings_of(world, tmp_path), tmp_path / "data", Profile.SAFE)
    assert member is not None
    assert member.site == world.site
    member.directory._patience = 60
    settings = local_settings(
        world.computer,
        directory_integrated=True,
        dns_domain="mq.test",
        site_identifiers=(str(member.site),),
        profile=Profile.SAFE,
    )
    for _ in range(2):
        runtime = Runtime(tmp_path / "data", settings, member.directory)
        try:
            manager = runtime.engine.queue_manager
            assert manager.identifier == world.domain.guid(world.dn)
            assert manager.site_identifier_list == [world.site]
            found = world.domain.attributes(world.dn)
            assert found["mSMQEncryptKey"] == [manager.public_encryption_key_list]
            keys = world.domain.attributes(world.computer_dn)["mSMQSignCertificates"]
            assert keys == [manager.public_signing_key_list]
        finally:
            runtime.close()
    member.directory.close()


def test_a_domain_that_cannot_be_used(world: World, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(SettingsError, match="the domain has no such site"):
        member_of(settings_of(world, tmp_path, site="nowhere"), data, Profile.SAFE)
    with pytest.raises(SettingsError, match="the domain cannot be reached as the account"):
        member_of(settings_of(world, tmp_path, account="MQ\\nobody$"), data, Profile.SAFE)
    with pytest.raises(SettingsError, match=r"directory\.password_file or directory\.keytab is needed"):
        member_of(settings_of(world, tmp_path, password_file=None), data, Profile.SAFE)
    # A queue manager that was there before starts without its domain.
    data.mkdir()
    (data / "something").touch()
    member = member_of(settings_of(world, tmp_path, account="MQ\\nobody$"), data, Profile.SAFE)
    assert member is not None
    assert isinstance(member.directory, CachedDirectory)
    assert member.site is None


def test_without_a_domain(tmp_path: Path) -> None:
    assert member_of(Settings().directory, tmp_path, Profile.SAFE) is None
    config = tmp_path / "lanner.toml"
    for text, why in (
        ('domain = "mq"', "the DNS name of a domain"),
        ('domain = "mq.test"', r"directory\.account is needed"),
        ('name_servers = ["dns.mq.test"]', "is no address"),
    ):
        config.write_text(f"[directory]\n{text}\n")
        with pytest.raises(SettingsError, match=why):
            load_settings(config, {})
