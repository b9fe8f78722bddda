"""Names by content: RFC 8785 canonical JSON and its SHA-256."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rfc8785

# RFC 8785 serialises numbers as IEEE 754 doubles: beyond this an integer would change silently.
_MAX_SAFE_INTEGER = 2**53 - 1
_HEX = re.compile(r"[0-9a-f]{64}")
_SOURCES = (".py", ".json", ".md", ".toml")
# What RFC 8785 wants of all but some numbers and keys, at a tenth of the price of its reference.
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
)


class Sha256(str):
    """A SHA-256 as 64 lower-case hex digits, the one text that a file is named by. Raises
    ValueError on anything else: `../ledger.db` never becomes a path."""

    __slots__ = ()

    def __new__(cls, text: str) -> "Sha256":
        if not _HEX.fullmatch(text):
            raise ValueError(f"{text[:80]!r} is not a SHA-256, expected 64 lower-case hex digits")
        return super().__new__(cls, text)


def is_sha256(text: str) -> bool:
    return _HEX.fullmatch(text) is not None


def read_sha256(text: str | None) -> Sha256 | None:
    """A third party's SHA-256, HEX or `sha256:HEX` in either case; None where it is none."""
    try:
        return Sha256((text or "").strip().lower().removeprefix("sha256:"))
    except ValueError:
        return None


def canonical_json(obj: Any) -> bytes:
    """The RFC 8785 (JCS) form of a JSON value. Raises ValueError naming the path of a NaN,
    infinity, integer beyond 2**53 - 1, lone surrogate, non-string key or non-JSON object."""
    try:
        return _ENCODER.encode(_make_plain(obj)).encode()
    except (_NotPlain, UnicodeEncodeError, RecursionError):
        pass
    try:
        return rfc8785.dumps(obj)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        where, what = _find_offender(obj)
        raise ValueError(f"no canonical JSON at {where}: {what or error}") from error


class _NotPlain(Exception):
    """A value that the standard library may write otherwise than RFC 8785."""


def _make_plain(value: Any) -> Any:
    """The value with whole floats as integers: `1.0` is `1`. Raises _NotPlain for numbers that the
    two write in another form, keys that they sort otherwise, and what is not JSON."""
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return value
    if isinstance(value, dict):
        for key in value:
            if not (isinstance(key, str) and key.isascii()):
                raise _NotPlain
        return {key: _make_plain(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_make_plain(child) for child in value]
    if isinstance(value, int) and abs(value) <= _MAX_SAFE_INTEGER:
        return value
    if isinstance(value, float) and (value == 0 or 1e-4 <= abs(value) < 1e15):
        return int(value) if value.is_integer() else value
    raise _NotPlain


def digest(obj: Any) -> str:
    """SHA-256 of the canonical JSON of `obj`, 64 lower-case hex digits."""
    return sha256(canonical_json(obj))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_sources(root: Path, *names: str) -> str:
    """Digest of sources under `root`, 12 hex digits, folders in whole, for keys: no changed rule
    passes for the old one because nobody raised a number."""
    paths = [root / name for name in names]
    files = [
        file
        for path in paths
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.suffix in _SOURCES
    ]
    return digest([[str(f.relative_to(root)), sha256(f.read_bytes())] for f in files])[:12]


def _find_offender(obj: Any) -> tuple[str, str]:
    """JSON path and description of what has no canonical form; iterative, as it may be nesting."""
    stack: list[tuple[str, Any, int]] = [("$", obj, 0)]
    while stack:
        path, value, depth = stack.pop()
        if depth > 500:
            return path[:120], f"nested deeper than {depth - 1} levels"
        problem = _find_problem(value)
        if problem:
            return path, problem
        if isinstance(value, Mapping):
            for key, child in value.items():
                if not isinstance(key, str):
                    return path, f"key {key!r} is not a string"
                stack.append((f"{path}.{key}", child, depth + 1))
        elif isinstance(value, (list, tuple)):
            stack.extend((f"{path}[{i}]", child, depth + 1) for i, child in enumerate(value))
    return "$", ""


def _find_problem(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, int):
        return f"integer {value} is beyond 2**53 - 1" if abs(value) > _MAX_SAFE_INTEGER else ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{value} is not JSON"
    if isinstance(value, str):
        lone = not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value)
        return "text holds a lone surrogate" if lone else ""
    if isinstance(value, (Mapping, list, tuple)):
        return ""
    return f"{type(value).__name__} is not JSON"
