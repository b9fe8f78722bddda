"""One deployment: fetch a recipe, launch it in the sandbox, list its tools; and its table.

Belongs here: putting artefact, arguments and environment together into a launch, further tries
where a server's words call for one, and the row that comes of it.
Does not belong here: what to try (`guesses.py`), which recipes are due tonight (`night.py`).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from assets.servers.bundle import SERVER
from assets.servers.conversation import ProbePolicy
from assets.servers.fetch import Artifact, FetchError, ensure_artifact
from assets.servers.guesses import made_up_by, next_guess
from assets.servers.launch import Launch, Mount, SandboxPolicy
from assets.servers.placeholders import DATA
from assets.servers.probe import PROBE_VERSION, ProbeResult, probe
from assets.servers.reads import variables_read
from assets.servers.recipe import Recipe, Unlaunchable
from assets.servers.taxonomy import Failure, next_retry
from assets.servers.toolchain import Toolchain, find_toolchain
from warehouse.blobs import Blobs
from warehouse.digest import canonical_json, digest
from warehouse.tables import TableSpec

DEPLOYMENTS = TableSpec(
    name="deployments",
    key=("server_id",),
    columns={
        "server_id": pl.String,  # "listing:<id>" where a listing names no server
        "marketplace": pl.String,
        "listing_id": pl.String,
        "launch_digest": pl.String,  # over what the listing says about launching
        "ecosystem": pl.String,
        "version": pl.String,
        "recipe_digest": pl.String,  # null where there is no recipe
        "status": pl.String,  # ok, failed
        "error_kind": pl.String,  # of the taxonomy, null when ok
        "n_tools": pl.Int64,
        "tools_blob": pl.String,  # sha256 of the raw tools (a JSON list), null when failed
        "server_name": pl.String,
        "server_version": pl.String,
        "placeholders": pl.String,  # JSON list of what was made up: "env:NAME", "arg:0", …
        "hint": pl.String,  # what was found and what to do, null when ok
        "attempts": pl.Int64,  # launches of this recipe so far
        "retry_at": pl.Float64,  # epoch seconds; null: not by itself
        "seconds": pl.Float64,  # from start to the last tools page
        "peak_mb": pl.Float64,  # largest proportional set size of the tree
        "stderr_tail": pl.String,
        "probed_at": pl.Float64,  # epoch seconds
    },
    volatile=("hint", "attempts", "retry_at", "seconds", "peak_mb", "stderr_tail", "probed_at"),
)


@dataclass(frozen=True)
class DeployPolicy:
    """How servers are run. home: where artefacts and caches lie (`<home>/artifacts`,
    `<home>/cache`). placeholders: whether a further try may make up values."""

    home: Path
    sandbox: SandboxPolicy = field(default_factory=SandboxPolicy)
    conversation: ProbePolicy = field(default_factory=ProbePolicy)
    placeholders: bool = True


@dataclass(frozen=True)
class Deployed:
    """What came of one recipe: the probe's result, what was made up, what was installed."""

    probe: ProbeResult
    placeholders: tuple[str, ...] = ()
    locked: str | None = None
    megabytes: float = 0.0

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "Deployed":
        facts = json.loads(data)
        result = ProbeResult(**facts.pop("probe"))
        return cls(probe=result, **{**facts, "placeholders": tuple(facts["placeholders"])})


def deploy(recipe: Recipe, policy: DeployPolicy, toolchain: Toolchain | None = None) -> Deployed:
    """Fetches and probes one recipe. Every outcome is a result; raises only SandboxUnavailable."""
    toolchain = toolchain or find_toolchain()
    if recipe.ecosystem == "remote":
        why = "remote servers are listed, not probed: only local packages are launched"
        return _failed(Failure("policy_denied", why))
    if recipe.ecosystem == "oci":
        return _failed(Failure("needs_software", "an image runs only in a container engine"))
    try:
        artifact = _artifact(recipe, policy.home, toolchain)
    except FetchError as error:
        return _failed(Failure(error.kind, str(error)))
    made_up = (*recipe.placeholders, *artifact.placeholders)
    spare = {f"env:{name}" for name, _ in recipe.spare_env}
    used = tuple(name for name in made_up if name not in spare)
    result = probe(launch_of(recipe, artifact, toolchain), policy.sandbox, policy.conversation)
    if result.status != "ok":
        again = _try_again(recipe, artifact, result, policy, toolchain)
        if again is not None:
            extra, artifact, result = again
            used = (*used, *made_up_by(recipe, extra))
    return Deployed(result, tuple(sorted(set(used))), artifact.locked, artifact.megabytes)


def _try_again(
    recipe: Recipe,
    artifact: Artifact,
    result: ProbeResult,
    policy: DeployPolicy,
    toolchain: Toolchain,
) -> tuple[Recipe, Artifact, ProbeResult] | None:
    """The first further try that lists tools; each builds on the one before."""
    tried: set[str] = set()
    reads = variables_read(artifact.tree, recipe) if policy.placeholders else ()
    while extra := next_guess(recipe, result, tried, reads=reads, placeholders=policy.placeholders):
        if extra.as_of != recipe.as_of:
            try:
                artifact = _artifact(extra, policy.home, toolchain)
            except FetchError:
                continue  # what it depended on then is no longer to be had
        recipe = extra
        result = probe(launch_of(recipe, artifact, toolchain), policy.sandbox, policy.conversation)
        if result.status == "ok":
            return recipe, artifact, result
    return None


def launch_of(recipe: Recipe, artifact: Artifact, toolchain: Toolchain) -> Launch:
    """The command and the world it sees in the run phase."""
    mounts = [Mount.same(path) for path in toolchain.binds]
    mounts.append(Mount(artifact.tree, SERVER))
    return Launch(
        argv=(*artifact.argv, *recipe.args),
        env={**artifact.env, **dict(recipe.env)},
        mounts=tuple(mounts),
        dirs=(DATA,),
    )


def deployment_row(
    recipe: Recipe | Unlaunchable,
    deployed: Deployed | None,
    blobs: Blobs,
    *,
    server_id: str,
    marketplace: str,
    listing_id: str,
    launch_digest: str,
    attempts: int,
    now: float,
) -> dict[str, Any]:
    """The row of DEPLOYMENTS; the raw tools go to a blob of their own."""
    row: dict[str, Any] = {
        **dict.fromkeys(DEPLOYMENTS.columns),
        "server_id": server_id,
        "marketplace": marketplace,
        "listing_id": listing_id,
        "launch_digest": launch_digest,
        "attempts": attempts,
        "probed_at": now,
    }
    if isinstance(recipe, Unlaunchable):
        failure = {"status": "failed", "error_kind": recipe.kind, "hint": recipe.hint}
        return row | failure | {"retry_at": next_retry(recipe.kind, attempts, now), "n_tools": 0}
    assert deployed is not None
    result = deployed.probe
    failed = result.error_kind
    return row | {
        "ecosystem": recipe.ecosystem,
        "version": recipe.version,
        "recipe_digest": recipe.digest,
        "status": result.status,
        "error_kind": failed,
        "hint": result.hint,
        "n_tools": len(result.tools),
        "tools_blob": None if failed else blobs.put(json.dumps(result.tools).encode()),
        "server_name": _text(result.server_info, "name"),
        "server_version": _text(result.server_info, "version"),
        "placeholders": canonical_json(list(deployed.placeholders)).decode(),
        "retry_at": next_retry(failed, attempts, now) if failed else None,
        "seconds": result.seconds,
        "peak_mb": result.peak_mb,
        "stderr_tail": result.stderr_tail,
    }


def effect_key(recipe: Recipe, policy: DeployPolicy, attempt: int) -> str:
    """Names the effect of one launch: recipe, limits that change what is seen, and the attempt."""
    facts = {
        "effect": "deploy",
        "recipe": recipe.digest,
        "probe": PROBE_VERSION,
        "network": policy.sandbox.network,
        "memory_mb": policy.sandbox.memory_mb,
        "attempt": attempt,
    }
    return digest(facts)


def _artifact(recipe: Recipe, home: Path, toolchain: Toolchain) -> Artifact:
    if recipe.ecosystem != "private":
        return ensure_artifact(recipe, home=home, toolchain=toolchain)
    raise FetchError("policy_denied", "private servers are launched by hand (`toolmill probe`)")


def _failed(failure: Failure) -> Deployed:
    return Deployed(ProbeResult(status="failed", error_kind=failure.kind, hint=failure.hint))


def _text(info: Mapping[str, Any], name: str) -> str | None:
    value = info.get(name)
    return value[:200] if isinstance(value, str) else None


def with_network(policy: DeployPolicy, network: str) -> DeployPolicy:
    """The policy with another network grant (`none` or `full`)."""
    if network not in ("none", "full"):
        raise ValueError(f"network {network!r}: expected 'none' or 'full'")
    return replace(policy, sandbox=replace(policy.sandbox, network=network))
