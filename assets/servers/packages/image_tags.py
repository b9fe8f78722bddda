"""Images: what a tag of a container image stands for now."""

import re
import shutil
import subprocess
from collections.abc import Callable

from assets.servers.probe.failure_kinds import PackageError

_ABSENT = r"manifest unknown|not found|no such manifest|name unknown|repository does not exist"
_DENIED = r"denied|unauthori[sz]ed|authentication required"
_NO_ENGINE = r"cannot connect|is the docker daemon running|not a docker command|unknown command"

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
    argv = (
        engine,
        "buildx",
        "imagetools",
        "inspect",
        reference,
        "--format",
        "{{.Manifest.Digest}}",
    )
    try:
        finished = run(argv)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PackageError("fetch_failed", f"asking for {reference}: {error}") from error
    found = re.search(r"sha256:[0-9a-f]{64}", finished.stdout)
    if finished.returncode == 0 and found:
        return found[0]
    said = " ".join(finished.stderr.split())[-200:]
    for kind, words in (
        ("needs_software", _NO_ENGINE),
        ("remote_auth", _DENIED),
        ("not_found", _ABSENT),
    ):
        if re.search(words, said, re.IGNORECASE):
            raise PackageError(kind, f"{reference}: {said}")
    raise PackageError("fetch_failed", f"{reference}: {said}")
