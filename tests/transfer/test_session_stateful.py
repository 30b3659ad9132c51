"""Two sessions over a wire with random cuts.

Whatever happens, counts agree and every entry is acknowledged once.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lanner.transfer.events import NothingAcknowledged, SessionAckReceived, SessionClosed, UserMessagesReceived
from lanner.transfer.session import Session
from lanner.transfer.session_states import SessionState
from lanner.transfer.settings import TransferSettings
from tests.transfer.pairs import Pair, message, out

EXPRESS, RECOVERABLE = message(), message(recoverable=True)


class Side:
    """One session, what is on its way to the other, and what is known to have happened."""

    def __init__(self, session: Session, window: int) -> None:
        self.session = session
        self.window = window
        self.wire = bytearray()
        self.sent: list[int] = []
        self.recoverable: list[int] = []
        self.acked: Counter[int] = Counter()
        self.persisted: Counter[int] = Counter()
        self.received = 0
        self.allowed = 0


class TwoSessions(RuleBasedStateMachine):
    @initialize(windows=st.tuples(st.sampled_from([1, 2, 5, 64, 200]), st.sampled_from([1, 3, 64, 200])))
    def open(self, windows: tuple[int, int]) -> None:
        # Never idle: that a session ends for idleness is tested elsewhere.
        ours, theirs = (TransferSettings(window_size=window, cleanup_interval=1e9) for window in windows)
        self.pair = Pair(settings=ours, their_settings=theirs)
        self.sides = [Side(self.pair.ours, windows[0]), Side(self.pair.theirs, windows[1])]

    def collect(self, side: Side) -> None:
        side.wire += out(side.session)

    def deliver(self, side: Side, size: int) -> None:
        """Bytes from this side to the other."""
        other = self.sides[1 - self.sides.index(side)]
        data = bytes(side.wire[:size])
        del side.wire[:size]
        for event in other.session.receive(data):
            assert not isinstance(event, SessionClosed), event
            if isinstance(event, UserMessagesReceived):
                assert event.number == other.received + 1
                other.received = event.last_number
            elif isinstance(event, SessionAckReceived):
                other.acked.update(entry for entry in event.acked if isinstance(entry, int))
                other.persisted.update(entry for entry in event.persisted if isinstance(entry, int))
        self.collect(other)

    @rule(which=st.integers(0, 1), kinds=st.lists(st.booleans(), min_size=1, max_size=40))
    def send(self, which: int, kinds: list[bool]) -> None:
        side = self.sides[which]
        for is_recoverable in kinds:
            if not side.session.room:
                break
            entry = len(side.sent)
            side.session.send(RECOVERABLE if is_recoverable else EXPRESS, entry)
            side.sent.append(entry)
            if is_recoverable:
                side.recoverable.append(entry)
        self.collect(side)

    @rule(which=st.integers(0, 1), size=st.integers(1, 5000))
    def carry(self, which: int, size: int) -> None:
        self.deliver(self.sides[which], size)

    @rule(which=st.integers(0, 1), share=st.floats(0, 1))
    def settle(self, which: int, share: float) -> None:
        side = self.sides[which]
        side.allowed += int((side.received - side.allowed) * share)
        side.session.allow_acknowledgment(side.allowed)
        self.collect(side)

    @rule(which=st.integers(0, 1))
    def pause(self, which: int) -> None:
        self.sides[which].session.pause()
        self.collect(self.sides[which])

    @rule(seconds=st.sampled_from([0.1, 0.4, 0.6, 3.0, 8.0, 11.0]))
    def wait(self, seconds: float) -> None:
        """Time passes, and the wire is not so slow as to lose the peers each other."""
        self.pair.advance(seconds)
        for side in self.sides:
            # What the other does not settle it does not acknowledge.
            assert all(isinstance(event, NothingAcknowledged) for event in side.session.on_timer())
            self.collect(side)
        for side in self.sides:
            self.deliver(side, len(side.wire))

    @invariant()
    def agree(self) -> None:
        for side, other in (self.sides, self.sides[::-1]) if hasattr(self, "sides") else ():
            session = side.session
            assert session.state is SessionState.OPEN
            assert 0 <= session.room <= side.window
            assert session.unacked_message_count <= min(side.window, other.window)
            assert max(side.acked.values(), default=1) == max(side.persisted.values(), default=1) == 1
            # Nothing is acknowledged that the other has not allowed.
            assert len(side.acked) <= other.allowed
            assert sorted(side.acked) == side.sent[: len(side.acked)]
            assert sorted(side.persisted) == side.recoverable[: len(side.persisted)]
            assert all(entry < other.allowed for entry in side.persisted)

    def teardown(self) -> None:
        """Once everything is carried, allowed and the timers had their time, nothing is left."""
        if not hasattr(self, "sides"):
            return
        for _ in range(3):
            for side in self.sides:
                self.deliver(side, len(side.wire))
            for which in (0, 1):
                self.settle(which, 1.0)
            self.wait(11.0)
        self.agree()
        for side in self.sides:
            assert sorted(side.acked) == side.sent
            assert sorted(side.persisted) == side.recoverable
            assert side.session.unacked_message_count == side.session.unacked_received_msg_count == 0


TestTwoSessions = TwoSessions.TestCase
TestTwoSessions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
