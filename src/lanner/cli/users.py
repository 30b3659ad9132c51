"""`lanner user`: who may use and administer the queue manager."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lanner.cli.errors import CommandError, UsageError, nothing
from lanner.cli.options import DEFAULT_DATA, Data, DryRun, Json, Yes
from lanner.cli.output import confirm, say, show_table, write_json
from lanner.cli.session import check_directory, command_line, open_directory, running
from lanner.client.runtimes import runtime_of
from lanner.security.audit import AUDIT_FILE, AuditLog
from lanner.security.identity import Identity
from lanner.security.users import USER_FILE, UserError, UserFile
from lanner.store.data_directory import check_data_directory

app = typer.Typer(help="Who may use and administer the queue manager.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user.", show_default=False)]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, one line.")
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


def _document(file: UserFile, name: str, *, is_guest: bool, has_nt_hash: bool) -> dict[str, object]:
    return {
        "name": name,
        "sid": str(file.sid(name)),
        "administrator": file.is_administrator(name),
        "guest": is_guest,
        "ntlm": has_nt_hash,
        "groups": [group.name for group in file.groups() if name in group.members],
    }


def _show(file: UserFile, name: str, *, as_json: bool, done: str) -> None:
    account = next(one for one in file.users() if one.name.casefold() == name.casefold())
    if as_json:
        has_nt_hash = account.nt_hash is not None
        write_json(_document(file, account.name, is_guest=account.is_guest, has_nt_hash=has_nt_hash))
    else:
        say(f"user {account.name} {done}")


@app.command()
def add(
    name: Name,
    *,
    administrator: Annotated[bool, typer.Option("--administrator", help="May manage everything.")] = False,
    guest: Annotated[bool, typer.Option("--guest", help="The guest: needs no password.")] = False,
    password_stdin: PasswordStdin = False,
    no_ntlm: NoNtlm = False,
    data: Data = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Add a user. The queue manager may be running."""
    password = None if guest and not password_stdin else _password(name, from_stdin=password_stdin)
    file = _file(data, create=True)
    if password:
        file.check_password(name, password)
    file.add(name, password, administrator=administrator, guest=guest, keep_nt_hash=not no_ntlm)
    _show(file, name, as_json=json, done="is added")


@app.command("set")
def change(
    name: Name,
    *,
    administrator: Annotated[
        bool | None, typer.Option("--administrator/--no-administrator", help="May manage everything.")
    ] = None,
    password: Annotated[bool, typer.Option("--password", help="Ask for a new password.")] = False,
    password_stdin: PasswordStdin = False,
    no_ntlm: NoNtlm = False,
    data: Data = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Change a user's password, or whether the user is an administrator."""
    if administrator is None and not password and not password_stdin:
        raise UsageError("nothing to change: --administrator, --no-administrator, --password or --password-stdin")
    file = _file(data)
    file.sid(name)
    if password or password_stdin:
        new = _password(name, from_stdin=password_stdin)
        if new:
            file.check_password(name, new)
        file.set_password(name, new, keep_nt_hash=not no_ntlm)
    if administrator is not None and administrator != file.is_administrator(name):
        file.set_administrator(name, administrator=administrator)
    _show(file, name, as_json=json, done="is changed")


@app.command("list")
def list_users(*, data: Data = DEFAULT_DATA, json: Json = False) -> None:
    """List the users."""
    file = _file(data)
    documents = [
        _document(file, one.name, is_guest=one.is_guest, has_nt_hash=one.nt_hash is not None) for one in file.users()
    ]
    if json:
        write_json(documents)
        return
    if not documents:
        raise nothing("there are no users; `lanner user add NAME` makes one")
    titles = ("NAME", "SID", "ADMINISTRATOR", "GUEST", "NTLM")
    keys = ("name", "sid", "administrator", "guest", "ntlm")
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
    """Register a user's certificate: messages that it signs are known for the user's."""
    identity = _file(data).identity(name)
    if identity is None:
        raise UserError(f"there is no user {name}; `lanner user list` shows them")
    try:
        content = file.read_bytes()
        is_pem = content.lstrip().startswith(b"-----BEGIN")
        found = x509.load_pem_x509_certificate(content) if is_pem else x509.load_der_x509_certificate(content)
    except ValueError:
        raise CommandError(f"{file} is no X.509 certificate in DER or PEM") from None
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
def remove(
    name: Name, *, dry_run: DryRun = False, yes: Yes = False, data: Data = DEFAULT_DATA, json: Json = False
) -> None:
    """Remove a user."""
    file = _file(data)
    account = next((one for one in file.users() if one.name.casefold() == name.casefold()), None)
    if account is None:
        raise UserError(f"there is no user {name}; `lanner user list` shows them")
    if not dry_run:
        confirm(f"Remove user {account.name}?", yes=yes)
        file.remove(account.name)
    if json:
        write_json({"name": account.name, "dry_run": dry_run})
    else:
        say(f"{'would remove' if dry_run else 'removed'} user {account.name}")
