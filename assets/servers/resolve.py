"""Resolving: which exact release a name and version mean, and what it must hash to.

Belongs here: asking npm, uv or the bundle's host once, through the ledger; telling "does not
exist" from "could not ask".
Does not belong here: downloading packages (`fetch.py`), and reading listings (`recipe.py`).
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assets.marketplaces.listing import Package
from assets.servers.contained import Finished, run_tool
from assets.servers.download import DownloadError, download
from assets.servers.recipe import Resolved, ResolveError, exact_version, normalised
from assets.servers.toolchain import Toolchain
from warehouse.digest import digest
from warehouse.effects.ledger import Ledger, Outcome

_NPM_ABSENT = r"\bE404\b|\bETARGET\b|is not in this registry|No match(ing version)? found|404 Not"
_PYPI_ABSENT = (
    r"not found in the package registry|there (is|are) no versions? of|no versions? of"
    r"|was not found in the (provided )?(package )?(locations|registry)"
)


class Resolver:
    """Resolves packages through the ledger.

    A pinned release is asked for once and for ever; an unpinned one once a night, because its
    latest version moves. Calling it raises ResolveError (`not_found`, `fetch_failed`,
    `build_failed`), which is not recorded as done.
    """

    def __init__(self, home: Path, toolchain: Toolchain, ledger: Ledger, night: str) -> None:
        self._home, self._toolchain = home, toolchain
        self._ledger, self._night = ledger, night

    def __call__(self, package: Package) -> Resolved:
        if package.type == "mcpb" and package.digest:
            return Resolved(package.version, package.digest)
        version = exact_version(package)
        pinned = version is not None and package.type != "mcpb"
        key = {
            "effect": "resolve",
            "type": package.type,
            "name": package.identifier,
            "version": version or package.version,
            "night": None if pinned else self._night,
        }
        ask = {"npm": self._npm, "pypi": self._pypi, "mcpb": self._mcpb}.get(package.type)
        if ask is None:
            raise ResolveError("policy_denied", f"{package.type} packages are not launched here")
        data = self._ledger.once("resolve", digest(key), _effect(ask, package))
        facts = json.loads(data)
        return Resolved(facts["version"], facts["integrity"])

    def _npm(self, package: Package) -> Resolved:
        node, npm = self._toolchain.require_node()
        spec = f"{package.identifier}@{package.version or 'latest'}"
        argv = (str(node), str(npm), "view", spec, "version", "dist.integrity", "--json")
        finished = self._run(argv)
        try:
            answer: Any = json.loads(finished.stdout or "null")
        except ValueError:
            answer = None
        if isinstance(answer, list) and answer:
            answer = answer[-1]  # a range: the newest comes last
        if finished.code == 0 and isinstance(answer, dict) and answer.get("version"):
            return Resolved(answer["version"], str(answer.get("dist.integrity", "")))
        if finished.code == 0 or re.search(_NPM_ABSENT, finished.stderr + finished.stdout):
            raise ResolveError("not_found", f"npm has no {spec}")
        raise ResolveError("fetch_failed", f"npm view {spec}: {finished.said[-200:]}")

    def _pypi(self, package: Package) -> Resolved:
        name, version = normalised(package.identifier), exact_version(package)
        spec = f"{name}=={version}" if version else name
        request = self._home / "cache" / "staging" / f"{digest([spec])[:24]}.in"
        request.parent.mkdir(parents=True, exist_ok=True)
        request.write_text(spec + "\n")
        argv = (
            *(str(self._toolchain.uv), "pip", "compile", f"/fetch/staging/{request.name}"),
            *("--no-deps", "--generate-hashes", "--no-header", "--no-annotate"),
            *("--python", str(self._toolchain.python), "--quiet"),
        )
        finished = self._run(argv)
        request.unlink(missing_ok=True)
        found = re.search(rf"^{re.escape(name)}==([^\s\\;]+)", finished.stdout, re.MULTILINE)
        hashes = sorted(set(re.findall(r"sha256:[0-9a-f]{64}", finished.stdout)))
        if finished.code == 0 and found and hashes:
            return Resolved(found[1], " ".join(hashes))
        said = " ".join(finished.stderr.split())
        if re.search(_PYPI_ABSENT, said) and not re.search(r"requires-python|Python>=", said):
            raise ResolveError("not_found", f"the Python index has no {spec}")
        kind = "build_failed" if "No solution found" in said else "fetch_failed"
        raise ResolveError(kind, f"uv pip compile {spec}: {said[-200:]}")

    def _mcpb(self, package: Package) -> Resolved:
        try:
            _, sha = download(package.identifier, self._home / "cache" / "bundles")
        except DownloadError as error:
            raise ResolveError(error.kind, str(error)) from error
        return Resolved(package.version, f"sha256:{sha}")

    def _run(self, argv: tuple[str, ...]) -> Finished:
        return run_tool(argv, cache=self._home / "cache", toolchain=self._toolchain)


def _effect(ask: Callable[[Package], Resolved], package: Package) -> Callable[[], Outcome]:
    def effect() -> Outcome:
        resolved = ask(package)
        facts = {"version": resolved.version, "integrity": resolved.integrity}
        return Outcome(json.dumps(facts).encode())

    return effect
