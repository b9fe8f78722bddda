"""Downloading one bundle over HTTP, bounded and hashed."""

import hashlib
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import anyio
import httpx2

from assets.servers.probe.failure_kinds import PackageError
from warehouse.network.egress import Connector, is_loopback
from warehouse.network.http import AsyncTransport
from warehouse.storage.digest import Sha256

MAX_BUNDLE_MB = 256
_DEADLINE_S = 240.0  # look-ups, redirects and body together; a host may send a byte a second
_STALL_S = 60.0
_REDIRECTS = 5


def download(
    url: str,
    folder: Path,
    *,
    sha256: Sha256 | None = None,
    max_mb: int = MAX_BUNDLE_MB,
    allow_loopback: bool = False,
    deadline_s: float = _DEADLINE_S,
) -> tuple[Path, Sha256]:
    """(path, sha256 hex) of the bundle at `url`, kept in `folder` by its hash.

    With `sha256` a bundle already there is not downloaded again, and one that hashes to anything
    else is refused (`integrity`). Other failures: `not_found`, `oversize`, `fetch_failed` (also
    where the URL or a redirect leads to a private address, and after `deadline_s` in all).
    allow_loopback: a URL on loopback, and what it redirects to, may lie there (the demo's do).
    """
    folder.mkdir(parents=True, exist_ok=True)
    if sha256 and (kept := folder / Sha256(sha256)).exists():
        if hashlib.sha256(kept.read_bytes()).hexdigest() == sha256:
            return kept, sha256
        kept.unlink()  # damaged on this disk: fetch it again
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".part-")
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            connector = Connector(allow_loopback=allow_loopback and _is_on_loopback(url))
            found = anyio.run(_stream_bundle, url, file, max_mb << 20, connector, deadline_s)
        if sha256 and found != sha256:
            raise PackageError(
                "integrity", f"{url} hashes to {found[:16]}…, expected {sha256[:16]}…"
            )
        part.rename(folder / found)
        return folder / found, found
    finally:
        part.unlink(missing_ok=True)


def _is_on_loopback(url: str) -> bool:
    try:
        return is_loopback(httpx2.URL(url).host)
    except httpx2.InvalidURL:
        return False  # refused, with its reason, when it is asked for


async def _stream_bundle(
    url: str, file: BinaryIO, limit: int, connector: Connector, deadline_s: float
) -> Sha256:
    total, state = 0, hashlib.sha256()
    try:
        with anyio.fail_after(deadline_s):
            async with _open_bundle(url, connector) as answer:
                _check_answer(url, answer)
                async for chunk in answer.aiter_raw():  # as sent: nothing is decompressed
                    total += len(chunk)
                    if total > limit:
                        raise PackageError("oversize", f"{url} is larger than {limit >> 20} MB")
                    state.update(chunk)
                    file.write(chunk)
    except TimeoutError as error:
        raise PackageError("fetch_failed", f"{url}: not done in {deadline_s:g} s") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise PackageError("fetch_failed", f"{url}: {error or type(error).__name__}") from error
    return Sha256(state.hexdigest())


@asynccontextmanager
async def _open_bundle(url: str, connector: Connector) -> AsyncIterator[httpx2.Response]:
    """The first answer that is no redirect. Redirects are followed here, each over the guarded
    connector: the client would read, and decompress, their bodies without a bound."""
    async with httpx2.AsyncClient(
        transport=AsyncTransport(connector),
        headers={"Accept-Encoding": "identity"},
        timeout=_STALL_S,
    ) as client:
        request = client.build_request("GET", url)
        for _ in range(_REDIRECTS + 1):
            answer = await client.send(request, stream=True)
            try:
                if answer.next_request is None:
                    yield answer
                    return
                request = answer.next_request
            finally:
                await answer.aclose()
    raise PackageError("fetch_failed", f"{url}: more than {_REDIRECTS} redirects")


def _check_answer(url: str, answer: httpx2.Response) -> None:
    """Raises PackageError unless it is the bundle as it is."""
    if answer.status_code in (404, 410):
        raise PackageError("not_found", f"{url} answers {answer.status_code}")
    if answer.status_code != 200:
        raise PackageError("fetch_failed", f"{url} answers {answer.status_code}")
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise PackageError(
            "fetch_failed", f"{url} is sent in the encoding {encoding[:40]!r}, asked for none"
        )
