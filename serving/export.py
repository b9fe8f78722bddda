"""A release as one folder that serves by itself, and its signature.

<out>/router/…  encoders/…   as at home (`serving/index/folder.py`), the served version alone
      cards/<role>.md        the cards of the release's trained models
      weights/<role>/        optional: its language models (`extensions/publishing/weights.py`)
      RELEASE.json           {release, models {role: name}, version, embedder, tools, servers,
                             files {path: sha256}}
      RELEASE.sig            optional: {algorithm: "ed25519", signature: <base64>} over the bytes
                             of RELEASE.json, which names the digest of every other file

Keys are PEM files, as `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout` make them.
"""

import base64
import binascii
import errno
import hashlib
import json
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.outcomes.policy import OVERLAY
from assets.vectors.encoders.saved import find_encoder_folder
from serving.index.folder import load_index, read_served_version
from serving.router import ServedRouter, open_router
from warehouse.errors import UnusableInput, describe_unreadable
from warehouse.storage.files import write_atomically, write_pointer
from warehouse.storage.untrusted_files import UnreadableFile, list_files, open_file, read_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_WRITTEN = "outcomes"  # part of no release, and read by nobody: earlier versions wrote a log there
MANIFEST, SIGNATURE = "RELEASE.json", "RELEASE.sig"
_MOST = 16 << 20  # bytes of a manifest: 100 to 150 a file

# (home, folder of the export, role -> model) -> what the manifest tells
AddFiles = Callable[[Path, Path, Mapping[str, str]], Mapping[str, Any]]
_ALGORITHM = "ed25519"
_ABOUT = b"toolmill release 1\n"  # so that a signature of something else is none of a release
_MOST_SIGNATURE = 100_000  # bytes of a signature: about 150
_MAKE = (
    "make a pair with `openssl genpkey -algorithm ed25519 -out KEY.pem` and `openssl pkey -in"
    " KEY.pem -pubout -out KEY.pub`"
)


class BadExport(ValueError):
    """A folder that is no export, or not as it was exported."""


class NoExport(BadExport, UnusableInput):
    """A folder without a manifest, a file, or nothing at all."""


def export_release(home: Path, out: Path, add_files: AddFiles | None = None) -> dict[str, Any]:
    """Copies what `home` serves to a new folder; returns its manifest. add_files: writes models,
    returns entries. Raises UnusableInput, BadExport, IndexMissing, IndexBroken, EncoderMissing."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UnusableInput(f"{out}: it is there and not empty; give a new or an empty folder")
    version = read_served_version(home)
    index = load_index(home, version)
    encoder = find_encoder_folder(home, index.embedder)
    beside = out.parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    try:
        shutil.copytree(home / "router" / version, beside / "router" / version)
        shutil.copytree(encoder, beside / "encoders" / encoder.name)
        for name in ("BLOCKED.json", OVERLAY):
            if (home / "router" / name).exists():
                shutil.copy2(home / "router" / name, beside / "router" / name)
        # Not the HEAD of home: a run may have moved it on since its version was read.
        head = {"version": version, "release": index.release, "at": time.time()}
        write_pointer(beside / "router" / "HEAD.json", head)
        models = _read_models(home, index.release, index.adapter)
        to = beside / "cards"
        for role, model in models.items():
            card = home / "models" / model / "README.md"
            if card.is_file():
                to.mkdir(exist_ok=True)
                shutil.copyfile(card, to / f"{role}.md")
        more = add_files(home, beside, models) if add_files else {}
        manifest = {
            "release": index.release,
            "models": models,
            "version": version,
            "embedder": index.embedder,
            "tools": len(index.tools),
            "servers": len(index.servers),
            **more,
            "files": _digest_files(beside),
        }
        (beside / MANIFEST).write_text(json.dumps(manifest, indent=1))
        open_router(beside)  # what cannot be opened is no release
        if out.exists():
            out.rmdir()
        beside.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return manifest


def check_export(folder: Path) -> dict[str, Any]:
    """The manifest of an export whose files all match it. Raises NoExport, and BadExport for a file
    that differs, is missing, or is not named: it would be read all the same."""
    manifest, expected = _parse_manifest(folder)
    actual = _digest_files(folder)
    wrong = sorted(name for name in {*expected, *actual} if actual.get(name) != expected.get(name))
    if wrong:
        raise BadExport(
            f"{folder}: {len(wrong)} of {len(expected)} files are not as exported, first"
            f" {wrong[0][:200]}; copy the folder again, or export again"
        )
    return manifest


def read_manifest(folder: Path) -> bytes:
    try:
        return read_file(folder.resolve(), MANIFEST, _MOST)
    except UnreadableFile as error:
        fix = "make one with `toolmill release export --out`"
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            lacks = f"has no {MANIFEST}" if folder.is_dir() else "is not a folder"
            raise NoExport(f"{folder}: {lacks}, so it is no exported release; {fix}") from None
        raise BadExport(f"{folder}: {error}; {fix}") from None


def open_served(place: Path, trusted: Sequence[Path] | None = None) -> ServedRouter:
    """What a place serves, perhaps from elsewhere; it is checked at every load."""
    return ServedRouter(place, check=partial(check_place, place, trusted))


def check_place(place: Path, trusted: Sequence[Path] | None = None) -> None:
    """Checks an export against its manifest and, if given, trusted keys. Raises BadExport."""
    if trusted:
        verify_export(place, trusted)
    elif (place / MANIFEST).exists():
        check_export(place)


def find_log_place(place: Path, state: Path) -> Path:
    """Where the log of calls lies: next to your own index; for an exported release in `state`,
    since a reranker learns from it and the folder's maker could have written it."""
    if not (place / MANIFEST).exists():
        return place
    return state / "served" / hashlib.sha256(str(place.resolve()).encode()).hexdigest()[:16]


def _parse_manifest(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    content = read_manifest(folder)
    try:
        manifest = json.loads(content)
        return manifest, {str(name): str(value) for name, value in manifest["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = describe_unreadable(error)
        raise BadExport(f"{folder}: {MANIFEST}: {reason}; export again") from None


def _read_models(home: Path, release: str, adapter: str | None) -> dict[str, str]:
    """Role -> model of the release; of an ad hoc index, its retriever alone."""
    try:
        models = json.loads((home / "releases" / f"{release}.json").read_bytes())["models"]
    except (OSError, ValueError, KeyError, TypeError):
        models = {"retriever": adapter or "base"}
    return {str(role): str(name) for role, name in models.items()}


def _digest_files(folder: Path) -> dict[str, str]:
    """Digests by path of all but manifest, signature and outcomes. Raises BadExport for a link or
    device, outcomes too: what it leads to would be written to."""
    digests, root = {}, folder.resolve()
    try:
        for path in list_files(root):
            with open_file(root, path) as file:
                if path.parts[0] not in (MANIFEST, SIGNATURE, _WRITTEN):
                    digests[str(path)] = hashlib.file_digest(file, "sha256").hexdigest()
    except UnreadableFile as error:
        raise BadExport(f"{folder}: {error}; copy the folder again") from None
    return digests


def sign_export(folder: Path, key: Path) -> dict[str, Any]:
    """Checks and signs an export; its manifest. Raises BadExport, UnusableInput for a bad key."""
    manifest = check_export(folder)
    serialization, ed25519 = _load_library()
    try:
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise _make_key_error(key, error, "private") from None
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise _make_key_error(key, TypeError(type(private).__name__), "private")
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
        content = json.loads(read_file(folder.resolve(), SIGNATURE, _MOST_SIGNATURE))
        if content["algorithm"] != _ALGORITHM:
            raise ValueError(f"algorithm {content['algorithm']!r:.40}")
        return base64.b64decode(content["signature"], validate=True)
    except UnreadableFile as error:
        if error.errno != errno.ENOENT:
            raise BadExport(f"{folder}: {error}; get the release again from its maker") from None
        raise BadExport(
            f"{folder}: no {SIGNATURE}, so nobody signed it; ask its maker for `toolmill release"
            " verify --sign`, or serve it without --trust"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error) as error:
        reason = describe_unreadable(error)
        raise BadExport(f"{path}: {reason}; expected what `release verify --sign` writes") from None


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
