"""A folder published to a bucket is fetched as it was; its pointer moves by condition alone."""

import errno
import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from extensions.scale import bucket_folder
from extensions.scale.bucket_store import Bucket, BucketUnavailable, PointerMoved, open_bucket
from tests.support.cases import cases
from tests.support.command import invoke_toolmill
from warehouse.errors import UnusableInput
from warehouse.storage.digest import sha256


class Faulty:
    """The server's application, which is too busy for so many requests."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.busy = inner, 0

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        if self.busy > 0:
            self.busy -= 1
            start("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        return self.inner(environ, start)


@contextmanager
def open_s3(bucket: str) -> Iterator[tuple[Faulty, dict[str, str]]]:
    import boto3  # pyright: ignore[reportMissingImports]
    from moto.server import DomainDispatcherApplication, create_backend_app  # pyright: ignore[reportMissingImports]
    from werkzeug.serving import make_server  # pyright: ignore[reportMissingImports]

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request
    app = Faulty(DomainDispatcherApplication(create_backend_app))
    http = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{http.server_port}"
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys).create_bucket(
        Bucket=bucket
    )
    found = {name.upper(): value for name, value in keys.items()}
    yield app, {**found, "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1"}
    http.shutdown()


obstore = pytest.importorskip("obstore", reason="uv pip install 'toolmill[bucket]'")


@pytest.fixture
def bucket() -> Bucket:
    from obstore.store import MemoryStore

    return Bucket(MemoryStore(), "s3://here/prefix")


def make_folder(at: Path, **files: str) -> Path:
    for name, text in files.items():
        path = at / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return at


def read_folder(at: Path) -> dict[str, str]:
    files = [path for path in at.rglob("*") if path.is_file()]
    return {path.relative_to(at).as_posix(): path.read_text() for path in files}


def test_a_folder_comes_back_and_its_next_version_sends_what_is_new(bucket, tmp_path):
    one = make_folder(tmp_path / "one", a="1", deep__b="2", deep__same="1")
    made = bucket_folder.publish_folder(bucket, one, tmp_path / "m.json")
    assert (made.number, made.files, made.sent, made.bytes_sent) == (1, 3, 2, 2)
    again = bucket_folder.publish_folder(bucket, one, tmp_path / "m.json")
    assert (again.version, again.number, again.sent) == (made.version, 1, 0)
    assert (
        bucket_folder.fetch_folder(bucket, tmp_path / "out", tmp_path / "other.json").version
        == made.version
    )
    assert read_folder(tmp_path / "out") == read_folder(one)
    memory = tmp_path / "m.json"
    second = bucket_folder.publish_folder(bucket, make_folder(one, a="3"), memory)
    assert (second.number, second.sent) == (2, 1)
    bucket_folder.fetch_folder(bucket, tmp_path / "now", memory)
    bucket_folder.fetch_folder(bucket, tmp_path / "then", memory, made.version)
    assert [read_folder(tmp_path / name)["a"] for name in ("now", "then")] == ["3", "1"]


def test_of_two_publishers_one_is_told_and_other_bytes_leave_no_folder(bucket, tmp_path):
    read = bucket_folder.read_current(bucket, tmp_path / "a.json")
    bucket_folder.publish_folder(
        bucket, make_folder(tmp_path / "one", a="right"), tmp_path / "m.json"
    )
    with pytest.raises(PointerMoved, match="somebody moved it"):
        bucket_folder.move_current(bucket, tmp_path / "a.json", "0" * 64, read)
    assert bucket_folder.read_current(bucket, tmp_path / "a.json") is not None
    obstore.put(bucket._store, f"files/{sha256(b'right')}", b"wrong")
    with pytest.raises(BucketUnavailable, match="other bytes than its name"):
        bucket_folder.fetch_folder(bucket, tmp_path / "out", tmp_path / "m.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "m.json", "one"]


def test_an_older_pointer_than_was_seen_is_a_stale_read(bucket, tmp_path):
    folder, memory = make_folder(tmp_path / "one", a="1"), tmp_path / "m.json"
    bucket_folder.publish_folder(bucket, folder, memory)
    old = bucket.read(bucket_folder.KEY, 1 << 16)
    assert old is not None
    bucket_folder.publish_folder(bucket, make_folder(folder, a="2"), memory)
    bucket.swap(bucket_folder.KEY, old[0], bucket.read(bucket_folder.KEY, 1 << 16)[1])  # type: ignore[index]
    with pytest.raises(bucket_folder.StaleRead, match="found number 1, expected 2 or more"):
        bucket_folder.fetch_folder(bucket, tmp_path / "out", memory)
    assert not (tmp_path / "out").exists()
    # One who has seen nothing yet cannot know.
    bucket_folder.fetch_folder(bucket, tmp_path / "out", tmp_path / "new.json")


@cases("name", "../x", "/etc/x", "a/../../x", ".", "a//b", "")
def test_a_list_that_names_a_file_elsewhere_is_refused(bucket, tmp_path, name):
    listed = json.dumps({"files": {name: [sha256(b"x"), 1]}}).encode()
    obstore.put(bucket._store, f"versions/{sha256(listed)}.json", listed)
    obstore.put(bucket._store, f"files/{sha256(b'x')}", b"x")
    bucket_folder.move_current(bucket, tmp_path / "m.json", sha256(listed), None)
    with pytest.raises(BucketUnavailable, match="no file below a folder"):
        bucket_folder.fetch_folder(bucket, tmp_path / "out", tmp_path / "m.json")


@cases("data", b"", b"[]", b"{}", b'{"version":"x","number":1}', b"[" * 50_000)
def test_a_pointer_of_somebody_else_is_named(bucket, tmp_path, data):
    obstore.put(bucket._store, bucket_folder.KEY, data)
    with pytest.raises(BucketUnavailable, match="name another prefix"):
        bucket_folder.read_current(bucket, tmp_path / "m.json")


def test_links_are_not_published_and_nothing_is_overwritten(bucket, tmp_path):
    folder, memory = make_folder(tmp_path / "one", a="1"), tmp_path / "m.json"
    with pytest.raises(BucketUnavailable, match="nothing was published"):
        bucket_folder.fetch_folder(bucket, tmp_path / "out", memory)
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(UnusableInput, match="plain files"):
        bucket_folder.publish_folder(bucket, folder, memory)
    with pytest.raises(UnusableInput, match="not empty"):
        bucket_folder.fetch_folder(bucket, folder, memory)


@cases(
    "url, endpoint, message",
    *(
        (url, "", r"expected s3://BUCKET/PREFIX.* 3 to 63 lower-case")
        for url in ("s3://", "s3://only-a-bucket", "https://h/p", "s3://k:v@b/p", "s3://Up/p")
    ),
    *(
        ("s3://bucket/prefix", endpoint, "AWS_ENDPOINT_URL: expected https://HOST")
        for endpoint in ("foo", "127.0.0.1:9", "http://127.0.0.1:99999", "ftp://h")
    ),
    ("s3://ab/p", "", "3 to 63 lower-case"),
    ("s3://bucket/prefix", "http://10.0.0.1:9000", "expected https"),
)
def test_an_address_that_cannot_be_used_is_one_line(monkeypatch, url, endpoint, message):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(UnusableInput, match=message):
        open_bucket(url)


def test_without_a_key_the_metadata_service_is_asked_by_setting_alone(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    for name in ("AWS_ENDPOINT_URL", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "")
    with pytest.raises(UnusableInput, match="SecretAccessKey; correct the variables AWS_"):
        open_bucket("s3://bucket/prefix")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert open_bucket("s3://bucket/prefix").url == "s3://bucket/prefix", "no endpoint is AWS's"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for disabled in ("", "true"):
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", disabled)
        with pytest.raises(UnusableInput, match="AWS_ACCESS_KEY_ID is not set"):
            open_bucket("s3://bucket/prefix")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    assert open_bucket("s3://bucket/prefix").url == "s3://bucket/prefix"  # asks nobody yet


@cases(
    "kind, words, line",
    ("GenericError", "Generic S3 error: HTTP error: error sending request Debug source: x",
     "http://127.0.0.1:9 does not answer; start that store, or correct AWS_ENDPOINT_URL"),
    ("GenericError", "Server returned non-2xx status code: 503 Slow Down: <?xml <Error>",
     "http://127.0.0.1:9 answers 503; try again later, or check AWS_REGION and the bucket"),
    ("PermissionDeniedError", "The operation lacked the necessary privileges <?xml",
     "refused; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they may do there"),
)  # fmt: skip
def test_what_a_store_did_is_one_line_with_the_fix(bucket, monkeypatch, kind, words, line):
    from obstore import exceptions

    def refuse(*_: object) -> None:
        raise getattr(exceptions, kind)(words)

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://k:v@127.0.0.1:9")
    monkeypatch.setattr(obstore, "get", refuse)
    with pytest.raises(BucketUnavailable) as found:
        bucket.read(bucket_folder.KEY, 1 << 16)
    assert str(found.value) == f"{bucket.url}/{bucket_folder.KEY}: {line}"


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


def test_a_release_goes_through_the_commands_and_busy_answers_are_asked_again(server, tmp_path):
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
    assert (wrong.returncode, "not empty" in wrong.stderr) == (2, True)
    with pytest.raises(BucketUnavailable, match=r"bucket-two/x: there is no such bucket"):
        bucket_folder.publish_folder(open_bucket("s3://bucket-two/x"), folder, tmp_path / "m.json")


def test_what_cannot_be_read_is_left_out_and_named(bucket, tmp_path, monkeypatch):
    folder, here = make_folder(tmp_path / "one", a="1", closed="2", shut__file="3"), os.getcwd()
    try:
        os.chdir(folder)
        for _ in range(70):
            os.mkdir("n" * 60)
            os.chdir("n" * 60)
            Path("file").write_text("x")
    finally:
        os.chdir(here)
    open_path = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if path in ("closed", "shut"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return open_path(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    made = bucket_folder.publish_folder(bucket, folder, tmp_path / "m.json")
    monkeypatch.undo()
    denied = "Permission denied"
    assert made.left_out["closed"] == made.left_out["shut"] == denied
    deep = {"its path is too long", "more than 64 folders one in another"}
    assert {*made.left_out.values()} == {denied, *deep}
    bucket_folder.fetch_folder(bucket, tmp_path / "out", tmp_path / "other.json")
    fetched = read_folder(tmp_path / "out")
    assert (fetched["a"], fetched["n" * 60 + "/file"], len(fetched)) == ("1", "x", made.files)
