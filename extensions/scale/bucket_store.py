"""One prefix of a bucket: objects, written once or by condition, through obstore."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from warehouse.errors import UnusableInput
from warehouse.network.egress import check_bucket_url, is_loopback
from warehouse.storage.digest import sha256

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# Who asks: keys, or a role's. Without any the client asks the machine's metadata service, at a
# link-local address, which only who is on such a machine may want.
_IDENTITIES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)


class BucketUnavailable(RuntimeError):
    """The bucket refuses, cannot be reached, or holds what is not ours."""


class PointerMoved(BucketUnavailable):
    """Somebody else moved the pointer since it was read."""


class Bucket:
    """The objects below a prefix. Raises BucketUnavailable."""

    def __init__(self, store: Any, url: str) -> None:
        self._store, self.url = store, url

    def read(self, key: str, most: int) -> tuple[bytes, str] | None:
        """(bytes, entity tag) of an object of at most `most` bytes; None where there is none."""
        import obstore

        with self._explained(key):
            try:
                response = obstore.get(self._store, key)
            except FileNotFoundError as error:
                self._require_bucket(error)
                return None
            data = b""
            for chunk in response:
                data += bytes(chunk)
                if len(data) > most:
                    raise BucketUnavailable(f"{self.url}/{key}: more than {most:,} bytes")
            return data, response.meta["e_tag"] or ""

    def iter_chunks(self, key: str) -> Iterator[bytes]:
        import obstore

        with self._explained(key):
            for chunk in obstore.get(self._store, key):
                yield bytes(chunk)

    def list_objects(self, prefix: str) -> dict[str, int]:
        import obstore

        with self._explained(prefix):
            return {
                item["path"]: item["size"]
                for page in obstore.list(self._store, prefix)
                for item in page
            }

    def write_file(self, key: str, file: BinaryIO) -> None:
        """Writes an object that is named by its content, so that whoever writes it writes that."""
        import obstore

        with self._explained(key):
            obstore.put(self._store, key, file)

    def swap(self, key: str, data: bytes, tag: str | None) -> str:
        """Writes an object if its tag is still this one (None: absent). Raises PointerMoved."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._explained(key):
            try:
                mode: Any = {"e_tag": tag} if tag is not None else "create"
                return obstore.put(self._store, key, data, mode=mode)["e_tag"] or ""
            except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
                self._require_bucket(error)
                stored = self.read(key, 64 << 20)
        if stored and stored[0] == data:
            return stored[1]  # a try whose answer was lost had written it
        raise PointerMoved(
            f"{self.url}/{key}: somebody moved it meanwhile; look what is current, then publish"
            " again: what was sent stays"
        )

    def _require_bucket(self, error: Exception) -> None:
        if "NoSuchBucket" in str(error):
            raise BucketUnavailable(
                f"{self.url}: there is no such bucket; make it, or correct the name"
            ) from None

    @contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        try:
            yield
        except BucketUnavailable:
            raise
        except Exception as error:  # obstore's own are of several families
            if not type(error).__module__.startswith("obstore") and not isinstance(error, OSError):
                raise
            self._require_bucket(error)
            raise BucketUnavailable(f"{self.url}/{key}: {_explain_error(error)}") from None


def _explain_error(error: Exception) -> str:
    """What the store did and what to do, in one line; obstore's words only for other errors."""
    words = " ".join(str(error).split()).partition("<?xml")[0]
    url = urlsplit(_find_endpoint() or "")
    place = f"{url.scheme}://{url.netloc.rpartition('@')[2]}" if url.netloc else "AWS"
    if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return "refused; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they may do there"
    if isinstance(error, FileNotFoundError):
        return "is not there; publish the folder that holds it again"
    if status := re.search(r"status code: (\d{3})", words):
        return f"{place} answers {status[1]}; try again later, or check AWS_REGION and the bucket"
    if "error sending request" in words:
        return f"{place} does not answer; start that store, or correct AWS_ENDPOINT_URL"
    return (
        f"{type(error).__name__}: {words[:200]}; AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID"
        " and AWS_SECRET_ACCESS_KEY say where it is and who asks"
    )


def _find_endpoint() -> str | None:
    return next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)


def _check_endpoint(endpoint: str) -> str:
    """Its scheme. Raises UnusableInput for no address, or plain http beyond loopback."""
    try:
        url = urlsplit(endpoint)
        sound = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise UnusableInput("AWS_ENDPOINT_URL: expected https://HOST or http://127.0.0.1:PORT")
    if url.scheme == "http" and not is_loopback(url.hostname or ""):
        raise UnusableInput("AWS_ENDPOINT_URL: expected https (http on loopback alone)")
    return url.scheme


def open_bucket(url: str) -> Bucket:
    """The bucket of `s3://BUCKET/PREFIX`, by the variables of the environment that AWS's own tools
    read. A 503 is tried again, later each time, for a minute. Raises UnusableInput."""
    check_bucket_url(url)
    if find_spec("obstore") is None:
        fix = ".venv/bin/uv pip install 'toolmill[bucket]'"
        raise UnusableInput(f"a bucket needs the package obstore: {fix}")
    from obstore.store import S3Store

    for name in [name for name in os.environ if name.startswith("AWS_") and not os.environ[name]]:
        del os.environ[name]  # as compose sets it; the client takes an empty address for one
    endpoint = _find_endpoint()
    plain = _check_endpoint(endpoint) == "http" if endpoint else False
    asks_machine = os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "false"
    if not asks_machine and not any(os.environ.get(name) for name in _IDENTITIES):
        raise UnusableInput(
            "a bucket: AWS_ACCESS_KEY_ID is not set; set it and AWS_SECRET_ACCESS_KEY, or"
            " AWS_EC2_METADATA_DISABLED=false to ask this machine's metadata service for a role"
        )
    first, last = timedelta(milliseconds=100), timedelta(seconds=10)
    backoff: Any = {"init_backoff": first, "max_backoff": last, "base": 2}
    tries = {"max_retries": 8, "retry_timeout": timedelta(minutes=1), "backoff": backoff}
    client = {"allow_http": plain, "timeout": "60s", "connect_timeout": "10s"}
    options: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    options |= {"client_options": client, "retry_config": tries}
    try:
        store = S3Store.from_url(url.rstrip("/"), **options)
    except Exception as error:  # obstore's own; its first line alone is for people
        problem = str(error).partition("\n")[0]
        raise UnusableInput(f"a bucket: {problem}; correct the variables AWS_...") from None
    return Bucket(store, url.rstrip("/"))


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise BucketUnavailable(f"{where}: is no JSON object of ours; name another prefix")
    return body


def find_memory(state: Path, url: str) -> Path:
    """Where a state keeps which pointer of a bucket it has seen last."""
    return state / "buckets" / f"{sha256(url.rstrip('/').encode())[:32]}.json"
