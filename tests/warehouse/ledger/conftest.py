"""One Postgres for the tests of this folder, a new database for each that asks."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.postgres import Postgres, open_postgres

NUMBERS = count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    pytest.importorskip("psycopg2", reason="uv pip install 'toolmill[postgres]'")
    with open_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> str:
    return postgres_server.make_database(f"ledger{next(NUMBERS)}")
