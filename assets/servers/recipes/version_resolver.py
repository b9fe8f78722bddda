"""Resolving: the exact release that a name and version mean, and what it must hash to."""

import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
from packaging.utils import canonicalize_name

from assets.marketplaces.listing import PackageRef
from assets.marketplaces.server_json.inputs import as_object
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.fetch_phase import (
    FETCH,
    StagingFolder,
    ToolExit,
    download,
    fetch_policy,
    open_staging,
    run_tool,
)
from assets.servers.recipes.recipe import ResolvedVersion, find_exact_version, parse_image
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.sandbox.toolchain import HostToolchain, ToolMissing
from warehouse.ledger.attempts import EffectOutcome
from warehouse.ledger.ledger import Ledger
from warehouse.network.http import open_client
from warehouse.patterns import Pattern, compile_pattern
from warehouse.storage.digest import digest

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

    def release(self, name: str, version: str) -> ResolvedVersion | None:
        """What the registry says of one exact version or tag; None where it has none. Raises
        PackageError (`fetch_failed`)."""
        quoted = quote(name, safe="@")
        document = self._get(f"{quoted}/{quote(version, safe='')}")
        if document is None:  # some registries answer 404 for the tags of a package that they have
            whole = self._get(quoted) or {}
            tags, versions = as_object(whole.get("dist-tags")), as_object(whole.get("versions"))
            document = versions.get(tags.get(version, version))
        if document is None:
            return None
        exact, integrity = as_object(document).get("version"), as_object(document.get("dist"))
        if not isinstance(exact, str):
            raise PackageError("fetch_failed", f"the npm registry names no version of {name}")
        hashed = integrity.get("integrity")
        return ResolvedVersion(exact, hashed if isinstance(hashed, str) else "")

    def list_versions(self, name: str) -> list[str]:
        """The versions of a package, the one that `latest` names first."""
        whole = self._get(quote(name, safe="@")) or {}
        versions = list(as_object(whole.get("versions")))
        latest = as_object(whole.get("dist-tags")).get("latest")
        return sorted(versions, key=lambda version: version != latest)

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


_WORDS = {  # of a client that fails, by the kind of failure
    "needs_software": "cannot connect|is the docker daemon running|not a docker command"
    "|unknown command",
    "remote_auth": "denied|unauthori[sz]ed|authentication required",
    "not_found": "manifest unknown|not found|no such manifest|name unknown"
    "|repository does not exist",
}

Run = Callable[[tuple[str, ...]], subprocess.CompletedProcess[str]]


def _run(argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def resolve_image_digest(reference: str, run: Run = _run) -> str:
    """`sha256:<hex>` of the manifest that `reference` (NAME:TAG) points to. Raises PackageError:
    `needs_software` without an engine, `not_found`, `remote_auth`, `fetch_failed`."""
    engine = shutil.which("docker") or shutil.which("podman")
    if engine is None:
        raise PackageError(
            "needs_software",
            f"the tag of {reference} can only be resolved by a container engine, and here is"
            " neither `docker` nor `podman`: install one, or list the image by its digest",
        )
    # The registry is asked by the client; buildx gives the digest of the whole index.
    output_format = ("--format", "{{.Manifest.Digest}}")
    argv = (engine, "buildx", "imagetools", "inspect", reference, *output_format)
    try:
        finished = run(argv)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PackageError("fetch_failed", f"asking for {reference}: {error}") from error
    match = re.search(r"sha256:[0-9a-f]{64}", finished.stdout)
    if finished.returncode == 0 and match:
        return match[0]
    message = " ".join(finished.stderr.split())[-200:]
    named = (
        kind for kind, words in _WORDS.items() if compile_pattern(f"(?i){words}").search(message)
    )
    raise PackageError(next(named, "fetch_failed"), f"{reference}: {message}")


_PYPI_ABSENT = (
    r"not found in the package registry"
    r"|was not found in the (provided )?(package )?(locations|registry)"
)
_PYPI_NO_VERSION = r"there (is|are) no versions? of|no versions? of"
_OTHER_PYTHON = r"requires-python|Python\s*[<>=!~]|current Python version"
_FACTS = 3  # of the answer that is kept
_MOST_VERSIONS = 2000  # of a package that a range chooses from


class VersionResolver:
    """Resolves packages through the ledger.

    A pinned release is asked for once and for ever; an unpinned one once a run, because its
    latest version moves. Calling it raises PackageError (`not_found`, `fetch_failed`,
    `build_failed`), which is not recorded as done. sandbox: its backend, hosts and loopback.
    """

    def __init__(
        self,
        home: Path,
        toolchain: HostToolchain,
        ledger: Ledger,
        run_date: str,
        *,
        sandbox: SandboxPolicy | None = None,
    ) -> None:
        self._home, self._toolchain, self._policy = home, toolchain, fetch_policy(sandbox)
        self._ledger, self._run_date = ledger, run_date

    @cached_property
    def _registry(self) -> NpmRegistry:
        """The registry that npm of this host uses. Raises ToolMissing, PackageError."""
        env = self._toolchain.fetch_env
        if url := env.get("npm_config_registry"):
            return NpmRegistry(env, url)
        command = [*map(str, self._toolchain.require_node()), "config", "get", "registry"]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if asked.returncode or not asked.stdout.strip():
            raise PackageError("fetch_failed", f"npm names no registry: {asked.stderr[-200:]}")
        return NpmRegistry(env, asked.stdout.strip())

    def __call__(self, package: PackageRef) -> ResolvedVersion:
        if package.type == "mcpb" and package.digest:
            return ResolvedVersion(package.version, package.digest)
        if package.type == "oci" and (pinned_image := parse_image(package))[2]:
            return ResolvedVersion(pinned_image[1], str(pinned_image[2]))
        version = find_exact_version(package)
        pinned = version is not None and package.type in ("npm", "pypi")
        key = {
            "effect": "resolve",
            "facts": _FACTS,
            "type": package.type,
            "name": package.identifier,
            "version": version or package.version,
            "run_date": None if pinned else self._run_date,
        }
        asks = {
            "npm": self._resolve_npm,
            "pypi": self._resolve_pypi,
            "mcpb": self._resolve_mcpb,
            "oci": self._resolve_oci,
        }
        ask = asks.get(package.type)
        if ask is None:
            raise PackageError("policy_denied", f"{package.type} packages are not launched here")
        data = self._ledger.once("resolve", digest(key), partial(_resolve_once, ask, package))
        return ResolvedVersion(**json.loads(data))

    def _resolve_npm(self, package: PackageRef) -> ResolvedVersion:
        """One small request; two for a range. In place of a version that was never published the
        latest is taken."""
        version, name = package.version or "latest", package.identifier
        is_range = not re.fullmatch(r"[A-Za-z][\w.+\-]*|v?\d+\.\d+\.\d+[\w.+\-]*", version)
        within = self._find_within(name, version) if is_range else version
        release = self._registry.release(name, within) if within else None
        if release is None and (is_range or find_exact_version(package)):
            release = self._registry.release(package.identifier, "latest")
            if release is not None:
                return replace(release, instead_of=version)
        if release is None:
            raise PackageError("not_found", f"npm has no {package.identifier}@{version}")
        return release

    def _find_within(self, name: str, bounds: str) -> str | None:
        """The version that npm takes for a range: the latest if it may, else the newest."""
        versions = self._registry.list_versions(name)
        node, npm = self._toolchain.require_node()
        script = "const s=require(process.argv[1]),[v,r]=JSON.parse(process.argv[2]);console.log("
        script += "v.length&&s.satisfies(v[0],r)?v[0]:s.maxSatisfying(v,r)||'')"
        semver = str(npm.resolve().parent.parent / "node_modules" / "semver")
        facts = json.dumps([versions[:1] + versions[-_MOST_VERSIONS:], bounds[:100]])
        asked = [str(node), "-e", script, semver, facts]
        finished = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        return finished.stdout.strip() or None

    def _resolve_pypi(self, package: PackageRef) -> ResolvedVersion:
        """By uv, which reads every kind of index; with another Python where the usual one will not
        do, and at the latest version where the one named was never published."""
        name, version = canonicalize_name(package.identifier), find_exact_version(package)
        bounds = package.version if re.match(r"[=<>!~]", package.version or "") else ""
        spec = f"{name}=={version}" if version else f"{name}{bounds}"
        finished = self._compile_requirement(spec, None, "--generate-hashes")
        message = " ".join(finished.stderr.split())
        python = None
        if finished.code != 0 and compile_pattern(_OTHER_PYTHON).search(message):
            versions = sorted(self._toolchain.pythons, key=lambda minor: int(minor.split(".")[1]))
            usual = sys.version_info.minor
            newer = [minor for minor in versions if int(minor.split(".")[1]) > usual]
            for python in [*newer, *reversed([minor for minor in versions if minor not in newer])]:
                finished = self._compile_requirement(spec, python, "--generate-hashes")
                if finished.code == 0:
                    break
        match = Pattern(rf"(?m)^{re.escape(name)}==([^\s\\;]+)").search(finished.stdout)
        hashes = sorted(set(re.findall(r"sha256:[0-9a-f]{64}", finished.stdout)))
        if finished.code == 0 and match and hashes:
            released = self._find_release_date(f"{name}=={match[1]}", python)
            return ResolvedVersion(match[1], " ".join(hashes), python, released)
        if compile_pattern(_PYPI_ABSENT).search(message):
            raise PackageError("not_found", f"the Python index has no {spec}")
        if compile_pattern(_OTHER_PYTHON).search(message):
            have = ", ".join([self._toolchain.python_version, *sorted(self._toolchain.pythons)])
            raise PackageError(
                "needs_software", f"{spec} runs on none of this host's Pythons ({have})"
            )
        if compile_pattern(_PYPI_NO_VERSION).search(message):
            if package.version is None or package.version == "latest":
                raise PackageError("not_found", f"the Python index has no release of {spec}")
            latest = self._resolve_pypi(package.model_copy(update={"version": None}))
            return replace(latest, instead_of=package.version)
        kind = "build_failed" if "No solution found" in message else "fetch_failed"
        raise PackageError(kind, f"uv pip compile {spec}: {message[-200:]}")

    def _find_release_date(self, spec: str, python: str | None) -> str | None:
        """When a release was uploaded, None where its index does not say."""
        finished = self._compile_requirement(spec, python, "--format", "pylock.toml")
        try:
            files = tomllib.loads(finished.stdout)["packages"][0]
            files = [files.get("sdist", {}), *files.get("wheels", ())]
            times = [file["upload-time"] for file in files if file.get("upload-time")]
            return min(times).isoformat() if times else None
        except (tomllib.TOMLDecodeError, LookupError, TypeError, AttributeError):
            return None

    def _compile_requirement(self, spec: str, python: str | None, *more: str) -> ToolExit:
        argv = (
            *(str(self._toolchain.uv), "pip", "compile", f"{FETCH}/request.in"),
            *("--no-deps", "--no-header", "--no-annotate", *more),
            *("--python", str(self._toolchain.python_for(python)), "--quiet"),
        )
        with open_staging(self._home) as staging:
            staging.write_request("request.in", spec + "\n")
            return self._run(argv, staging)

    def _resolve_oci(self, package: PackageRef) -> ResolvedVersion:
        name, tag, _ = parse_image(package)
        return ResolvedVersion(tag, resolve_image_digest(f"{name}:{tag or 'latest'}"))

    def _resolve_mcpb(self, package: PackageRef) -> ResolvedVersion:
        _, sha = download(
            package.identifier,
            self._home / "cache" / "bundles",
            allow_loopback=self._policy.allow_loopback,
        )
        return ResolvedVersion(package.version, f"sha256:{sha}")

    def _run(self, argv: tuple[str, ...], staging: StagingFolder) -> ToolExit:
        return run_tool(argv, staging=staging, toolchain=self._toolchain, policy=self._policy)


def _resolve_once(
    ask: Callable[[PackageRef], ResolvedVersion], package: PackageRef
) -> EffectOutcome:
    try:
        return EffectOutcome(json.dumps(asdict(ask(package))).encode())
    except ToolMissing as error:
        raise PackageError("needs_software", str(error)) from error
