"""An Active Directory of Samba for tests: a domain controller on a loopback address, with what a test puts into it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SCRIPT: Final = Path(__file__).with_name("samba_dc.sh")
ADDRESS: Final = "127.0.0.10"
EXPORT: Final = ("samba-tool", "domain", "exportkeytab")
REALM: Final = "MQ.TEST"
DOMAIN: Final = "MQ"
ADMINISTRATOR_PASSWORD: Final = "Passw0rd.mq"


def is_missing() -> str | None:
    """Return what a domain controller needs and this machine does not have."""
    if os.geteuid():
        return "root"
    if shutil.which("samba", path="/usr/sbin:/usr/bin") is None:
        return "samba"
    if not Path("/usr/share/samba/setup/ad-schema").is_dir():
        return "samba-ad-provision"
    return None


class SambaDomain:
    """The domain MQ.TEST, while it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.krb5_config = folder / "krb5.conf"

    @property
    def environment(self) -> Mapping[str, str]:
        """What Kerberos needs to find the domain, with tickets in memory."""
        return {
            "KRB5_CONFIG": str(self.krb5_config),
            "KRB5CCNAME": "MEMORY:",
            "KRB5RCACHEDIR": str(self.folder),
        }

    def tool(self, *arguments: str | Path) -> str:
        """Run samba-tool on the database of the domain controller."""
        where = ["-H", self.folder / "private" / "sam.ldb", "-s", self.folder / "etc" / "smb.conf"]
        ran = subprocess.run(
            ["samba-tool", *arguments, *where], capture_output=True, text=True, check=False, env=self._clean
        )
        if ran.returncode:
            raise AssertionError(f"samba-tool {arguments}: {ran.stderr}")
        return ran.stdout

    def add_computer(self, name: str, *services: str) -> Path:
        """Add a computer with principals for its services. Return its keytab."""
        names = [f"--service-principal-name={service}" for service in services]
        self.tool("computer", "create", name, *names)
        self.tool("user", "setpassword", f"{name}$", "--newpassword=Comp.pw-12")
        keytab = self.folder / f"{name}.keytab"
        for service in services:
            subprocess.run(
                [*EXPORT, keytab, f"--principal={service}", "-s", self.folder / "etc" / "smb.conf"],
                check=True,
                capture_output=True,
                env=self._clean,
            )
        return keytab

    def sid_of(self, account: str) -> str:
        """Return the SID of a user or group."""
        ran = subprocess.run(
            ["ldbsearch", "-H", self.folder / "private" / "sam.ldb", f"(sAMAccountName={account})", "objectSid"],
            capture_output=True,
            text=True,
            check=True,
            env=self._clean,
        )
        return next(line.split()[1] for line in ran.stdout.splitlines() if line.startswith("objectSid:"))

    @property
    def _clean(self) -> Mapping[str, str]:
        # Samba's tools are Python programs of the system.
        return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@contextmanager
def samba_domain(folder: Path) -> Iterator[SambaDomain]:
    """Run a domain controller."""
    environment = {**os.environ, "DC_IP": ADDRESS, "DC_ADMIN_PW": ADMINISTRATOR_PASSWORD}
    subprocess.run(["bash", SCRIPT, "up", folder], check=True, capture_output=True, env=environment, timeout=120)
    try:
        yield SambaDomain(folder)
    finally:
        subprocess.run(["bash", SCRIPT, "down", folder], check=True, capture_output=True, env=environment)
