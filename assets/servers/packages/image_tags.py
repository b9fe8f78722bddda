"""Images: what a tag of a container image stands for now."""

import re
import shutil
import subprocess
from collections.abc import Callable

from assets.servers.probe.failure_kinds import PackageError

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
    wanted = ("--format", "{{.Manifest.Digest}}")
    argv = (engine, "buildx", "imagetools", "inspect", reference, *wanted)
    try:
        finished = run(argv)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PackageError("fetch_failed", f"asking for {reference}: {error}") from error
    found = re.search(r"sha256:[0-9a-f]{64}", finished.stdout)
    if finished.returncode == 0 and found:
        return found[0]
    message = " ".join(finished.stderr.split())[-200:]
    named = (kind for kind, words in _WORDS.items() if re.search(words, message, re.IGNORECASE))
    raise PackageError(next(named, "fetch_failed"), f"{reference}: {message}")
