"""Bundle: packs the folders of `demo/bundles` as MCPB archives with a reproducible digest."""

import io
import json
import zipfile
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "bundles"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold: the same bytes every time


@dataclass(frozen=True)
class McpbBundle:
    """A packed server: file name, bytes and their SHA-256 in hex."""

    name: str
    data: bytes
    sha256: str


@cache
def pack(name: str, version: str) -> McpbBundle:
    """The bundle `demo/bundles/<name>` at a version; its server reads it from the manifest."""
    folder = FOLDER / name
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["version"] = version
    files = {
        "manifest.json": json.dumps(manifest, indent=2).encode(),
        "server.py": (folder / "server.py").read_bytes(),
        "stdio.py": (FOLDER / "_shared" / "stdio.py").read_bytes(),
    }
    buffer = io.BytesIO()
    # Stored, not deflated: zlib's output differs between its versions, and so would the digest.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[path])
    data = buffer.getvalue()
    return McpbBundle(f"{name}.mcpb", data, sha256(data).hexdigest())
