"""Which edition of rules, grammar and scripts made a row: digests of their own source.

What belongs here: the digests that go into plans and keys, so that no changed rule passes for the
old one because somebody forgot to raise a number.
What does not: the rules themselves.

A folder counts whole: a module that is added to it is in its edition.
"""

from functools import cache
from importlib.metadata import version
from pathlib import Path

from warehouse.storage.digest import digest, sha256

_HERE = Path(__file__).parent
_READING = ("lexicon.py", "lexicon.json", "reading.py")
_SCHEMAS = ("../contracts/validate.py", "../contracts/schemas.py")
# What the offline judge goes by. Asking a judge and trying it are in their plans by themselves.
_RUBRIC = tuple(f"judging/{name}.py" for name in ("rubric", "parroting", "absurd", "plausible"))


@cache
def rules_edition() -> str:
    """Digest of everything that decides a rule's verdict; 12 hex digits."""
    return _digest(*_READING, *_SCHEMAS, "rules")


@cache
def offline_edition() -> str:
    """Digest of everything that decides what the offline provider says; 12 hex digits."""
    return _digest(*_READING, *_SCHEMAS, *_RUBRIC, "rules", "offline")


@cache
def scripts_edition() -> str:
    """Digest of the steps that a row is written by; 12 hex digits. Another Faker draws other
    worlds, so its version counts."""
    return digest([_digest("writing"), version("faker")])[:12]


def _digest(*names: str) -> str:
    files = [file for name in names for file in _files(_HERE / name)]
    return digest([[file.name, sha256(file.read_bytes())] for file in files])[:12]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix in (".py", ".json"))
