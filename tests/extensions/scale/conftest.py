"""One Postgres for the tests of this folder, a new database for each that asks."""

from tests.support.postgres import postgres_server, postgres_url  # noqa: F401
