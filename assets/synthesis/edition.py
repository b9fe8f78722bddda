"""Which edition of the rules and of the grammar made a row: digests of their own source.

What belongs here: the digests that go into plans and keys, so that no changed rule passes for the
old one because somebody forgot to raise a number.
What does not: the rules themselves.
"""

from functools import cache
from pathlib import Path

from warehouse.digest import digest, sha256

_HERE = Path(__file__).parent
_READING = ("lexicon.py", "lexicon.json", "reading.py")
_RULES = (
    "verify.py", "verify_row.py", "conversation.py", "findings.py", "form.py", "grounding.py",
    "request.py", "wording.py",
    "spelling.py", "spoken.py", "moments.py", "quantities.py", "wellknown.py", "metatalk.py",
    "twins.py", "filters.py", "invocation.py",
    "../contracts/validate.py", "../contracts/schemas.py",
)  # fmt: skip
_GRAMMAR = (
    "offline.py", "offline.json", "offline_acted.py", "offline_aside.py", "offline_calls.py",
    "offline_choice.py", "offline_clauses.py", "offline_frames.py", "offline_grounds.py",
    "offline_numbers.py", "offline_requests.py", "offline_samples.py", "offline_several.py",
    "offline_vague.py", "offline_words.py", "offline_world.py",
    "phrasing.py", "weaving.py", "idioms.py", "values.py", "sorts.py", "invent.py", "rubric.py",
    "parroting.py", "absurd.py", "plausible.py",
)  # fmt: skip


@cache
def rules_edition() -> str:
    """Digest of everything that decides a rule's verdict; 12 hex digits."""
    return _digest(*_READING, *_RULES)


@cache
def offline_edition() -> str:
    """Digest of everything that decides what the offline provider says; 12 hex digits."""
    return _digest(*_READING, *_RULES, *_GRAMMAR)


def _digest(*names: str) -> str:
    return digest([sha256((_HERE / name).read_bytes()) for name in names])[:12]
