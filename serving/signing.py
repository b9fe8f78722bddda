"""Signed releases: whose an exported folder is.

RELEASE.sig beside the manifest: {algorithm: "ed25519", signature: <base64>}, over the bytes of
RELEASE.json, which names the digest of every other file. Keys are PEM files, as `openssl genpkey
-algorithm ed25519` and `openssl pkey -pubout` make them.
"""

import base64
import binascii
import errno
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving.export import MANIFEST, SIGNATURE, BadExport, check_export, read_manifest
from warehouse.errors import UnusableInput
from warehouse.storage.files import write_atomically
from warehouse.storage.untrusted_files import UnreadableFile, read_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

_ALGORITHM = "ed25519"
_ABOUT = b"toolmill release 1\n"  # so that a signature of something else is none of a release
_MOST = 100_000  # bytes of a signature: about 150
_MAKE = (
    "make a pair with `openssl genpkey -algorithm ed25519 -out KEY.pem` and `openssl pkey -in"
    " KEY.pem -pubout -out KEY.pub`"
)


def sign_export(folder: Path, key: Path) -> dict[str, Any]:
    """Checks and signs an exported release; returns its manifest. Raises BadExport, and
    UnusableInput for a key that cannot be read."""
    manifest = check_export(folder)
    private = _read_private(key)
    signature = base64.b64encode(private.sign(_ABOUT + read_manifest(folder))).decode()
    text = json.dumps({"algorithm": _ALGORITHM, "signature": signature}, indent=1)
    write_atomically(folder / SIGNATURE, text.encode())
    return manifest


def verify_export(folder: Path, trusted: Sequence[Path]) -> dict[str, Any]:
    """The manifest of a release that one of these public keys signed, all its files held against
    it. Raises BadExport, and UnusableInput for a key that cannot be read."""
    from cryptography.exceptions import InvalidSignature

    keys = [_read_public(path) for path in trusted]  # a key that cannot be read is told first
    signed, signature = _ABOUT + read_manifest(folder), _read_signature(folder)
    for key in keys:
        try:
            key.verify(signature, signed)
        except InvalidSignature:
            continue
        return check_export(folder)
    names = ", ".join(path.name for path in trusted)
    raise BadExport(
        f"{folder}: {SIGNATURE} is of none of the keys {names}, or {MANIFEST} was changed after it"
        " was signed; get the release again from whom you trust, or its right key"
    )


def _read_signature(folder: Path) -> bytes:
    path = folder / SIGNATURE
    try:
        held = json.loads(read_file(folder.resolve(), SIGNATURE, _MOST))
        if held["algorithm"] != _ALGORITHM:
            raise ValueError(f"algorithm {held['algorithm']!r:.40}")
        return base64.b64decode(held["signature"], validate=True)
    except UnreadableFile as error:
        if error.errno != errno.ENOENT:
            raise BadExport(f"{folder}: {error}; get the release again from its maker") from None
        raise BadExport(
            f"{folder}: no {SIGNATURE}, so nobody signed it; ask its maker for `toolmill release"
            " sign`, or serve it without --trust"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error) as error:
        found = f"{type(error).__name__}: {error}"[:200]
        raise BadExport(f"{path}: {found}; expected what `toolmill release sign` writes") from None


def _read_private(path: Path) -> "Ed25519PrivateKey":
    serialization, ed25519 = _load_library()
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise _make_key_error(path, error, "private") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise _make_key_error(path, TypeError(type(key).__name__), "private")
    return key


def _read_public(path: Path) -> "Ed25519PublicKey":
    serialization, ed25519 = _load_library()
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise _make_key_error(path, error, "public") from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise _make_key_error(path, TypeError(type(key).__name__), "public")
    return key


def _load_library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError:
        raise BadExport(
            "signatures need the package cryptography: `pip install 'toolmill[sign]'`"
        ) from None
    return serialization, ed25519


def _make_key_error(path: Path, error: Exception, kind: str) -> UnusableInput:
    """What is wrong with a key; nothing of what the file holds is shown."""
    reason = error.strerror if isinstance(error, OSError) else type(error).__name__
    return UnusableInput(
        f"{path}: {reason}; expected an Ed25519 {kind} key in PEM without password; {_MAKE}"
    )
