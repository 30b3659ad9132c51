"""Isolated machines for tests: Debian root file systems entered by chroot in namespaces.

debootstrap creates a base system once; it is kept as a tar file below the user's cache directory.
The names of package mirrors come from the configuration of this machine (apt, pip and the
environment) when a test runs, and stay in the copy that the test uses.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
# What README.md asks for. The certificates are data for HTTPS; Debian's own images have them where
# pip is used.
PACKAGES = ("python3", "python3-venv", "make", "ca-certificates")
# An ordinary user of the machine.
VISITOR = 1000
_NAME = "visitor"
HOME = f"/home/{_NAME}"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_PASSED_ON = re.compile(r"PIP_\w+|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|\w+_proxy|\w+_PROXY")
_LOOPBACK_UP = (
    "import fcntl, socket, struct; s = socket.socket(); fcntl.ioctl(s, 0x8914, struct.pack('16sh14x', b'lo', 0x49))"
)


class CannotMakeMachines(Exception):
    """This computer cannot make root file systems; the text says why."""


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lanner"


def mirror() -> list[str]:
    """Return the mirror that this machine's apt uses for the suite, for debootstrap.

    It is a list of one argument, empty if there is no mirror.
    """
    if shutil.which("apt-get") is None:
        return []
    command = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = (line.split() for line in listed.splitlines())
    return next(([uri] for release, uri in found if release == SUITE and "://" in uri), [])


def base() -> Path:
    """Return the tar file of a minimal system with PACKAGES; make it if it is not there."""
    if os.geteuid() != 0:
        raise CannotMakeMachines("only root can make a root file system")
    if shutil.which("debootstrap") is None:
        raise CannotMakeMachines("debootstrap is not installed")
    archive = _cache() / f"{SUITE}-{'-'.join(PACKAGES)}.tar"
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=archive.parent) as name:
        root = Path(name, "root")
        options = ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
        command = ["debootstrap", *options, SUITE, str(root), *mirror()]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise CannotMakeMachines(f"debootstrap does not work here: {result.stdout.strip().splitlines()[-1:]}")
        shutil.rmtree(root / "var" / "cache" / "apt" / "archives")
        (root / "etc" / "apt" / "sources.list").write_text("")
        unfinished = Path(name, "root.tar")
        subprocess.run(["tar", "-C", str(root), "-cf", str(unfinished), "."], check=True)
        unfinished.rename(archive)
    return archive


class Machine:
    """A root file system, and commands in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._environment = {key: value for key, value in os.environ.items() if _PASSED_ON.fullmatch(key)}
        self._mounts = [Path("/dev")]

    def prepare(self) -> None:
        """Give it this machine's names, certificates and package mirrors, and an ordinary user."""
        for path in ("/etc/resolv.conf", "/etc/hosts", _CERTIFICATES, "/etc/pip.conf"):
            if Path(path).exists():
                shutil.copy(path, self.path(path))
        self.run(["useradd", "--create-home", "--uid", str(VISITOR), _NAME], user=0)
        own = Path.home() / ".config" / "pip" / "pip.conf"
        configured = list(self._environment.values())
        if own.exists():
            target = self.path(f"{HOME}/.config/pip")
            target.mkdir(parents=True)
            shutil.copy(own, target)
        for file in (own, Path("/etc/pip.conf")):
            configured += file.read_text().split() if file.exists() else []
        for word in configured:
            directory = Path(word.removeprefix("file://"))
            # A package index in the file system of this machine: its folder, with the files that it
            # refers to.
            if directory.is_absolute() and directory.is_dir() and not directory.is_relative_to("/etc"):
                top = Path(*directory.parts[:3])
                if top not in self._mounts:
                    self._mounts.append(top)

    def path(self, inside: str) -> Path:
        """Return where a path of the machine is in the file system of the test."""
        return self.root / inside.lstrip("/")

    def add_checkout(self, target: str = f"{HOME}/lanner") -> None:
        """Copy the files of the checkout, tracked or new, without what is built."""
        command = ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
        for name in filter(None, listed):
            source = CHECKOUT / name
            if source.exists():
                copy = self.path(target) / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, copy)
        self.run(["chown", "-R", f"{VISITOR}:{VISITOR}", target], user=0)

    def command(
        self,
        command: Sequence[str] | str,
        *,
        user: int | None = VISITOR,
        network: bool = False,
        directory: str = "/",
        environment: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Return the command that runs another in the machine; a string is for its shell.

        `network`: in the network of this machine, to download packages; else in one of its own,
        with its own loopback interface. Every process it leaves ends with it.
        """
        inner = ["sh", "-euc", command] if isinstance(command, str) else list(command)
        given = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": HOME if user else "/root"}
        given |= self._environment | dict(environment or {})
        variables = [f"{key}={value}" for key, value in given.items()]
        enter = ["chroot", f"--userspec={user}:{user}" if user else "--userspec=0:0", str(self.root)]
        moved = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", directory, *inner]
        steps = ["mount --make-rprivate /", f"mount -t proc proc {shlex.quote(str(self.path('proc')))}"]
        for mount in self._mounts:
            target = shlex.quote(str(self.path(str(mount))))
            steps += [f"mkdir -p {target}", f"mount --rbind {shlex.quote(str(mount))} {target}"]
        if not network:
            steps.append(f"{shlex.quote(sys.executable)} -c {shlex.quote(_LOOPBACK_UP)}")
        steps.append(f"exec {shlex.join([*enter, 'env', '-i', *variables, *moved])}")
        own = ["--mount", "--pid", "--fork", "--kill-child", *([] if network else ["--net"])]
        return ["unshare", *own, "sh", "-euc", "\n".join(steps)]

    def run(
        self,
        command: Sequence[str] | str,
        *,
        user: int | None = VISITOR,
        network: bool = False,
        directory: str = "/",
        environment: Mapping[str, str] | None = None,
        code: int | None = 0,
    ) -> str:
        """Run a command to its end and return its output; `code` is the expected exit code."""
        whole = self.command(command, user=user, network=network, directory=directory, environment=environment)
        result = subprocess.run(
            whole, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert code is None or result.returncode == code, f"{command}: {result.returncode}\n{result.stdout}"
        return result.stdout

    @contextmanager
    def running(self, command: Sequence[str] | str, log: Path, **options: object) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command while the block runs; what it writes goes into `log`."""
        whole = self.command(command, **options)  # type: ignore[arg-type]  # the options of `command`
        with (
            log.open("wb") as out,
            subprocess.Popen(whole, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as process,
        ):
            try:
                yield process
            finally:
                # The first process of the machine, with which all others end. The kernel does not
                # do it: --kill-child is forgotten when chroot changes the user.
                for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                    os.kill(int(child), signal.SIGKILL)
                process.send_signal(signal.SIGKILL)


def make_machine(directory: Path) -> Machine:
    """Make a machine in a directory; skip the test where that cannot be."""
    try:
        archive = base()
    except CannotMakeMachines as error:
        pytest.skip(f"no root file system can be made here: {error}")
    entered = subprocess.run(
        ["unshare", "--mount", "--pid", "--net", "--fork", "true"], capture_output=True, check=False
    )
    if entered.returncode:
        pytest.skip("no root file system can be made here: the kernel gives no namespaces")
    root = directory / "root"
    root.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(root, filter="fully_trusted")
    machine = Machine(root)
    machine.prepare()
    return machine
