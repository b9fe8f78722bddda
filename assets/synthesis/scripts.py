"""Which edition of the orchestration made a row: a digest of the modules that decide its words.

What belongs here: that digest. What does not: the rules' and the grammar's editions
(`edition.py`).
"""

from functools import cache
from importlib.metadata import version
from pathlib import Path

from warehouse.digest import digest, sha256

_HERE = Path(__file__).parent
# What compose.py and units.py do is in the plan by its outcome: contracts, prompts, counts.
_SCRIPTS = (
    "asking.py", "chains.py", "chat.py", "environment.py", "heeding.py", "languages.py",
    "partners.py", "profiles.py", "several.py", "showing.py", "single.py", "slotfill.py",
    "stated.py", "turns.py", "wrong_calls.py",
)  # fmt: skip


@cache
def scripts_edition() -> str:
    """12 hex digits; another Faker draws other worlds, so its version counts."""
    sources = [sha256((_HERE / name).read_bytes()) for name in _SCRIPTS]
    return digest([*sources, version("faker")])[:12]
