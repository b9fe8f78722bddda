"""The same over HTTP, by the commands, against an S3 server that also fails and is killed."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from extensions.scale.bucket.bucket import BucketUnavailable, open_bucket
from extensions.scale.bucket_home.root import HomeHeld, read_root
from tests.extensions.scale.bucket_home.machines import (
    end_machine,
    open_machine,
    open_store,
    read_value,
    write_rows,
)
from tests.support.command import invoke_toolmill
from tests.support.paths import ROOT
from tests.support.s3 import Faulty, open_s3
from warehouse.ledger.recovery import check

pytestmark = pytest.mark.slow
URL = "s3://homes/main"
OWN = "s3://homes/killed"  # the server keeps what the tests before left


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    pytest.importorskip("obstore", reason="uv pip install 'toolmill[bucket]'")
    pytest.importorskip("moto.server", reason="uv pip install 'moto[server]'")
    with open_s3("homes") as (app, variables):
        for name, value in {**variables, "TOOLMILL_STORAGE__BUCKET": URL}.items():
            monkeypatch.setenv(name, value)
        yield app


def test_two_machines_share_a_home_by_the_commands_and_busy_answers_are_asked_again(
    server: Faulty, tmp_path: Path
) -> None:
    write_rows(open_machine(open_bucket(URL), tmp_path / "1"), 1, paid="k")
    server.busy = 3
    made = invoke_toolmill("bucket", "commit", home=tmp_path / "1")
    assert made.returncode == 0, made.stderr
    assert (json.loads(made.stdout)["commit"], json.loads(made.stdout)["holder"]) == (1, None)
    server.busy = 2
    spent = invoke_toolmill("spend", home=tmp_path / "2")  # any command that reads fetches
    assert spent.returncode == 0, spent.stderr
    assert "0.5" in spent.stdout
    again = invoke_toolmill("bucket", "pull", home=tmp_path / "2")
    assert json.loads(again.stdout)["objects"] == 0
    assert server.busy == 0


def test_commands_that_write_hold_the_home_and_a_second_one_is_one_line(
    server: Faulty, tmp_path: Path
) -> None:
    bucket = open_bucket(URL)
    one = open_machine(bucket, tmp_path / "1")
    with one.hold():
        write_rows(one, 1, paid="k")
    said = ("takedown", "add", "--secret", "--by", "ann", "--why", "asked")
    done = invoke_toolmill(*said, home=tmp_path / "2", typed="a-long-secret-of-a-customer")
    assert done.returncode == 0, done.stderr
    assert read_root(bucket).number == 2
    with one.hold():
        refused = invoke_toolmill(*said, home=tmp_path / "2", typed="another-long-secret")
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"{URL}: held by ")
    assert refused.stderr.count("\n") == 1
    one.refresh()
    assert (one.home / "takedowns" / "record.jsonl").exists()


def test_a_bucket_that_is_busy_for_too_long_is_one_line_and_nothing_is_lost(
    server: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = open_bucket(URL)
    one = open_machine(bucket, tmp_path / "1")
    with one.hold():
        write_rows(one, 1)
    server.busy = 10_000
    with pytest.raises(BucketUnavailable, match=r"answers 503; try again later"), one.hold():
        pass
    server.busy = 0
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    keyless = invoke_toolmill("bucket", "status", home=tmp_path / "1")
    assert keyless.returncode == 2
    assert "AWS_ACCESS_KEY_ID is not set" in keyless.stderr
    assert read_value(one) == 1


def test_a_cache_with_an_old_root_moves_nothing(server: Faulty, tmp_path: Path) -> None:
    bucket = open_bucket(URL)
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "2")
    with one.hold():
        write_rows(one, 1)
    found = bucket.read("root.json", 1 << 16)
    assert found is not None
    with one.hold():
        write_rows(one, 2)
    server.old, server.key = found[0], "root.json"
    with pytest.raises(HomeHeld, match="a cache before it answers with what was"), two.hold():
        pass
    server.old = b""
    two.refresh()
    assert read_value(two) == 2


def kill_at_work(place: Path, after_s: float) -> int:
    """The last value that a machine had committed and said so when it was killed, that long after
    its first one."""
    command = [sys.executable, "-m", "tests.extensions.scale.bucket_home.killed", str(place), OWN]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [child.stdout.readline()]
        time.sleep(after_s)
        child.kill()
        said += child.stdout.readlines()
    return int([line for line in said if line.endswith("\n")][-1])


def test_a_machine_that_is_killed_anywhere_loses_nothing_that_it_had_committed(
    server: Faulty, tmp_path: Path
) -> None:
    bucket, chance = open_bucket(OWN), random.Random(19)
    reader = open_machine(bucket, tmp_path / "reader")
    for number in range(6):
        # Two machines by turns, then one of them again after its own death.
        said = kill_at_work(tmp_path / "ab"[number // 2 % 2], chance.random() * 0.6)
        reader.refresh(strict=True)
        value = read_value(reader)
        assert value in (said, said + 1), "the next commit may have been made and not be told"
        ledger = open_store(reader).ledger
        unpaid = [n for n in range(1, value + 1) if not ledger.seen(f"effect {n}")]
        assert not unpaid, (number, said, value)
        health = check(reader.state / "ledger.db", open_store(reader).blobs)
        assert (health.healthy, health.blobs_missing) == (True, 0)
        pages = {path.read_text().split()[0] for path in (reader.home / "reports").iterdir()}
        assert len(pages) == 1, "no commit is half of two"
        end_machine(bucket)
