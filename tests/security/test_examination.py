from __future__ import annotations

from lanner.model.enums import AuthenticationLevel
from lanner.security.examination import Examination, examine, is_examined_at_once
from lanner.security.signing import sign
from lanner.wire import layout as at
from lanner.wire.builder import set_authentication
from lanner.wire.message import Message
from tests.security.samples import SID, changed, signing_key
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
