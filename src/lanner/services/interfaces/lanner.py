"""lanner: what no document of Microsoft's has a method for. An interface of our own, beside theirs."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from lanner.rpc.interface import In, Interface, Method, Out
from lanner.rpc.ndr import Unique, guid, wide_string
from lanner.services.interfaces.mqmq import HRESULT

# Who answers here: the names of queues begin with its name.
LANNER_WHO: Final = Method(
    0,
    "LannerWho",
    Out("name", Unique(wide_string)),
    Out("identifier", guid),
    Out("version", Unique(wide_string)),
    returns=HRESULT,
)
# One JSON document asks, one answers; with a failure the answer is the text of the error.
LANNER_ASK: Final = Method(
    1, "LannerAsk", In("request", wide_string), Out("answer", Unique(wide_string)), returns=HRESULT
)

LANNER: Final = Interface("lanner", UUID("8d8e1a4c-5b0f-4c1d-9f5e-3a6e0c7b2f41"), (1, 0), [LANNER_WHO, LANNER_ASK])
