"""Downloading one bundle over HTTP, bounded and hashed."""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

import httpx2

from assets.servers.probe.failure_kinds import PackageError
from warehouse.network.http import open_client

MAX_BUNDLE_MB = 256


def download(
    url: str,
    folder: Path,
    *,
    sha256: str | None = None,
    max_mb: int = MAX_BUNDLE_MB,
    allow_loopback: bool = False,
) -> tuple[Path, str]:
    """(path, sha256 hex) of the bundle at `url`, kept in `folder` by its hash.

    With `sha256` a bundle already there is not downloaded again, and one that hashes to anything
    else is refused (`integrity`). Other failures: `not_found`, `oversize`, `fetch_failed` (also
    where the URL or a redirect leads to a private address).
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / (sha256 or "")
    if sha256 and kept.exists():
        if hashlib.sha256(kept.read_bytes()).hexdigest() == sha256:
            return kept, sha256
        kept.unlink()  # damaged on this disk: fetch it again
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".part-")
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            found = _stream_bundle(url, file, max_mb << 20, allow_loopback)
        if sha256 and found != sha256:
            raise PackageError(
                "integrity", f"{url} hashes to {found[:16]}…, expected {sha256[:16]}…"
            )
        part.rename(folder / found)
        return folder / found, found
    finally:
        part.unlink(missing_ok=True)


def _stream_bundle(url: str, file: BinaryIO, limit: int, allow_loopback: bool) -> str:
    total, state = 0, hashlib.sha256()
    try:
        with (
            open_client(
                allow_loopback=allow_loopback, follow_redirects=True, timeout=60.0
            ) as client,
            client.stream("GET", url) as answer,
        ):
            if answer.status_code in (404, 410):
                raise PackageError("not_found", f"{url} answers {answer.status_code}")
            if answer.status_code != 200:
                raise PackageError("fetch_failed", f"{url} answers {answer.status_code}")
            for chunk in answer.iter_bytes():
                total += len(chunk)
                if total > limit:
                    raise PackageError("oversize", f"{url} is larger than {limit >> 20} MB")
                state.update(chunk)
                file.write(chunk)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise PackageError("fetch_failed", f"{url}: {error or type(error).__name__}") from error
    return state.hexdigest()
