"""One real API server for all contract suites that want one; each test has a namespace of its own."""

from collections.abc import Iterator

import pytest

from tests.kubebox import KubeBox


@pytest.fixture(scope="session")
def kube_box() -> Iterator[KubeBox]:
    with KubeBox() as running:
        yield running
