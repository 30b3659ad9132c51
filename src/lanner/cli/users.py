"""`lanner user`: the accounts of a queue manager, their roles and certificates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lanner.cli.certificates import read_certificate
from lanner.cli.errors import CommandError, UsageError, nothing
from lanner.cli.options import DEFAULT_DATA, Data, DryRun, Json, Yes
from lanner.cli.output import confirm, say, show_table, write_json
from lanner.cli.session import Place, check_directory, command_line, open_directory, open_manager, reaching, running
from lanner.client.runtimes import runtime_of
from lanner.security.audit import AUDIT_FILE, AuditLog
from lanner.security.identity import Identity
from lanner.security.roles import TEXTS, Role
from lanner.security.users import USER_FILE, UserError, UserFile, is_sid, role_from_elsewhere
from lanner.store.data_directory import check_data_directory

app = typer.Typer(help="Who may use and administer the queue manager.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user.", show_default=False)]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, one line.")
]
AnyRole = Annotated[
    Role | None,
    typer.Option("--role", help="; ".join(f"{role}: {text}" for role, text in TEXTS.items()) + ".", show_default=False),
]
NoNtlm = Annotated[bool, typer.Option("--no-ntlm", help="Keep no NT hash: stronger, but no logon with NTLM.")]


def _file(data: Path, *, create: bool = False) -> UserFile:
    check_directory(data)
    if create:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    if data.exists():
        check_data_directory(data)
    return UserFile(data / USER_FILE, AuditLog(data / AUDIT_FILE), command_line())


def _password(name: str, *, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise UsageError(f"the password of {name}: give it on standard input with --password-stdin")
    return str(typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True))


def _document(file: UserFile, name: str, *, is_guest: bool, has_nt_hash: bool) -> dict[str, Any]:
    return {
        "name": name,
        "sid": str(file.sid(name)),
        "role": file.role(name).value,
        "administrator": file.is_administrator(name),
        "guest": is_guest,
        "ntlm": has_nt_hash,
        "groups": [group.name for group in file.groups() if name in group.members],
    }


def _documents(file: UserFile) -> list[dict[str, Any]]:
    return [
        *(
            _document(file, one.name, is_guest=one.is_guest, has_nt_hash=one.nt_hash is not None)
            for one in file.users()
        ),
        *(role_from_elsewhere(sid, role) for sid, role in file.roles_from_elsewhere().items()),
    ]


def _find(file: UserFile, name: str) -> dict[str, Any]:
    found = next((one for one in _documents(file) if one["name"].casefold() == name.casefold()), None)
    if found is None:
        raise UserError(f"there is no user {name}; `lanner user list` shows them")
    return found


def _say(document: dict[str, Any], done: str, *, as_json: bool) -> None:
    if as_json:
        write_json(document)
    else:
        say(f"user {document['name']} {done}")


def _role(role: Role | None, *, administrator: bool | None) -> Role | None:
    """Return the requested role; `--administrator` and its opposite abbreviate two roles."""
    if administrator is None:
        return role
    short = Role.ADMINISTRATOR if administrator else Role.USER
    if role not in (None, short):
        raise UsageError(f"--role {role} and --{'' if administrator else 'no-'}administrator contradict each other")
    return short


@app.command()
@reaching
def add(
    name: Name,
    *,
    role: AnyRole = None,
    administrator: Annotated[bool, typer.Option("--administrator", help="Short for --role administrator.")] = False,
    guest: Annotated[bool, typer.Option("--guest", help="Add the guest, who needs no password.")] = False,
    password_stdin: PasswordStdin = False,
    no_ntlm: NoNtlm = False,
    at: Place,
    json: Json = False,
) -> None:
    """Add a user. The queue manager may be running."""
    wanted = _role(role, administrator=administrator or None) or Role.USER
    if at.host is not None and (guest or no_ntlm):
        raise UsageError("--guest and --no-ntlm are for the data directory itself, not with --host")
    password = None if guest and not password_stdin else _password(name, from_stdin=password_stdin)
    if at.host is not None:
        with open_manager(at) as manager:
            document = manager.add_user(name, password or "", role=wanted)
    else:
        file = _file(at.data, create=True)
        if password:
            file.check_password(name, password)
        file.add(name, password, role=wanted, guest=guest, keep_nt_hash=not no_ntlm)
        document = _find(file, name)
    _say(document, "is added", as_json=json)


@app.command("set")
@reaching
def change(
    name: Name,
    *,
    role: AnyRole = None,
    administrator: Annotated[
        bool | None, typer.Option("--administrator/--no-administrator", help="Short for --role administrator and user.")
    ] = None,
    password: Annotated[bool, typer.Option("--password", help="Ask for a new password.")] = False,
    password_stdin: PasswordStdin = False,
    no_ntlm: NoNtlm = False,
    at: Place,
    json: Json = False,
) -> None:
    """Change a user's password or role.

    A user or group of a domain can be given a role by its SID.
    """
    wanted = _role(role, administrator=administrator)
    if wanted is None and not password and not password_stdin:
        raise UsageError("nothing to change: --role, --password or --password-stdin")
    if at.host is not None:
        if no_ntlm:
            raise UsageError("--no-ntlm is for the data directory itself, not with --host")
        new = _password(name, from_stdin=password_stdin) if password or password_stdin else None
        with open_manager(at) as manager:
            document = manager.set_user(name, password=new, role=wanted)
    elif is_sid(name):
        if wanted is None or password or password_stdin:
            raise UsageError(f"{name} is no user of this computer: it can have a role, and nothing else")
        _file(at.data).set_role(name, wanted)
        document = role_from_elsewhere(name, wanted)
    else:
        file = _file(at.data)
        file.sid(name)
        if password or password_stdin:
            new = _password(name, from_stdin=password_stdin)
            if new:
                file.check_password(name, new)
            file.set_password(name, new, keep_nt_hash=not no_ntlm)
        if wanted is not None and wanted is not file.role(name):
            file.set_role(name, wanted)
        document = _find(file, name)
    _say(document, "is changed", as_json=json)


@app.command("list")
@reaching
def list_users(*, at: Place, json: Json = False) -> None:
    """List the users."""
    if at.host is not None:
        with open_manager(at) as manager:
            documents = manager.users()
    else:
        documents = _documents(_file(at.data))
    if json:
        write_json(documents)
        return
    if not documents:
        raise nothing("there are no users; `lanner user add NAME` makes one")
    # A narrow terminal cuts the last column of text.
    titles = ("NAME", "ROLE", "GUEST", "NTLM", "SID")
    keys = ("name", "role", "guest", "ntlm", "sid")
    words = {"True": "yes", "False": "no"}
    rows = [[words.get(str(one[key]), str(one[key])) for key in keys] for one in documents]
    show_table([(title, False) for title in titles], rows)


@app.command()
def certificate(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="X.509, in DER or PEM.", show_default=False)],
    *,
    data: Data = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Register a user's certificate, so that messages it signs are attributed to the user."""
    identity = _file(data).identity(name)
    if identity is None:
        raise UserError(f"there is no user {name}; `lanner user list` shows them")
    found = read_certificate(file)
    _register(data, identity, found)
    document = {
        "name": identity.name,
        "subject": found.subject.rfc4514_string(),
        "not_valid_after": found.not_valid_after_utc.isoformat(),
    }
    if json:
        write_json(document)
    else:
        say(f"the certificate {document['subject']} of {identity.name} is registered")


def _register(data: Path, identity: Identity, certificate: x509.Certificate) -> None:
    here = running(data)
    if here is not None:
        with here:
            pem = certificate.public_bytes(Encoding.PEM).decode()
            here.register_certificate(pem, str(identity.sid))
        return
    with open_directory(data) as manager, runtime_of(manager).lock:
        if not runtime_of(manager).engine.register_certificate(identity, certificate.public_bytes(Encoding.DER)):
            raise CommandError(f"the directory refused the certificate of {identity.name}")


@app.command()
@reaching
def remove(name: Name, *, dry_run: DryRun = False, yes: Yes = False, at: Place, json: Json = False) -> None:
    """Remove a user."""
    if at.host is not None:
        with open_manager(at) as manager:
            found = next((one["name"] for one in manager.users() if one["name"].casefold() == name.casefold()), None)
            if found is None:
                raise UserError(f"there is no user {name}; `lanner user list` shows them")
            if not dry_run:
                confirm(f"Remove user {found}?", yes=yes)
                manager.remove_user(found)
    else:
        file = _file(at.data)
        found = _find(file, name)["name"]
        if not dry_run:
            confirm(f"Remove user {found}?", yes=yes)
            file.remove(found)
    if json:
        write_json({"name": found, "dry_run": dry_run})
    else:
        say(f"{'would remove' if dry_run else 'removed'} user {found}")
