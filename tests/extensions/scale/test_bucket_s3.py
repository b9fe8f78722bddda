"""The same over HTTP, against an S3 server that also fails and answers with what was."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from extensions.scale.bucket_folder import (
    KEY,
    StaleRead,
    fetch_folder,
    publish_folder,
    read_current,
)
from extensions.scale.bucket_store import BucketUnavailable, open_bucket
from tests.extensions.scale.test_bucket_folder import make_folder, read_folder
from tests.support.command import invoke_toolmill
from tests.support.s3 import Faulty, open_s3

pytestmark = pytest.mark.slow
URL = "s3://bucket-one/releases/demo"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    pytest.importorskip("obstore", reason="uv pip install 'toolmill[bucket]'")
    pytest.importorskip("moto.server", reason="uv pip install 'moto[server]'")
    with open_s3("bucket-one") as (app, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield app


def test_a_release_goes_through_the_commands_and_busy_answers_are_asked_again(
    server: Faulty, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    folder = make_folder(tmp_path / "one", a="1", router__b="2" * 100_000)
    server.busy = 3
    made = invoke_toolmill("bucket", "publish", str(folder), URL, home=home)
    assert made.returncode == 0, made.stderr
    server.busy = 2
    fetched = invoke_toolmill("bucket", "fetch", URL, str(tmp_path / "out"), home=home)
    assert fetched.returncode == 0, fetched.stderr
    assert server.busy == 0
    assert read_folder(tmp_path / "out") == read_folder(folder)
    wrong = invoke_toolmill("bucket", "fetch", URL, str(tmp_path / "out"), home=home)
    assert wrong.returncode == 2
    assert "not empty" in wrong.stderr


def test_of_publishers_at_once_each_moves_the_pointer_or_is_told(
    server: Faulty, tmp_path: Path
) -> None:
    results: list[object] = []

    def publish(number: int) -> None:
        folder = make_folder(tmp_path / str(number), a=str(number))
        try:
            memory = tmp_path / f"{number}.json"
            results.append(publish_folder(open_bucket(URL), folder, memory).number)
        except BucketUnavailable as error:
            results.append(type(error).__name__)

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(6)]
    [thread.start() for thread in threads]
    [thread.join(180) for thread in threads]
    numbers = [result for result in results if isinstance(result, int)]
    assert len(set(numbers)) == len(numbers), "no number is given twice"
    current = read_current(open_bucket(URL), tmp_path / "look.json")
    assert current is not None
    assert current.number == max(numbers)
    assert len(results) == 6
    assert {result for result in results if not isinstance(result, int)} <= {"PointerMoved"}


def test_a_cache_that_answers_with_what_was_is_found_out(server: Faulty, tmp_path: Path) -> None:
    bucket, memory = open_bucket(URL), tmp_path / "m.json"
    folder = make_folder(tmp_path / "one", a="1")
    publish_folder(bucket, folder, memory)
    found = bucket.read(KEY, 1 << 16)
    assert found is not None
    publish_folder(bucket, make_folder(folder, a="2"), memory)
    server.old = found[0]
    with pytest.raises(StaleRead):
        fetch_folder(bucket, tmp_path / "out", memory)
    # One who has seen nothing yet cannot know, but moves nothing by it.
    with pytest.raises(BucketUnavailable, match="moved it"):
        publish_folder(bucket, make_folder(folder, a="3"), tmp_path / "new.json")
    server.old = b""
    fetch_folder(bucket, tmp_path / "out", memory)
    assert read_folder(tmp_path / "out") == {"a": "2"}


def test_a_bucket_that_is_not_there_is_one_line(server: Faulty, tmp_path: Path) -> None:
    with pytest.raises(BucketUnavailable, match=r"bucket-two/x: there is no such bucket"):
        publish_folder(open_bucket("s3://bucket-two/x"), make_folder(tmp_path / "o", a="1"),
                       tmp_path / "m.json")  # fmt: skip
