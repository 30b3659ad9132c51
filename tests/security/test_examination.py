from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.model.enums import AuthenticationLevel
from lanner.model.errors import RemoteProtocolError
from lanner.security.encryption import SessionKey, encrypt_body, select
from lanner.security.examination import Examination, examine, is_examined_at_once
from lanner.security.signing import sign
from lanner.wire import layout as at
from lanner.wire.builder import set_authentication
from lanner.wire.message import Message
from lanner.wire.public_keys import MqdsPublicKeys
from tests.security.samples import SID, changed, queue_manager_keys, signing_key
from tests.wire.samples import make


def test_a_plain_message_is_kept_as_it_is() -> None:
    for packet in (make(), make(sender_identifier=SID)):
        message = Message(packet)
        assert is_examined_at_once(message)
        assert examine(message) == Examination(message)


def test_what_a_peer_claims_is_cleared() -> None:
    forged = set_authentication(make(sender_identifier=SID), AuthenticationLevel.SIG30)
    offset = at.locate(forged).security
    for packet in (forged, changed(forged, offset, forged[offset] | at.AU)):
        found = examine(Message.unpack(packet))
        assert found.message.packet == make(sender_identifier=SID)
        assert found.authentication_level == found.message.authentication_level == 0


def test_what_was_verified_is_kept_in_as() -> None:
    message = Message(sign(make(body=b"x"), signing_key()))
    assert not is_examined_at_once(message)
    assert examine(message).message.authentication_level == 3


def test_a_refusal_has_its_reason() -> None:
    message = Message(sign(make(body=b"x"), signing_key()))
    wrong = Message(changed(message.packet, message.body_offset, b"y"))
    found = examine(wrong)
    assert found.refusal == 0x8006
    assert "signature" in found.reason
    assert found.message is wrong


def test_an_encrypted_body_takes_a_key() -> None:
    message = Message(make(body=b"x", sender_identifier=SID, privacy_level=5))
    assert not is_examined_at_once(message)
    found = examine(message)
    assert found.refusal == 0x8007
    assert found.was_encrypted


# The library warns of serial numbers that RFC 5280 forbids; nothing here depends on them.
@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_a_peer_sends_is_examined_to_an_end(data: st.DataObject) -> None:
    """One octet of a signed and encrypted packet is changed.

    The result is malformed, is rejected, or the octet was not covered.
    """
    keys = MqdsPublicKeys.unpack(queue_manager_keys().public_key_lists()[0])
    signed = sign(make(body=b"a secret", label="label", sender_identifier=SID), signing_key())
    packet = encrypt_body(signed, SessionKey.generate(select(keys, 5)))
    place = data.draw(st.integers(0, len(packet) - 1))
    # Any exception but this one fails the test.
    with suppress(RemoteProtocolError):
        message = Message.unpack(changed(packet, place, data.draw(st.integers(0, 255))))
        found = examine(message, queue_manager_keys().encryption)
        assert found.refusal in (None, 0x8006, 0x8007, 0x800B)
        if found.refusal is None and found.authentication_level:
            assert found.message.body == b"a secret"
            assert found.message.label == "label"
