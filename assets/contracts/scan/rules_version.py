"""Edition: which rules made a finding, as a digest of the scan's own source.

What belongs here: the digest that goes into the key of every kept scan, so that no changed rule
passes for the old one. What does not: the rules.
"""

from functools import cache
from pathlib import Path

from warehouse.storage.digest import digest, sha256

_HERE = Path(__file__).parent


@cache
def scan_edition() -> str:
    """Digest of every module of the scan and of its lexicon; 12 hex digits."""
    sources = sorted([*_HERE.glob("*.py"), *_HERE.glob("*.json")])
    return digest([[path.name, sha256(path.read_bytes())] for path in sources])[:12]
