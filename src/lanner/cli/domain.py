"""`lanner domain`: join an Active Directory domain, rename in it, leave it, show its state."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lanner.cli.errors import CommandError, UsageError
from lanner.cli.options import DEFAULT_DATA, Data, Json, Yes
from lanner.cli.output import confirm, counted, note, say, show_fields, write_json
from lanner.cli.session import check_directory, running

if TYPE_CHECKING:
    from lanner.directory.ldap import LogOn
    from lanner.host.joining import Joined, Request
    from lanner.host.membership import Membership

app = typer.Typer(help="The Active Directory domain of this computer.", no_args_is_help=True)

AdministratorName = Annotated[
    str | None,
    typer.Option(
        "--user",
        help=r"An administrator, EXAMPLE\Administrator or administrator@example.com; "
        "without it, the owner of the Kerberos ticket here (kinit).",
    ),
]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", help="The password, in the first line of a file.")
]
OwnAccount = Annotated[
    bool,
    typer.Option(
        "--own-account",
        help="Join with an account that was prepared for this computer, and the password of --password-file.",
    ),
]


@app.command()
def join(
    domain: Annotated[
        str, typer.Argument(metavar="DOMAIN", help="The DNS name of the domain, example.com.", show_default=False)
    ],
    *,
    user: AdministratorName = None,
    password_file: PasswordFile = None,
    own_account: OwnAccount = False,
    name: Annotated[
        str | None, typer.Option("--name", help="The name of a new queue manager.", show_default="the host's")
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option("--site", help="Its site; may be repeated.", show_default="Default-First-Site-Name"),
    ] = None,
    routing_server: Annotated[
        bool, typer.Option("--routing-server", help="Make it a routing server, which forwards messages between sites.")
    ] = False,
    container: Annotated[
        str,
        typer.Option("--container", help="The container for a new account: a distinguished name.", show_default=False),
    ] = "",
    name_server: Annotated[
        list[str] | None,
        typer.Option("--name-server", help="A DNS server that knows the domain.", show_default="those of this machine"),
    ] = None,
    authentication: Annotated[
        str,
        typer.Option("--authentication", help="How its account logs on: kerberos or ntlm.", show_default="what works"),
    ] = "",
    ldaps: Annotated[
        bool,
        typer.Option(
            "--ldaps",
            help="Reach domain controllers by TLS, port 636, with names and passwords, now and as a member.",
        ),
    ] = False,
    tls_authorities: Annotated[
        Path | None,
        typer.Option(
            "--tls-authorities",
            help="A PEM file of authorities for --ldaps; it must stay there.",
            show_default="those that this machine trusts",
        ),
    ] = None,
    yes: Yes = False,
    data: Data = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Make the queue manager of a data directory a member of a domain.

    A new queue manager is created if there is none. It gets an account with service principals and
    keys for Kerberos. The domain chooses its identifier and those of its public queues; names with
    the former identifiers still work on this computer.
    """
    from lanner.host.joining import ComputerExists, Request
    from lanner.host.joining import join as join_domain

    if authentication not in ("", "kerberos", "ntlm"):
        raise UsageError(f"--authentication {authentication}: kerberos or ntlm")
    if ldaps and (authentication or not (user or own_account)):
        raise UsageError("--ldaps goes with --user or --own-account, and without --authentication")
    if tls_authorities is not None and not ldaps:
        raise UsageError("--tls-authorities goes with --ldaps")
    if own_account and (user is not None or password_file is None):
        raise UsageError("--own-account goes with --password-file, and without --user")
    if own_account and routing_server:
        raise UsageError("--routing-server needs an administrator, who makes its objects in the sites: give --user")
    _check_stopped(data)
    password = _password(password_file, user)
    request = Request(
        domain.lower().rstrip("."),
        None if own_account else _administrator(user, password),
        computer=name or "",
        password=password if own_account and password is not None else "",
        name_servers=tuple(name_server or ()),
        sites=tuple(site or ("Default-First-Site-Name",)),
        container=container,
        is_router=routing_server,
        takes_over=yes,
        authentication="ldaps" if ldaps else authentication,
        tls_authorities=None if tls_authorities is None else tls_authorities.absolute(),
    )
    try:
        joined = join_domain(data, request)
    except ComputerExists as exists:
        # Another computer with this account stops working, so a script must confirm it explicitly.
        if not sys.stdin.isatty():
            raise CommandError(f"{exists}: --yes takes it over") from None
        confirm(f"{exists}. Take it over?", yes=yes)
        joined = join_domain(data, _taking_over(request))
    _tell(joined, data, as_json=json)


def _taking_over(request: Request) -> Request:
    import dataclasses

    return dataclasses.replace(request, takes_over=True)


def _tell(joined: Joined, data: Path, *, as_json: bool) -> None:
    membership = joined.membership
    if as_json:
        write_json(
            {
                "domain": membership.domain,
                "computer": membership.computer,
                "identifier": str(joined.identifier),
                "made_account": joined.made_account,
                "authentication": membership.authentication,
                "published": list(joined.published),
                "restored": list(joined.restored),
            }
        )
        return
    done = "has an account and is" if joined.made_account else "is"
    say(f"{membership.computer} {done} a member of {membership.domain}, with the identifier {joined.identifier}")
    if joined.published:
        say(f"  {counted(len(joined.published), 'public queue')} published in the domain")
    for queue in joined.restored:
        say(f"  {queue} was in the domain, and is here again, empty")
    if membership.authentication == "ntlm":
        note("its account logs on by NTLM; with `pip install 'lanner[kerberos]'` it could use Kerberos")
    say(f"  start it: lanner serve --data {data}")


@app.command()
def leave(
    *,
    user: AdministratorName = None,
    password_file: PasswordFile = None,
    as_computer: Annotated[
        bool, typer.Option("--as-computer", help="Use the computer's own rights; its account remains in the domain.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Leave without contacting the domain; its objects remain there.")
    ] = False,
    yes: Yes = False,
    data: Data = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Take the queue manager out of its domain.

    Its public queues, keys and account are removed there. The queues stay here with their messages.
    """
    from lanner.host.joining import leave as leave_domain
    from lanner.host.joining import member

    if as_computer and user is not None:
        raise UsageError("--as-computer goes without --user")
    _check_stopped(data)
    membership = member(data)
    confirm(f"Take {membership.computer} out of the domain {membership.domain}?", yes=yes)
    administrator = None if as_computer or force else _administrator(user, _password(password_file, user))
    left = leave_domain(data, administrator, is_forced=force)
    if json:
        write_json({"domain": membership.domain, "account": left.account, "remains": left.remains})
        return
    say(f"{membership.computer} is no longer a member of {membership.domain}")
    if left.remains:
        say(f"  in the domain remains: {left.remains} ({left.account})")


@app.command()
def rename(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.", show_default=False)],
    *,
    user: AdministratorName = None,
    password_file: PasswordFile = None,
    data: Data = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Rename this computer, in its domain and here. Its identifier and its queues stay."""
    from lanner.host.joining import rename as rename_computer

    _check_stopped(data)
    membership = rename_computer(data, name, _administrator(user, _password(password_file, user)))
    if json:
        write_json({"domain": membership.domain, "computer": membership.computer})
    else:
        say(f"the computer is now {membership.computer} in {membership.domain}")


@app.command()
def status(*, data: Data = DEFAULT_DATA, json: Json = False) -> None:
    """Show the objects of this computer in the domain. Exit code 1 if there are problems."""
    from lanner.host.joining import standing

    check_directory(data)
    found = standing(data)
    membership = found.membership
    if json:
        write_json(
            {
                "domain": membership.domain,
                "computer": membership.computer,
                "identifier": None if found.identifier is None else str(found.identifier),
                "authentication": membership.authentication,
                "sites": list(membership.sites),
                "servers": list(found.servers),
                "public_queues": found.queues,
                "problems": list(found.problems),
            }
        )
    else:
        show_fields(_fields(membership, found.servers, str(found.identifier or "unknown"), found.queues))
        for problem in found.problems:
            say(f"  problem: {problem}")
    if found.problems:
        raise typer.Exit(1)


def _fields(membership: Membership, servers: tuple[str, ...], identifier: str, queues: int) -> list[tuple[str, str]]:
    return [
        ("domain", membership.domain),
        ("computer", f"{membership.netbios_name}\\{membership.computer}$"),
        ("identifier", identifier),
        ("logs on by", membership.authentication),
        ("sites", ", ".join(membership.sites)),
        ("domain controllers", ", ".join(servers) or "none was reached"),
        ("public queues", str(queues)),
    ]


def _check_stopped(data: Path) -> None:
    check_directory(data)
    found = running(data)
    if found is not None:
        found.close()
        raise CommandError(f"a queue manager runs on {data}: stop it first, and start it again afterwards")


def _administrator(user: str | None, password: str | None) -> LogOn:
    """Return the administrator's account: name and password, or this process's ticket."""
    from lanner.directory.ldap import LogOn

    if user is None:
        return LogOn(protocol="kerberos")
    return LogOn(user, password)


def _password(file: Path | None, user: str | None) -> str | None:
    if file is not None:
        return file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    return None if user is None else str(typer.prompt(f"Password of {user}", hide_input=True, err=True))
