"""`connect`: where it goes, as whom, and why it cannot."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lanner import errors
from lanner.services.ports import LOCAL_SOCKET
from tests.client.peers import free_address
from tests.contract.covering import covers
from tests.contract.forms import REMOTE_FORMS, Form, new_name, refused
from tests.contract.service import Service

pytestmark = pytest.mark.parametrize(
    "form", [form for form in REMOTE_FORMS if form.where == "tcp"], ids=["blocking", "async"], indirect=True
)


@covers("connect")
async def test_a_host_is_found_with_and_without_its_port(form: Form, service: Service) -> None:
    for port in (service.port, None):
        async with await form.connect(service.address, "alice", "secret", port=port, domain="ALPHA") as qm:
            assert qm.name == "ALPHA"
            assert await (await qm.create_queue(new_name())).count() == 0


async def test_a_directory_is_found_by_name_and_by_environment(
    form: Form, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await form.connect(data=str(service.data)) as qm:
        assert qm.name == "ALPHA"
    monkeypatch.setenv("LANNER_DATA", str(service.data))
    async with await form.connect() as qm:
        assert qm.name == "ALPHA"


async def test_a_directory_with_a_long_name_is_found(form: Form, service: Service, tmp_path: Path) -> None:
    """Longer than the address of a Unix socket can be."""
    long = tmp_path / ("long" * 30)
    long.symlink_to(service.data)
    async with await form.connect(data=long) as qm:
        assert qm.name == "ALPHA"


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret")])
async def test_a_wrong_password_is_denied(form: Form, service: Service, user: str, password: str) -> None:
    with pytest.raises(errors.AccessDenied) as raised:
        await form.connect(service.address, user, password, port=service.port)
    assert raised.value.args[0].startswith(f"{service.address}: ")
    assert password not in str(raised.value)


async def test_a_client_without_a_user_is_told_to_log_on(form: Form, service: Service) -> None:
    with pytest.raises(errors.AccessDenied) as raised:
        await form.connect(service.address, port=service.port)
    assert raised.value.args[0].startswith(f"{service.address} serves only callers that log on: give a user")


async def test_no_password_is_shown(form: Form, service: Service) -> None:
    async with await form.connect(service.address, "alice", "secret", port=service.port) as qm:
        assert repr(qm) == f"<QueueManager ALPHA at {service.address}>"
        assert "secret" not in repr(vars(qm._backend)) + repr(qm.open("x"))


async def test_arguments_that_do_not_go_together_are_refused(form: Form) -> None:
    for arguments, text in (
        ({"user": "alice"}, "a user without a host: on this machine the kernel identifies you"),
        ({"password": "x"}, "a user without a host: on this machine the kernel identifies you"),
        (
            {"host": "beta", "data": "x"},
            "give a host, or the data directory of a queue manager on this machine",
        ),
        ({"host": "beta", "authentication": "x"}, "authentication 'x': one of ntlm, negotiate, kerberos"),
    ):
        with pytest.raises(ValueError, match=re.escape(text)):
            await form.connect(**arguments)


async def test_a_place_where_nothing_runs_says_what_to_do(form: Form, tmp_path: Path) -> None:
    for data in (tmp_path, tmp_path / "none"):
        text = f"no queue manager runs on {data}: `lanner serve --data {data}` starts one"
        await refused(errors.ServiceNotAvailable, text, form.connect(data=data))
    address = free_address()
    text = f"{address} port 2103 cannot be reached: Connection refused; is a queue manager running there?"
    await refused(errors.RemoteMachineNotAvailable, text, form.connect(address))
    with pytest.raises(errors.RemoteMachineNotAvailable, match=r"no-such-host\.invalid"):
        await form.connect("no-such-host.invalid")


async def test_a_socket_that_a_killed_service_left_says_what_to_do(form: Form, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / LOCAL_SOCKET))
    text = f"no queue manager runs on {tmp_path}: `lanner serve --data {tmp_path}` starts one"
    await refused(errors.ServiceNotAvailable, text, form.connect(data=tmp_path))


@contextmanager
def silent(listening: socket.socket) -> Iterator[None]:
    """Accept connections and answer nothing."""
    connections = []

    def accept() -> None:
        while True:
            try:
                connections.append(listening.accept()[0])
            except OSError:
                return

    thread = threading.Thread(target=accept)
    thread.start()
    yield
    listening.shutdown(socket.SHUT_RDWR)
    thread.join()
    listening.close()
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("kind", ["unix", "tcp"])
async def test_a_server_that_does_not_answer_is_given_up(form: Form, kind: str, tmp_path: Path) -> None:
    address = free_address()
    if kind == "tcp":
        listening = socket.create_server((address, 0))
        arguments: dict[str, object] = {"host": address, "port": listening.getsockname()[1]}
    else:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(tmp_path / LOCAL_SOCKET))
        listening.listen()
        arguments = {"data": tmp_path}
    where = address if kind == "tcp" else tmp_path
    with silent(listening):
        text = f"{where} did not answer in 0.5 s"
        await refused(errors.RemoteMachineNotAvailable, text, form.connect(**arguments, timeout=0.5))


async def test_what_is_no_queue_manager_is_refused(form: Form) -> None:
    """A server that speaks something else."""
    address = free_address()

    def greet() -> None:
        with listening.accept()[0] as connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server((address, 0)) as listening:
        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(errors.RemoteMachineNotAvailable) as raised:
            await form.connect(address, port=listening.getsockname()[1], timeout=10)
        thread.join()
    assert raised.value.args[0].startswith(f"{address}: ")


async def test_a_directory_of_another_user_is_denied(form: Form, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may open every directory")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / LOCAL_SOCKET))
        (tmp_path / LOCAL_SOCKET).chmod(0)
        text = f"the queue manager of {tmp_path} belongs to another user: run as that user, or as root"
        await refused(errors.AccessDenied, text, form.connect(data=tmp_path))
