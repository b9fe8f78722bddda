"""The Postgres world: one database in the sandbox, reset by copying, read as its worker."""

import pytest

from assets.outcomes.worlds.catalogue import find_world
from assets.outcomes.worlds.databases import DATABASE, WORKER
from assets.outcomes.worlds.session import find_missing, open_world
from assets.outcomes.worlds.tree import WorldFailed
from tests.support.untrusted_server import require_sandbox

WORLD = find_world("shop-postgres")


@pytest.fixture(autouse=True)
def here():
    require_sandbox()
    if missing := find_missing(WORLD):
        pytest.skip(missing)


def run_as_worker(opened, sql):
    return opened._state._cluster.run_sql(DATABASE, sql, user=WORKER)


def test_a_database_is_reset_whatever_was_done_to_it_and_its_worker_can_do_no_more(tmp_path):
    with open_world(WORLD, 1, tmp_path) as opened:
        first = opened.digest_state()
        assert not opened.grant.folders[0].writable
        run_as_worker(opened, "DELETE FROM orders; DROP TABLE products CASCADE;")
        run_as_worker(opened, f"ALTER ROLE {WORKER} SET search_path = nowhere;")
        assert opened.digest_state() != first
        opened.reset()
        assert opened.digest_state() == first
        states = [first]
        for sql in (
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';",
            "ALTER TABLE orders ADD CONSTRAINT few CHECK (quantity < 1000);",
            "ALTER TABLE orders ALTER status SET DEFAULT 'open';",
            "ALTER TABLE orders ALTER status DROP NOT NULL;",
            "CREATE TYPE size AS ENUM ('small', 'large');",
        ):
            run_as_worker(opened, sql)
            states.append(opened.digest_state())
        assert len({*states}) == len(states)
        opened.reset()
        assert opened.digest_state() == first
        for sql in (
            "COPY orders TO PROGRAM 'touch /tmp/out';",
            "COPY orders TO '/home/user/data/out';",
            f"ALTER ROLE {WORKER} SUPERUSER;",
            "CREATE DATABASE other;",
            "SET SESSION AUTHORIZATION mill;",
            "SELECT pg_read_file('/srv/cluster/.password');",
        ):
            with pytest.raises(WorldFailed, match=r"permission denied|must be|only|superuser"):
                run_as_worker(opened, sql)
        with pytest.raises(WorldFailed):
            opened._state._cluster.run_sql("seed", "SELECT 1;", user=WORKER)
