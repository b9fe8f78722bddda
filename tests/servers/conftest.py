"""Fixtures: a loopback host for bundles, and bundles made on the spot."""

import io
import json
import zipfile
from collections.abc import Iterator
from hashlib import sha256

import pytest

from assets.marketplaces.listing import EnvVar, Listing, PackageRef
from assets.servers.secrets import SecretSources, ServerSecrets
from tests.marketplaces.site import Answer, site
from tests.serving.calling import Bench
from tests.support.untrusted_server import PREAMBLE


def bundle(source: str, **manifest) -> bytes:
    facts = {
        "manifest_version": "0.3",
        "name": "test",
        "server": {
            "type": "python",
            "entry_point": "main.py",
            "mcp_config": {"command": "python", "args": ["${__dirname}/main.py"], "env": {}},
        },
        **manifest,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in (("manifest.json", json.dumps(facts)), ("main.py", PREAMBLE + source)):
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), text)
    return buffer.getvalue()


class BundleHost:
    """Serves bytes by path on loopback and counts the requests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.url = ""

    def answer(self, path: str, _: int) -> Answer:
        self.requests.append(path)
        body = self.files.get(path)
        return Answer(body or b"", status=404 if body is None else 200)

    def listing(self, name: str, source: str | None, *, pinned: bool = True, **facts) -> Listing:
        """The listing of a bundle now served here; without source nothing is served."""
        body = bundle(source, **facts) if source is not None else b""
        if source is not None:
            self.files[f"/{name}.mcpb"] = body
        digest = f"sha256:{sha256(body).hexdigest()}" if pinned else None
        url = f"{self.url}/{name}.mcpb"
        package = PackageRef(type="mcpb", identifier=url, version="1.0.0", digest=digest)
        return _listing(package, {"native_id": name, "name": name})


def make_secrets(server_id: str, **env: str) -> SecretSources:
    """The secrets of one server: its variables, and where they come from."""
    return SecretSources({server_id: ServerSecrets(env=env)}, bytes(16))


@pytest.fixture
def bench(tmp_path, monkeypatch) -> Bench:
    """Servers that are written on the spot and called."""
    return Bench(tmp_path, monkeypatch)


@pytest.fixture
def host() -> Iterator[BundleHost]:
    served = BundleHost()
    with site(served.answer) as here:
        served.url = here.url
        yield served


def npm(name: str, version: str | None = "1.0.0", **facts) -> Listing:
    return _listing(PackageRef(type="npm", identifier=name, version=version), facts)


def pypi(name: str, version: str | None = "1.0.0", **facts) -> Listing:
    return _listing(PackageRef(type="pypi", identifier=name, version=version), facts)


def _listing(package: PackageRef, facts: dict) -> Listing:
    name, env = package.identifier, tuple(EnvVar(**about) for about in facts.pop("env", ()))
    about = {"marketplace": "registry", "native_id": name, "name": name, "transport": "stdio"}
    return Listing(**{**about, "package": package, "env": env, "runnable": True, **facts})
