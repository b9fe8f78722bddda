"""A bucket in memory, where a test does not need a server."""

import pytest

from extensions.scale.bucket.bucket import Bucket


@pytest.fixture
def bucket() -> Bucket:
    from obstore.store import MemoryStore

    return Bucket(MemoryStore(), "s3://here/homes/main")
