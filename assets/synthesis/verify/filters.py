"""Filters over a whole partition of pairs: descriptions handed back, requests for a sibling tool,
and requests said before.

rows -> cosines with description and siblings -> flaws, verdict -> near-copies point to what stays

SemHash selects greedily in the order given: the first of its kind stays and every copy points at
it. Below `EXACT` texts neighbours are exact; above, usearch's graph finds them.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from assets.contracts.canonical import tool_text
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.tables import ONE_CALL, PARALLEL, SEQUENTIAL, dump_text, fail_row
from assets.synthesis.verify.pair_checks import PairFinding
from assets.synthesis.verify.rules import UnreadableColumn, decide, read_conversation
from assets.vectors.encoders.embedder import Encode
from warehouse.item_failure import try_item
from warehouse.json_types import Json, Row
from warehouse.sanitize.untrusted_text import drop_surrogates

Embed = Callable[[Sequence[str]], np.ndarray]
_COSINE = "cosine"  # the `path` of the flaws that this filter adds and removes


@dataclass(frozen=True)
class SiblingTools:
    """servers: id -> digests of its tools. embed: of a model that was trained to find tools; of 43
    requests for another tool plain MiniLM tells 11 at 3% false alarms, the shipped one 17 at 1%."""

    servers: Mapping[str, Collection[str]]
    embed: Encode


def filter_rows(
    rows: Sequence[Row],
    contracts: Mapping[str, Row],
    embed: Embed,
    policy: SynthesisPolicy,
    siblings: SiblingTools | None = None,
) -> list[dict[str, Json]]:
    """The rows of PAIRS, in the order given, with `cosine`, `flaws`, `verdict` and `twin_of` set.

    `contracts`: digest -> contract. `embed` returns unit vectors. What an earlier run of this
    filter found is forgotten first, so running it again changes nothing; the order of the rows
    decides nothing either. Rows that are not `ok` pass through untouched; what nobody foresaw about
    one row fails that row.
    """
    copies = [dict(row) for row in rows]
    whole = (row for row in copies if row["status"] == "ok")
    read = _try_each((row, partial(_read_request, row, contracts, siblings)) for row in whole)
    vectors = _embed_distinct([text for item in read for text in (item.text, *item.about)], embed)
    questions = [(item.text, item.tools) for item in read]
    nearer = (
        find_nearer_siblings(questions, siblings.embed, policy) if siblings else [None] * len(read)
    )
    left = _try_each(
        (request.row, partial(_judge_cosines, request, vectors, sibling, policy.copies_above))
        for request, sibling in zip(read, nearer, strict=True)
    )
    groups: dict[str, list[_PairRequest]] = {}
    for request in left:
        if request.row["verdict"] != "reject" and request.text.strip():
            task = request.row["task"]
            groups.setdefault(_LIKE.get(task) or task, []).append(request)
    for alike in groups.values():  # one call, several calls, or the same other task
        alike.sort(key=lambda request: request.key)
        texts = [request.text for request in alike]
        twins = find_twins(texts, np.stack([vectors[text] for text in texts]), policy.twins_above)
        for request, first in zip(alike, twins, strict=True):
            request.row["twin_of"] = None if first is None else alike[first].row["pair_id"]
    return copies


@dataclass(frozen=True)
class _PairRequest:
    """A row, what its user says, and the descriptions of what it calls. tools: texts of its
    server's tools, its own first, where it makes one call. key: where it stands among all: the
    first of its kind in this order stays."""

    row: dict[str, Json]
    text: str
    about: list[str]
    tools: list[str]
    key: tuple[str, str, str, int, str]


def _try_each(
    steps: Iterable[tuple[dict[str, Json], Callable[[], _PairRequest]]],
) -> list[_PairRequest]:
    """What is made of each row; a row that nothing can be made of is a failed one from here on."""
    done = []
    for row, make in steps:

        def fail(hint: str, row: dict[str, Json] = row) -> None:
            row.update(fail_row(row, "filter", hint))

        done.append(try_item(make, fail))
    return [request for request in done if request is not None]


def _read_request(
    row: dict[str, Json], contracts: Mapping[str, Row], siblings: SiblingTools | None
) -> _PairRequest:
    key = row["server_id"], row["tool"], row["task"], int(row["index"]), row["pair_id"]
    try:
        conversation = read_conversation(row)
        text, digests = conversation.text, {call.contract_digest for call in conversation.calls}
    except UnreadableColumn:  # its first message alone
        text, digests = str(row.get("instruction") or ""), set[str]()
    called = sorted((digests or {row["contract_digest"]}) & contracts.keys())
    about = [drop_surrogates(str(contracts[at].get("description") or "")) for at in called]
    tools: list[str] = []
    if siblings and row["task"] in ONE_CALL and called == [row["contract_digest"]]:
        beside = [at for at in siblings.servers.get(row["server_id"], ()) if at not in called]
        shown = [contracts[at] for at in (*called, *beside) if contracts.get(at)]
        tools = [drop_surrogates(tool_text(contract)) for contract in shown]
    return _PairRequest(row, drop_surrogates(text), about, tools, key)


def compute_cosines(
    pairs: Sequence[tuple[str, str]], embed: Embed, *, batch: int = 4096
) -> list[float | None]:
    """For each (request, description) their cosine, or None where either is empty."""
    cosines: list[float | None] = []
    for start in range(0, len(pairs), batch):
        part = pairs[start : start + batch]
        vectors = _embed_distinct([text for pair in part for text in pair], embed)
        cosines += [_compute_cosine(text, [described], vectors) for text, described in part]
    return cosines


def make_echo_finding(cosine: float | None, above: float) -> PairFinding | None:
    """The flaw of a request that repeats the tool's description."""
    if cosine is None or cosine <= above:
        return None
    reason = f"cosine with the description {cosine:.2f} > {above:g}"
    return PairFinding("copies_description", _COSINE, reason)


def find_nearer_siblings(
    requests: Sequence[tuple[str, Sequence[str]]], embed: Encode, policy: SynthesisPolicy
) -> list[PairFinding | None]:
    """The flaw of each request whose cosine with another tool of its server is larger by
    `sibling_above` than with its own. requests: (text, texts of the tools, the own one first)."""
    compared = [(text, tools) for text, tools in requests if len(tools) > 1]
    asked, offered = (text for text, _ in compared), (tool for _, of in compared for tool in of)
    vectors = _embed_distinct(asked, lambda texts: embed(texts, True))
    vectors |= _embed_distinct(offered, lambda texts: embed(texts, False))

    def compare(text: str, tools: Sequence[str]) -> PairFinding | None:
        if len(tools) < 2 or not {text, *tools} <= vectors.keys():
            return None
        own, *others = (float(vectors[tool] @ vectors[text]) for tool in tools)
        if max(others) - own <= policy.sibling_above:
            return None
        nearest = tools[1 + others.index(max(others))].split("\n")[0][:60]
        reason = f"cosine with {nearest!r} {max(others):.2f}, with its own tool {own:.2f}"
        reason += f": more than {policy.sibling_above:g} (sibling_above) apart"
        return PairFinding("nearer_sibling", _COSINE, reason)

    return [compare(text, tools) for text, tools in requests]


def _judge_cosines(
    request: _PairRequest,
    vectors: Mapping[str, np.ndarray],
    sibling: PairFinding | None,
    above: float,
) -> _PairRequest:
    row = request.row
    cosine = _compute_cosine(request.text, request.about, vectors)
    flaws = json.loads(row.get("flaws") or "[]")
    findings = [flaw for flaw in flaws if flaw["path"] != _COSINE]
    echo = make_echo_finding(cosine, above)
    findings += [asdict(finding) for finding in (echo, sibling) if finding]
    verdict = decide(PairFinding(**flaw) for flaw in findings).verdict
    row.update(cosine=cosine, flaws=dump_text(findings), verdict=verdict, twin_of=None)
    return request


def _embed_distinct(texts: Iterable[str], embed: Embed) -> dict[str, np.ndarray]:
    distinct = sorted({text for text in texts if text.strip()})
    return dict(zip(distinct, embed(distinct), strict=True)) if distinct else {}


def _compute_cosine(
    text: str, descriptions: Iterable[str], vectors: Mapping[str, np.ndarray]
) -> float | None:
    if text not in vectors:
        return None
    cosines = [float(vectors[text] @ vectors[d]) for d in descriptions if d in vectors]
    return round(max(cosines), 4) if cosines else None  # the last bits change with the batch


_LIKE = {**dict.fromkeys(ONE_CALL, "one"), **dict.fromkeys((PARALLEL, SEQUENTIAL), "several")}


# Exact search of so many 384-dimensional vectors takes seconds; four times as many take a minute.
EXACT = 10_000


class _NoEncoder:
    """SemHash wants an encoder for texts that come later; none do."""

    def encode(self, inputs: object, **_: object) -> np.ndarray:
        raise NotImplementedError("vectors are given")


def find_twins(texts: Sequence[str], vectors: np.ndarray, above: float) -> list[int | None]:
    """The index of the earlier, kept text that each text nearly repeats (cosine `above`), or None.
    vectors: unit vectors."""
    from semhash import SemHash

    if len(texts) < 2:
        return [None] * len(texts)
    backend = "basic" if len(texts) <= EXACT else "usearch"
    records = [{"place": str(place)} for place in range(len(texts))]
    index = SemHash.from_embeddings(
        np.asarray(vectors, dtype=np.float32), records, _NoEncoder(), ["place"], backend
    )
    first: list[int | None] = [None] * len(texts)
    for copy in index.self_deduplicate(threshold=above).filtered:
        first[int(copy.record["place"])] = int(copy.duplicate_of["place"])
    return first
