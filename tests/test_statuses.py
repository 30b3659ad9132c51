"""The status codes of the tests are those of the product, by name and value."""

from __future__ import annotations

import pytest

import lanner.activex.application
import lanner.activex.queue
import lanner.activex.transaction
import lanner.com.constants
from lanner.model.errors import StatusError
from lanner.rpc.faults import FaultStatus
from tests import statuses

EXPECTED = {name: value for name, value in vars(statuses).items() if name.isupper()}
# Of the namespaces below, the first that has a name defines it.
PRODUCT = [
    {cls.spec_name: status for status, cls in StatusError.by_status.items()},
    {code.name: code.value for code in FaultStatus},
    vars(lanner.com.constants),
    vars(lanner.activex.application),
    vars(lanner.activex.queue),
    vars(lanner.activex.transaction),
]
# MS-MQMQ 2.4: success codes that objects in tests return; the product returns none of them.
TESTS_ONLY = {"MQ_INFORMATION_FORMATNAME_BUFFER_TOO_SMALL"}


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - TESTS_ONLY))
def test_the_product_has_the_same_value(name: str) -> None:
    assert next(names[name] for names in PRODUCT if name in names) == EXPECTED[name]


def test_no_value_has_two_names() -> None:
    assert len(set(EXPECTED.values())) == len(EXPECTED)
