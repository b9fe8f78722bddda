"""npm's registry: one small request for one version or tag.

Belongs here: the request, with npm's own settings of this host. `npm view` says the same and takes
0.6 s where this takes 0.1.
Does not belong here: ranges, which npm reads itself (`resolve.py`).
"""

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from assets.servers.recipe import Resolved, ResolveError
from assets.servers.toolchain import Toolchain

_MAX_BYTES = 8 << 20  # a manifest; the largest seen has 40 kB


class NpmRegistry:
    """Answers for one registry; one client serves all requests and threads."""

    def __init__(self, url: str, verify: Any, proxy: str | None) -> None:
        self._url = url.rstrip("/")
        self._http = httpx.Client(verify=verify, proxy=proxy, timeout=30.0, follow_redirects=True)

    def release(self, name: str, version: str) -> Resolved | None:
        """What the registry says of one exact version or tag; None where it has none. Raises
        ResolveError (`fetch_failed`)."""
        path = f"{quote(name, safe='@')}/{quote(version, safe='')}"
        try:
            answer = self._http.get(f"{self._url}/{path}")
            found = len(answer.content) <= _MAX_BYTES and answer.status_code == 200
            body: Any = answer.json() if found else None
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            detail = f"the npm registry on {path}: {error or type(error).__name__}"
            raise ResolveError("fetch_failed", detail) from error
        if answer.status_code == 404:
            return None
        if not isinstance(body, dict) or not isinstance(body.get("version"), str):
            detail = f"the npm registry answers {answer.status_code} on {path}"
            raise ResolveError("fetch_failed", detail)
        dist = body.get("dist")
        integrity = dist.get("integrity") if isinstance(dist, dict) else None
        return Resolved(body["version"], integrity if isinstance(integrity, str) else "")


def npm_registry(toolchain: Toolchain) -> NpmRegistry | None:
    """The registry that npm of this host uses; None where it has none set."""
    env = toolchain.fetch_env
    url = env.get("npm_config_registry")
    if not url:
        return None
    cafile = env.get("npm_config_cafile") or env.get("NODE_EXTRA_CA_CERTS")
    verify: Any = env.get("npm_config_strict_ssl") != "false"
    if verify and cafile and Path(cafile).exists():
        verify = ssl.create_default_context()
        verify.load_verify_locations(cafile)
    proxy = env.get("npm_config_https_proxy") or env.get("npm_config_proxy") or None
    return NpmRegistry(url, verify, proxy)
