"""The private parts of pyspnego that Lanner uses.

Another version may lack them, and these tests say which. Run this first when you raise the limit in
pyproject.toml, then tests/rpc/test_security.py and tests/interop.
"""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("spnego", reason="pyspnego is not installed")

from lanner.rpc.ntlm import NtlmInitiator
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import Credentials

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def test_the_installed_version_is_one_that_was_tried() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    (wanted,) = (each for each in project["dependencies"] if each.startswith("pyspnego"))
    limits = re.fullmatch(r"pyspnego>=(\d+)\.(\d+),<(\d+)\.(\d+)", wanted)
    assert limits is not None, "pyspnego has private parts that we use: it needs an upper limit"
    assert project["optional-dependencies"]["kerberos"] == [wanted.replace("pyspnego", "pyspnego[kerberos]")]
    least, limit = tuple(map(int, limits.groups()[:2])), tuple(map(int, limits.groups()[2:]))
    installed = tuple(map(int, version("pyspnego").split(".")[:2]))
    assert least <= installed < limit, f"pyspnego {version('pyspnego')} is installed, not {wanted}"


@pytest.mark.parametrize(
    ("module", "name", "user"),
    [
        ("spnego._ntlm", "NTLMProxy", "ntlm: what both sides extend"),
        ("spnego._ntlm_raw.crypto", "rc4k", "ntlm: the exchange of session keys"),
        ("spnego._ntlm_raw.messages", "Authenticate", "ntlm: an anonymous client's message"),
        ("spnego._ntlm_raw.messages", "AvId", "ntlm: a server's challenge"),
        ("spnego._ntlm_raw.messages", "Challenge", "ntlm: a server's challenge"),
        ("spnego._ntlm_raw.messages", "FileTime", "ntlm: a server's challenge"),
        ("spnego._ntlm_raw.messages", "Negotiate", "ntlm: a client's first message"),
        ("spnego._ntlm_raw.messages", "NegotiateFlags", "ntlm: everywhere"),
        ("spnego._ntlm_raw.messages", "TargetInfo", "ntlm: a server's challenge"),
        ("spnego._ntlm_raw.messages", "Version", "ntlm: a server's challenge"),
        ("spnego._spnego", "NegState", "negotiate: tokens"),
        ("spnego._spnego", "NegTokenInit", "negotiate: tokens"),
        ("spnego._spnego", "NegTokenResp", "negotiate: tokens"),
        ("spnego._spnego", "pack_mech_type_list", "negotiate: what is signed"),
        ("spnego._spnego", "unpack_token", "negotiate: tokens"),
        ("spnego._gss", "GSSAPIProxy", "kerberos"),
    ],
)
def test_a_private_name_is_there(module: str, name: str, user: str) -> None:
    assert hasattr(importlib.import_module(module), name), f"{module}.{name} is gone, which lanner.rpc.{user} needs"


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        # Ours in place of pyspnego's: it must still call them, and in this way.
        ("step", ["self", "in_token", "channel_bindings"]),
        ("_step_accept_negotiate", ["self", "token"]),
        ("_step_accept_authenticate", ["self", "token", "channel_bindings"]),
        ("_step_initiate", ["self", "in_token", "channel_bindings"]),
        # Called by us.
        ("_step_accept", ["self", "in_token", "channel_bindings"]),
        ("_reset_ntlm_crypto_state", ["self", "outgoing"]),
    ],
)
def test_a_private_method_is_as_it_was(method: str, parameters: list[str]) -> None:
    proxy = importlib.import_module("spnego._ntlm").NTLMProxy
    assert hasattr(proxy, method), f"NTLMProxy.{method} is gone, which lanner.rpc.ntlm overrides or calls"
    found = list(inspect.signature(getattr(proxy, method)).parameters)
    assert found == parameters, f"NTLMProxy.{method} takes {found} now; see lanner.rpc.ntlm"


@pytest.mark.parametrize(
    "attribute",
    [
        "usage",
        "_complete",
        "_context_attr",
        "_session_key",
        "_sign_key_in",
        "_sign_key_out",
        "_handle_in",
        "_handle_out",
        "_temp_negotiate",
    ],
)
def test_a_private_attribute_is_there(attribute: str) -> None:
    """Our contexts read these, or write them for pyspnego to read."""
    context = NtlmInitiator(Credentials("alice", "secret"), AuthLevel.PKT_PRIVACY, "alpha")
    assert hasattr(context, attribute), f"NTLMProxy has no {attribute} any more; see lanner.rpc.ntlm"
