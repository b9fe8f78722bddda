"""A secret's fingerprint: enough to find the secret in texts, too little to read it from.

Of each form in which a text may hold the secret (as it is, escaped as JSON, percent-encoded) it has
the length in bytes, a rolling sum under a random base (Rabin and Karp, 1987), which finds places
worth a look in one pass, and a salted scrypt hash, which says whether such a place is the secret.
"""

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import numpy as np

SHORTEST, LONGEST = 8, 16_384  # characters of a secret; a shorter one stands in texts by chance
_PRIME = 2**31 - 1
_STEP = 1 << 18  # bytes that are looked at together: their sums stay in a core's cache


class UnusableSecret(ValueError):
    """A text that cannot be looked for."""


@dataclass(frozen=True)
class Form:
    """One form of the secret. size: bytes; rolled: its rolling sum; proof: scrypt, hex."""

    size: int
    rolled: int
    proof: str


@dataclass(frozen=True)
class Fingerprint:
    """What is kept of a secret. salt: hex."""

    salt: str
    base: int
    forms: tuple[Form, ...]
    _seen: dict[bytes, str] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, secret: str) -> "Fingerprint":
        """The fingerprint of a secret, another one each time. Raises UnusableSecret."""
        if not SHORTEST <= len(secret) <= LONGEST or not secret.strip():
            raise UnusableSecret(
                f"the secret has {len(secret)} characters, expected {SHORTEST} to {LONGEST:,}"
            )
        if any("\ud800" <= letter <= "\udfff" for letter in secret):
            raise UnusableSecret("the secret is no UTF-8 text, which is all that tables hold")
        salt = secrets.token_hex(16)
        base = secrets.randbelow(_PRIME - 2**16) + 2**16
        made = [
            Form(len(form), _roll(form, base), _prove(form, salt)) for form in _list_forms(secret)
        ]
        return cls(salt, base, tuple(made))

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> "Fingerprint":
        """What `dump` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        forms = tuple(
            Form(int(f["size"]), int(f["rolled"]), str(f["proof"])) for f in body["forms"]
        )
        if not forms or min(form.size for form in forms) < 1:
            raise ValueError("a fingerprint without forms")
        return cls(str(body["salt"]), int(body["base"]), forms)

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        forms = [{"size": f.size, "rolled": f.rolled, "proof": f.proof} for f in self.forms]
        return {"salt": self.salt, "base": self.base, "forms": forms}

    def is_of(self, secret: str) -> bool:
        """Whether it is the fingerprint of this very secret."""
        data = secret.encode("utf-8", "surrogatepass")
        return len(data) == self.forms[0].size and self.is_held_by(data)

    def is_held_by(self, data: bytes) -> bool:
        """Whether the secret stands in these bytes."""
        return next(self._find(data), None) is not None

    def find_holders(self, texts: Sequence[str]) -> list[int]:
        """The places of the texts that hold the secret."""
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        ends = np.cumsum([len(part) + 1 for part in parts])
        hits = list(self._find(b"\0".join(parts)))
        return sorted(set(np.searchsorted(ends, hits, side="right").tolist())) if hits else []

    def _find(self, data: bytes) -> Iterator[int]:
        """Where a form begins."""
        overlap = max(form.size for form in self.forms) - 1
        for start in range(0, len(data), _STEP):
            block = data[start : start + _STEP + overlap]
            yield from (start + at for at in self._find_in_block(block))

    def _find_in_block(self, block: bytes) -> Iterator[int]:
        powers = _list_powers(self.base, len(block))
        terms = np.frombuffer(block, np.uint8) * powers % _PRIME
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        for form in self.forms:
            found = (sums[form.size :] - sums[: max(0, len(sums) - form.size)]) % _PRIME
            wanted = powers[: len(found)] * np.uint64(form.rolled) % _PRIME
            for at in np.flatnonzero(found == wanted).tolist():
                if self._hash(block[at : at + form.size]) == form.proof:
                    yield at

    def _hash(self, window: bytes) -> str:
        """Remembered: a secret that stands in many texts is hashed once."""
        if window not in self._seen:
            self._seen[window] = _prove(window, self.salt)
        return self._seen[window]


def _list_forms(secret: str) -> list[bytes]:
    texts = level = [secret]
    for _ in range(2):  # JSON within JSON
        level = [
            json.dumps(one, ensure_ascii=ascii)[1:-1] for one in level for ascii in (True, False)
        ]
        texts = [*texts, *level]
    texts = [*texts, quote(secret, safe="")]
    return list(dict.fromkeys(text.encode("utf-8", "surrogatepass") for text in texts))


def _roll(form: bytes, base: int) -> int:
    total, power = 0, 1
    for byte in form:
        total = (total + byte * power) % _PRIME
        power = power * base % _PRIME
    return total


def _prove(window: bytes, salt: str) -> str:
    return hashlib.scrypt(window, salt=bytes.fromhex(salt), n=2**13, r=8, p=1, dklen=32).hex()


def _list_powers(base: int, count: int) -> np.ndarray:
    """base**0 … base**(count - 1) modulo the prime, uint64 [count]."""
    size = 1 << max(count - 1, 1).bit_length()
    return _compute_powers(base, size)[:count]


@lru_cache(maxsize=8)
def _compute_powers(base: int, size: int) -> np.ndarray:
    powers = np.ones(size, np.uint64)
    done, last = 1, base % _PRIME  # `last` is base**done
    while done < size:
        powers[done : 2 * done] = powers[:done] * np.uint64(last) % _PRIME
        done, last = 2 * done, last * last % _PRIME
    return powers
