"""Which rules made a finding: the digest that goes into the key of every kept scan."""

from functools import cache
from pathlib import Path

from warehouse.storage.digest import digest_sources


@cache
def scan_edition() -> str:
    """Digest of every module of the scan and of its lexicon; 12 hex digits."""
    return digest_sources(Path(__file__).parent, ".")
