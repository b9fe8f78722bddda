"""A real S3 server on loopback (moto's), some of whose answers are replaced."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from extensions.scale.bucket_folder import KEY

LAST = ("Last-Modified", "Thu, 26 Nov 2026 00:00:00 GMT")


class Faulty:
    """The server's application, of which some requests are answered by something else."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.busy, self.old, self.key = inner, 0, b"", KEY
        self.lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        path = environ["PATH_INFO"]
        if self.busy > 0:
            self.busy -= 1
            start("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        if self.old and path.endswith(self.key) and environ["REQUEST_METHOD"] == "GET":
            size = str(len(self.old))
            start("200 OK", [("Content-Length", size), ("ETag", '"old"'), LAST])
            return [self.old]
        with self.lock:  # the server's own check and write are two steps
            return list(self.inner(environ, start))


@contextmanager
def open_s3(bucket: str) -> Iterator[tuple[Faulty, dict[str, str]]]:
    """The server with one empty bucket, and the variables by which it is found."""
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
