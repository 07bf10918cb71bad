"""One API server and one PostgreSQL, both real, for the contract suites; each test has a part of its own in them."""

from collections.abc import Iterator

import pytest

from tests.kubebox import KubeBox
from tests.postgresbox import PostgresBox


@pytest.fixture(scope="session")
def kube_box() -> Iterator[KubeBox]:
    with KubeBox() as running:
        yield running


@pytest.fixture(scope="session")
def postgres_box() -> Iterator[PostgresBox]:
    with PostgresBox() as running:
        yield running
