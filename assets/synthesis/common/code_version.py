"""Which rules, grammar and steps made a row: digests of their own source, for plans and keys."""

from functools import cache
from importlib.metadata import version
from pathlib import Path

from warehouse.storage.digest import digest, digest_sources

_ASSETS = Path(__file__).parents[2]
_READING = (
    "vectors/lexicon.py",
    "vectors/lexicon.json",
    "synthesis/common/contract_reading.py",
    "synthesis/common/purpose.py",
    "contracts/validate.py",
    "contracts/schema/reading.py",
)
_WRITTEN = ("synthesis/common/messages.py", "synthesis/common/wrong_calls.py")


@cache
def get_rules_version() -> str:
    """Digest of everything that decides a rule's verdict, the words of other languages included;
    12 hex digits."""
    words = version("babel"), version("num2words")
    return digest([digest_sources(_ASSETS, *_READING, "synthesis/verify"), *words])[:12]


@cache
def get_offline_version() -> str:
    """Digest of everything that decides what the offline provider says; 12 hex digits."""
    folders = (
        *("synthesis/verify", "synthesis/offline", "synthesis/judging/offline"),
        "contracts/repair",
    )
    return digest([digest_sources(_ASSETS, *_READING, *folders), get_rules_version()])[:12]


@cache
def get_scripts_version() -> str:
    """Digest of the steps that a row is written by; 12 hex digits. Another Faker draws other
    values, so its version counts."""
    sources = digest_sources(_ASSETS, "synthesis/writing", *_WRITTEN)
    return digest([sources, version("faker")])[:12]
