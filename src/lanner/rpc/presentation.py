"""Presentation contexts: an interface in a transfer syntax, by context id.

C706 12.6.4.3; MS-RPCE 3.3.1.5.3, 3.3.1.5.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.calls import PresentationContext, Registered
from lanner.rpc.pdu import (
    KEEP_CONNECTION_ON_ORPHAN,
    NDR20,
    NDR64,
    SECURITY_CONTEXT_MULTIPLEXING,
    ContextAnswer,
    ContextElement,
    ContextResult,
    ProviderReason,
    RejectReason,
    SyntaxId,
    bind_time_features,
)
from lanner.rpc.refusals import Nak

# Not in the specification: the maximum number of contexts of one connection. MS-RPCE 3.3.3.5.5
# allows 4000 for each interface.
MAX_PRESENTATION_CONTEXTS: Final = 4000


class PresentationContexts(dict[int, PresentationContext]):
    """The contexts of one connection by their ids."""

    def __init__(self, find_interface: Callable[[SyntaxId], Registered | None], limit: int) -> None:
        super().__init__()
        self._find_interface = find_interface
        self._limit = limit
        # The result of bind time feature negotiation.
        self.features = 0

    def negotiate(self, elements: tuple[ContextElement, ...], *, is_bind: bool) -> tuple[ContextAnswer, ...]:
        """Return one answer per element, accepting one transfer syntax per interface.

        MS-RPCE 3.3.1.5.3 and 3.3.1.5.6.
        """
        # NDR is preferred if a client offers it. Every client of the interface then uses the same
        # syntax.
        with_ndr20 = {one.abstract_syntax for one in elements if NDR20 in one.transfer_syntaxes}
        accepted: set[SyntaxId] = set()
        answers = []
        for element in elements:
            features = offered_features(element)
            if features is not None and is_bind:
                self.features = features & (SECURITY_CONTEXT_MULTIPLEXING | KEEP_CONNECTION_ON_ORPHAN)
                answers.append(ContextAnswer(ContextResult.NEGOTIATE_ACK, self.features))
                continue
            interface = self._find_interface(element.abstract_syntax)
            if interface is None:
                reason = ProviderReason.ABSTRACT_SYNTAX_NOT_SUPPORTED
                answers.append(ContextAnswer(ContextResult.PROVIDER_REJECTION, reason))
                continue
            known = [one for one in element.transfer_syntaxes if one in interface.transfer_syntaxes]
            if NDR20 in known:
                known = [NDR20]
            existing = self.get(element.context_id)
            if existing is not None and (
                existing.abstract_syntax != element.abstract_syntax
                or (known and existing.transfer_syntax != known[0] and existing.transfer_syntax not in known)
            ):
                raise RemoteProtocolError(f"context {element.context_id} is in use for something else")
            passed_over = element.abstract_syntax in with_ndr20 and known and known[0] != NDR20
            if not known or element.abstract_syntax in accepted or passed_over:
                reason = ProviderReason.PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED
                answers.append(ContextAnswer(ContextResult.PROVIDER_REJECTION, reason))
                continue
            if existing is None and len(self) >= self._limit:
                if is_bind:
                    raise Nak(RejectReason.LOCAL_LIMIT_EXCEEDED, "too many presentation contexts")
                reason = ProviderReason.LOCAL_LIMIT_EXCEEDED
                answers.append(ContextAnswer(ContextResult.PROVIDER_REJECTION, reason))
                continue
            accepted.add(element.abstract_syntax)
            self[element.context_id] = PresentationContext(
                interface, known[0], element.abstract_syntax, is_ndr64=known[0] == NDR64
            )
            answers.append(ContextAnswer(ContextResult.ACCEPTANCE, transfer_syntax=known[0]))
        return tuple(answers)


def offered_features(element: ContextElement) -> int | None:
    # Syntaxes after the first one do not matter: Windows checks only the first.
    return bind_time_features(element.transfer_syntaxes[0]) if element.transfer_syntaxes else None
