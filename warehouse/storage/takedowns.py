"""Take-downs: what must vanish because its owner asks, or because it is a secret found late.

<home>/takedowns/record.jsonl   one tombstone a line, only ever added to: who, when, why, what

Every table is read and written through `keep_rows`, as of any moment, so that nothing made of
tables holds what was taken down. A secret is never written down: a tombstone has its fingerprint.
"""

import hashlib
import json
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl

from warehouse.storage.files import DecisionFile

SHORTEST, LONGEST = 8, 16_384  # characters of a secret; a shorter one stands in texts by chance
_PRIME = 2**31 - 1
_STEP = 1 << 18  # bytes that are looked at together: their sums stay in a core's cache


class UnusableSecret(ValueError):
    """A text that cannot be looked for."""


@dataclass(frozen=True)
class FingerprintForm:
    """One form of the secret. size: bytes; rolled: its rolling sum; proof: scrypt, hex."""

    size: int
    rolled: int
    proof: str


@dataclass(frozen=True)
class Fingerprint:
    """What is kept of a secret. salt: hex."""

    salt: str
    base: int
    forms: tuple[FingerprintForm, ...]
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
        forms = [
            FingerprintForm(len(form), _roll(form, base), _prove(form, salt))
            for form in _list_forms(secret)
        ]
        return cls(salt, base, tuple(forms))

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> "Fingerprint":
        """What `dump` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        forms = tuple(
            FingerprintForm(int(f["size"]), int(f["rolled"]), str(f["proof"]))
            for f in body["forms"]
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
        blocks = [text.encode("utf-8", "surrogatepass") for text in texts]
        ends = np.cumsum([len(part) + 1 for part in blocks])
        hits = list(self._find(b"\0".join(blocks)))
        return sorted(set(np.searchsorted(ends, hits, side="right").tolist())) if hits else []

    def _find(self, data: bytes) -> Iterator[int]:
        """Where a form begins."""
        overlap = max(form.size for form in self.forms) - 1
        for start in range(0, len(data), _STEP):
            block = data[start : start + _STEP + overlap]
            yield from (start + at for at in self._find_in_block(block))

    def _find_in_block(self, block: bytes) -> Iterator[int]:
        # base**0 … base**(count - 1) modulo the prime, uint64 [count].
        count = len(block)
        size = 1 << max(count - 1, 1).bit_length()
        powers = _compute_powers(self.base, size)[:count]
        terms = np.frombuffer(block, np.uint8) * powers % _PRIME
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        for form in self.forms:
            rolling = (sums[form.size :] - sums[: max(0, len(sums) - form.size)]) % _PRIME
            expected = powers[: len(rolling)] * np.uint64(form.rolled) % _PRIME
            for at in np.flatnonzero(rolling == expected).tolist():
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
            json.dumps(item, ensure_ascii=ascii)[1:-1] for item in level for ascii in (True, False)
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


@lru_cache(maxsize=8)
def _compute_powers(base: int, size: int) -> np.ndarray:
    powers = np.ones(size, np.uint64)
    done, last = 1, base % _PRIME  # `last` is base**done
    while done < size:
        powers[done : 2 * done] = powers[:done] * np.uint64(last) % _PRIME
        done, last = 2 * done, last * last % _PRIME
    return powers


SERVER, TOOL, SECRET = "server", "tool", "secret"
TAKEN, LIFTED = "taken down", "lifted"
_PARTS = ("servers", "listings", "tools", "contracts", "shown", "blobs")


class TakedownError(ValueError):
    """A tombstone that cannot be made or read; the message says what is wrong."""


@dataclass(frozen=True)
class Tombstone:
    """One decision. name: the server's or tool's id, or `secret-…`; at: UTC, ISO 8601.

    reach: JSON object of what the name stands for. servers, listings, tools ([server, tool]):
    their rows go. contracts (digests), blobs (SHA-256): rows that name one go. shown (digests of
    contracts that no other server lists): rows whose call or prompt names one go. fingerprint: rows
    whose text holds the secret go.
    """

    name: str
    kind: str
    verdict: str
    by: str
    at: str
    why: str
    reach: str


def _find_problem(tombstone: Tombstone) -> str:
    if tombstone.kind not in (SERVER, TOOL, SECRET):
        return f"kind is {tombstone.kind[:40]!r}, expected {SERVER}, {TOOL} or {SECRET}"
    if tombstone.verdict not in (TAKEN, LIFTED):
        return f"verdict is {tombstone.verdict[:40]!r}, expected {TAKEN!r} or {LIFTED!r}"
    try:
        Takedowns.of([tombstone])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"reach cannot be read ({type(error).__name__}: {error})"
    return ""


@dataclass(frozen=True)
class Takedowns:
    """All that is taken down now; false where that is nothing."""

    servers: frozenset[str] = frozenset()
    listings: frozenset[str] = frozenset()
    tools: frozenset[tuple[str, str]] = frozenset()
    contracts: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()
    blobs: frozenset[str] = frozenset()
    secrets: tuple[Fingerprint, ...] = field(default=())

    @classmethod
    def of(cls, tombstones: Iterable[Tombstone]) -> "Takedowns":
        """What these reach. Raises ValueError, KeyError, TypeError for a reach that is none."""
        names: dict[str, set[Any]] = {name: set() for name in _PARTS}
        secrets = []
        for tombstone in tombstones:
            reach = json.loads(tombstone.reach)
            for name in _PARTS:
                names[name] |= {_read_entry(name, entry) for entry in reach.get(name, ())}
            if "fingerprint" in reach:
                secrets.append(Fingerprint.parse(reach["fingerprint"]))
        return cls(**{name: frozenset(of) for name, of in names.items()}, secrets=tuple(secrets))

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in (*_PARTS, "secrets"))

    def is_reached(self, server_id: str, tool: str, digest: str, texts: Iterable[str]) -> bool:
        """Whether a tool is: by its server, its name, its contract, or a text that is shown of
        it."""
        if server_id in self.servers or (server_id, tool) in self.tools:
            return True
        return digest in self.contracts or self.is_secret_in(texts)

    def is_secret_in(self, texts: Iterable[str]) -> bool:
        """Whether a text holds a secret that was taken down."""
        texts_read = list(texts) if self.secrets else []
        return any(secret.find_holders(texts_read) for secret in self.secrets)


def record_tombstone(home: Path, tombstone: Tombstone) -> None:
    """Appends one tombstone; nothing is ever rewritten. Raises TakedownError on a bad one."""
    _FILE.record(home, tombstone)


def read_tombstones(home: Path) -> list[Tombstone]:
    """All of them, oldest first. Raises TakedownError on a line that is none: a record that cannot
    be read must not count as nothing taken down."""
    return _FILE.read(home)


def find_active(home: Path) -> dict[str, Tombstone]:
    """Name -> the tombstone that holds now."""
    last = {tombstone.name: tombstone for tombstone in read_tombstones(home)}
    return {name: one for name, one in last.items() if one.verdict == TAKEN}


def read_takedowns(home: Path) -> Takedowns:
    """What is taken down now; read anew when the record was written to. Raises TakedownError."""
    try:
        stat = (home / _PLACE).stat()
    except FileNotFoundError:
        return _NOTHING
    mark = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
    cached = _KNOWN.get(home)
    if cached is None or cached[0] != mark:
        cached = _KNOWN[home] = (mark, Takedowns.of(find_active(home).values()))
    return cached[1]


def _read_entry(part: str, entry: Any) -> Any:
    if part != "tools":
        return _require_text(entry)
    server, tool = entry
    return _require_text(server), _require_text(tool)


def _require_text(entry: Any) -> str:
    if not isinstance(entry, str) or not entry:
        raise ValueError(f"{entry!r:.60} is no name")
    return entry


_PLACE = Path("takedowns") / "record.jsonl"
_NOTHING = Takedowns()
_KNOWN: dict[Path, tuple[tuple[int, int, int], Takedowns]] = {}
_FILE = DecisionFile(
    _PLACE,
    Tombstone,
    _find_problem,
    TakedownError,
    "look at it: until it can be read nothing is, since nobody knows what was taken down; a line"
    " that is no JSON goes with `toolmill doctor --fix`, then take down again what it said",
)


_SERVERS = ("server_id", "other_server_id")
_DIGESTS = (
    *("contract_digest", "other_digest", "from_digest", "to_digest"),
    *("first_digest", "before_digest", "launched_digest"),
)
# JSON that names contracts by their digests: what a row calls, and what its prompt showed.
_SHOWING = ("calls", "contracts", "offered")
_NEGATIVES = "negatives"


def keep_rows(takedowns: Takedowns, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows that nothing reaches, in their order; their lists of hard negatives (`negatives`, a
    JSON list of digests) lose what is taken down."""
    if not takedowns or not len(frame):
        return frame
    return _drop_negatives(
        frame.filter(~find_taken(takedowns, frame)), takedowns.contracts | takedowns.shown
    )


def find_taken(takedowns: Takedowns, frame: pl.DataFrame) -> pl.Series:
    """True where a row is reached, Boolean [rows]."""
    tests = [pl.lit(False), *_match_names(takedowns, frame), *_match_digests(takedowns, frame)]
    hit = frame.select(pl.any_horizontal(tests).fill_null(False).alias("hit"))["hit"]
    hit = hit if len(hit) == len(frame) else pl.repeat(False, len(frame), eager=True)
    secret = _find_secrets(takedowns, frame)
    return hit | pl.Series("hit", [at in secret for at in range(len(frame))], pl.Boolean)


def _match_names(takedowns: Takedowns, frame: pl.DataFrame) -> list[pl.Expr]:
    columns, tests = set(frame.columns), []
    servers = sorted(takedowns.servers)
    tests += [pl.col(name).is_in(servers) for name in _SERVERS if name in columns and servers]
    if "server_ids" in columns and servers:
        tests.append(pl.col("server_ids").list.eval(pl.element().is_in(servers)).list.any())
    if "servers" in columns and servers:
        quoted = [json.dumps(server, ensure_ascii=False) for server in servers]
        tests.append(pl.col("servers").str.contains_any(quoted))
    if "listing_id" in columns and takedowns.listings:
        tests.append(pl.col("listing_id").is_in(sorted(takedowns.listings)))
    for server, tool in (("server_id", "tool"), ("other_server_id", "other_tool")):
        if takedowns.tools and {server, tool} <= columns:
            tests += [
                (pl.col(server) == s) & (pl.col(tool) == t) for s, t in sorted(takedowns.tools)
            ]
    return tests


def _match_digests(takedowns: Takedowns, frame: pl.DataFrame) -> list[pl.Expr]:
    tests, contracts = [], sorted(takedowns.contracts)
    if contracts:
        tests += [pl.col(name).is_in(contracts) for name in _DIGESTS if name in frame.columns]
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    if shown := sorted(takedowns.contracts | takedowns.shown):
        tests += [pl.col(name).str.contains_any(shown) for name in texts if name in _SHOWING]
    if takedowns.blobs:
        blobs = sorted(takedowns.blobs)
        tests += [pl.col(name).is_in(blobs) for name in texts if name.endswith("_blob")]
    return tests


def _find_secrets(takedowns: Takedowns, frame: pl.DataFrame) -> set[int]:
    """The places of rows whose texts hold a secret."""
    matches: set[int] = set()
    for name, kind in frame.schema.items() if takedowns.secrets else ():
        if kind not in (pl.String, pl.List(pl.String)):
            continue
        column = frame[name] if kind == pl.String else frame[name].list.join("\0")
        places = column.is_not_null().arg_true().to_list()
        texts = column.drop_nulls().to_list()
        for secret in takedowns.secrets:
            matches |= {places[at] for at in secret.find_holders(texts)}
    return matches


def _drop_negatives(frame: pl.DataFrame, digests: Collection[str]) -> pl.DataFrame:
    """The frame, its lists of hard negatives without these."""
    if _NEGATIVES not in frame.columns or not digests:
        return frame

    def drop(text: str) -> str:
        negatives = json.loads(text)
        remaining = [negative for negative in negatives if negative not in digests]
        return (
            text if len(remaining) == len(negatives) else json.dumps(remaining, ensure_ascii=False)
        )

    return frame.with_columns(pl.col(_NEGATIVES).map_elements(drop, return_dtype=pl.String))
