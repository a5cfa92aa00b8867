"""A bucket for whatever keeps things in one."""

from collections.abc import Iterator

import pytest

from tests.bucket_server import bucket_server


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket that answers all that it is asked."""
    with bucket_server() as address:
        yield address
