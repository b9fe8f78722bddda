"""Which rows of a table a take-down reaches, by the names that columns have in all our tables."""

import json
from collections.abc import Collection

import polars as pl

from warehouse.storage.takedowns import Takedowns

_SERVERS = ("server_id", "other_server_id")
_DIGESTS = (
    *("contract_digest", "other_digest", "from_digest", "to_digest"),
    *("first_digest", "before_digest", "launched_digest"),
)
# JSON that names contracts by their digests: what a row calls, and what its prompt showed.
_SHOWING = ("calls", "contracts", "offered")
_NEGATIVES = "negatives"


def keep_rows(taken: Takedowns, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows that nothing reaches, in their order; their lists of hard negatives (`negatives`, a
    JSON list of digests) lose what is taken down."""
    if not taken or not len(frame):
        return frame
    return _drop_negatives(frame.filter(~find_taken(taken, frame)), taken.contracts | taken.shown)


def find_taken(taken: Takedowns, frame: pl.DataFrame) -> pl.Series:
    """True where a row is reached, Boolean [rows]."""
    tests = [pl.lit(False), *_match_names(taken, frame), *_match_digests(taken, frame)]
    hit = frame.select(pl.any_horizontal(tests).fill_null(False).alias("hit"))["hit"]
    hit = hit if len(hit) == len(frame) else pl.repeat(False, len(frame), eager=True)
    secret = _find_secrets(taken, frame)
    return hit | pl.Series("hit", [at in secret for at in range(len(frame))], pl.Boolean)


def _match_names(taken: Takedowns, frame: pl.DataFrame) -> list[pl.Expr]:
    held, tests = set(frame.columns), []
    servers = sorted(taken.servers)
    tests += [pl.col(name).is_in(servers) for name in _SERVERS if name in held and servers]
    if "server_ids" in held and servers:
        tests.append(pl.col("server_ids").list.eval(pl.element().is_in(servers)).list.any())
    if "servers" in held and servers:
        quoted = [json.dumps(one, ensure_ascii=False) for one in servers]
        tests.append(pl.col("servers").str.contains_any(quoted))
    if "listing_id" in held and taken.listings:
        tests.append(pl.col("listing_id").is_in(sorted(taken.listings)))
    for server, tool in (("server_id", "tool"), ("other_server_id", "other_tool")):
        if taken.tools and {server, tool} <= held:
            tests += [(pl.col(server) == s) & (pl.col(tool) == t) for s, t in sorted(taken.tools)]
    return tests


def _match_digests(taken: Takedowns, frame: pl.DataFrame) -> list[pl.Expr]:
    tests, contracts = [], sorted(taken.contracts)
    if contracts:
        tests += [pl.col(name).is_in(contracts) for name in _DIGESTS if name in frame.columns]
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    if shown := sorted(taken.contracts | taken.shown):
        tests += [pl.col(name).str.contains_any(shown) for name in texts if name in _SHOWING]
    if taken.blobs:
        named = sorted(taken.blobs)
        tests += [pl.col(name).is_in(named) for name in texts if name.endswith("_blob")]
    return tests


def _find_secrets(taken: Takedowns, frame: pl.DataFrame) -> set[int]:
    """The places of rows whose texts hold a secret."""
    found: set[int] = set()
    for name, kind in frame.schema.items() if taken.secrets else ():
        if kind not in (pl.String, pl.List(pl.String)):
            continue
        column = frame[name] if kind == pl.String else frame[name].list.join("\0")
        places = column.is_not_null().arg_true().to_list()
        texts = column.drop_nulls().to_list()
        for secret in taken.secrets:
            found |= {places[at] for at in secret.find_holders(texts)}
    return found


def _drop_negatives(frame: pl.DataFrame, digests: Collection[str]) -> pl.DataFrame:
    """The frame, its lists of hard negatives without these."""
    if _NEGATIVES not in frame.columns or not digests:
        return frame

    def drop(text: str) -> str:
        listed = json.loads(text)
        kept = [one for one in listed if one not in digests]
        return text if len(kept) == len(listed) else json.dumps(kept, ensure_ascii=False)

    return frame.with_columns(pl.col(_NEGATIVES).map_elements(drop, return_dtype=pl.String))
