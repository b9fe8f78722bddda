"""npm's registry: one small request for one version or tag."""

import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from assets.marketplaces.server_json.inputs import as_object
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.recipe import Resolved
from assets.servers.sandbox.toolchain import Toolchain
from warehouse.network.http import open_client

# The short form of a package's document: versions, tags and hashes.
_ACCEPT = "application/vnd.npm.install-v1+json, application/json;q=0.8"


class NpmRegistry:
    """Answers for one registry; one client serves all requests and threads."""

    def __init__(self, env: Mapping[str, str], url: str) -> None:
        self._env, self._url, self._lock = env, url.rstrip("/"), threading.Lock()

    @cached_property
    def _http(self) -> httpx2.Client:
        """Opened for the first request: to read certificates takes longer than all else of a run
        that resolves nothing."""
        env = self._env
        cafile = env.get("npm_config_cafile") or env.get("NODE_EXTRA_CA_CERTS")
        tls = httpx2.create_ssl_context(env.get("npm_config_strict_ssl") != "false")
        if cafile and Path(cafile).exists():
            tls.load_verify_locations(cafile)
        return open_client(
            trusted=[httpx2.URL(self._url).host],
            tls=tls,
            proxy=env.get("npm_config_https_proxy") or env.get("npm_config_proxy") or "",
            timeout=30.0,
            follow_redirects=True,
        )

    def release(self, name: str, version: str) -> Resolved | None:
        """What the registry says of one exact version or tag; None where it has none. Raises
        PackageError (`fetch_failed`)."""
        quoted = quote(name, safe="@")
        found = self._get(f"{quoted}/{quote(version, safe='')}")
        if found is None:  # some registries answer 404 for the tags of a package that they have
            whole = self._get(quoted) or {}
            tags, versions = as_object(whole.get("dist-tags")), as_object(whole.get("versions"))
            found = versions.get(tags.get(version, version))
        if found is None:
            return None
        exact, integrity = as_object(found).get("version"), as_object(found.get("dist"))
        if not isinstance(exact, str):
            raise PackageError("fetch_failed", f"the npm registry names no version of {name}")
        hashed = integrity.get("integrity")
        return Resolved(exact, hashed if isinstance(hashed, str) else "")

    def _get(self, path: str) -> dict[str, Any] | None:
        """The JSON object at a path, None on 404."""
        try:
            with self._lock:
                http = self._http
            answer = http.get(f"{self._url}/{path}", headers={"Accept": _ACCEPT})
            body = answer.json() if answer.status_code == 200 else None
        except (httpx2.HTTPError, ValueError, RecursionError) as error:
            detail = f"the npm registry on {path}: {error or type(error).__name__}"
            raise PackageError("fetch_failed", detail) from error
        if answer.status_code == 404:
            return None
        if not isinstance(body, dict):
            detail = f"the npm registry answers {answer.status_code} on {path}"
            raise PackageError("fetch_failed", detail)
        return body


def open_npm_registry(toolchain: Toolchain) -> NpmRegistry | None:
    """The registry that npm of this host uses; None where it has none set."""
    env = toolchain.fetch_env
    url = env.get("npm_config_registry")
    if not url:
        return None
    return NpmRegistry(env, url)
