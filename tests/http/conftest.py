from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.http.service import HttpService


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpService]:
    """One for all tests of a module."""
    made = HttpService(tmp_path_factory.mktemp("http") / "alpha")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def alice(service: HttpService) -> Iterator[httpx.Client]:
    with service.client("alice") as client:
        yield client


@pytest.fixture
def bob(service: HttpService) -> Iterator[httpx.Client]:
    with service.client("bob") as client:
        yield client
