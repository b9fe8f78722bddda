"""Blind review by a person: a random sample of pairs, labels that survive a kill, and the
report."""

import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from assets.synthesis.contract_reading import get_properties, get_required
from assets.synthesis.tables import reaches_judge, read_goldens
from training.evaluation.metrics import measure_share
from warehouse.json_types import Json, Row
from warehouse.storage.files import append_line, read_history


def show_row(row: Row, contracts: Mapping[str, Row]) -> dict[str, Json]:
    """What the reviewer sees of a row: never a verdict, a flaw or a score."""
    calls = read_goldens(row)
    contract = contracts.get(row["contract_digest"])
    offered = json.loads(row.get("offered") or "[]")
    beside = [contracts[other] for other in offered if other in contracts]
    return {
        "task": row.get("task") or "single",
        "server": row.get("server_id") or "",
        "instruction": row["instruction"],
        "calls": [{"tool": call.tool, "arguments": call.arguments} for call in calls],
        "messages": json.loads(row.get("messages") or "[]"),
        "tool": _show_tool(contract)
        if contract
        else {"name": row.get("tool"), "description": None},
        "others": [_show_tool(other) for other in beside if other is not contract][:12],
    }


def _show_tool(contract: Row) -> dict[str, Json]:
    required = get_required(contract)
    return {
        "name": contract.get("name"),
        "description": str(contract.get("description") or ""),
        "parameters": [
            {"name": name, "required": name in required, "says": _describe_parameter(of)}
            for name, of in get_properties(contract).items()
        ],
    }


def _describe_parameter(of: Json) -> str:
    if not isinstance(of, Mapping):
        return ""
    kind = of.get("type") or ("one of several" if of.get("anyOf") or of.get("oneOf") else "any")
    options = (
        f" of {', '.join(map(str, of['enum'][:12]))}" if isinstance(of.get("enum"), list) else ""
    )
    return f"{kind}{options}. {str(of.get('description') or '')[:400]}".strip()


BEFORE, AFTER = "before", "after"
LABELS = ("good", "bad", "skip")
NOTE_CAP = 2000  # characters
_SEED = 7


class ReviewError(ValueError):
    """There is nothing to review, or the labels kept before cannot be read."""


@dataclass(frozen=True)
class ReviewSample:
    """What is drawn: all written pairs (`before` filtering) or the accepted ones (`after`)."""

    stage: str
    sample: int

    @property
    def name(self) -> str:
        return f"{self.stage}-all-{self.sample}-{_SEED}"


def draw_sample(pairs: Iterable[Row], judgements: Iterable[Row], of: ReviewSample) -> list[Row]:
    """The sample, in the order it is shown; the same for the same rows and seed."""
    accepted = {row["pair_id"] for row in judgements if row["verdict"] == "accept"}
    whole = {row["pair_id"]: row for row in pairs if row["status"] == "ok"}
    chosen = [key for key in sorted(whole) if of.stage == BEFORE or key in accepted]
    drawn = random.Random(_SEED).sample(chosen, min(of.sample, len(chosen)))
    return [whole[key] for key in drawn]


@dataclass
class PairReview:
    """One review: its sample and its labels, each saved as a line the moment it is given."""

    path: Path
    of: ReviewSample
    rows: list[Row]
    labels: dict[str, dict[str, Json]] = field(default_factory=dict)
    gone: int = 0  # rows of the first sample that are no longer among the pairs

    def add_label(self, place: int, label: str, note: str) -> None:
        """Keeps a label; the last one for a row counts. Raises ReviewError."""
        if label not in LABELS:
            raise ReviewError(f"label {label[:40]!r}, expected one of {', '.join(LABELS)}")
        if not 0 <= place < len(self.rows):
            raise ReviewError(f"row {place}, expected 0 to {len(self.rows) - 1}")
        entry = {"pair_id": self.rows[place]["pair_id"], "label": label, "note": note[:NOTE_CAP]}
        append_line(self.path, json.dumps(entry, ensure_ascii=True))
        self.labels[entry["pair_id"]] = entry

    def find_first_open(self) -> int:
        places = (n for n, row in enumerate(self.rows) if row["pair_id"] not in self.labels)
        return next(places, len(self.rows))


def open_review(
    home: Path, pairs: Sequence[Row], judgements: Sequence[Row], of: ReviewSample
) -> PairReview:
    """A new review, or the one of that name where it was left. Raises ReviewError."""
    path = home / "reviews" / f"{of.name}.jsonl"
    lines = read_history(path)  # a label that a kill or a full disk cut short is due again
    if lines or (path.exists() and path.stat().st_size):
        return _resume_review(path, lines, pairs, of)
    rows = draw_sample(pairs, judgements, of)
    if not rows:
        what = "written" if of.stage == BEFORE else "accepted"
        raise ReviewError(f"no {what} pairs yet; `toolmill run` writes and judges them")
    keys = [row["pair_id"] for row in rows]
    append_line(path, json.dumps({"review": asdict(of), "pair_ids": keys}))
    return PairReview(path, of, rows)


def _resume_review(
    path: Path, lines: list[Json], pairs: Sequence[Row], of: ReviewSample
) -> PairReview:
    head = lines[0] if lines else {}
    if "pair_ids" not in head:
        raise ReviewError(f"{path}: its first line is no review; move the file away to start again")
    now = {row["pair_id"]: row for row in pairs}
    rows = [now[key] for key in head["pair_ids"] if key in now]
    labels = {line["pair_id"]: line for line in lines[1:]
              if "pair_id" in line and line.get("label") in LABELS}  # fmt: skip
    return PairReview(path, of, rows, labels, len(head["pair_ids"]) - len(rows))


def report_review(review: PairReview, judgements: Iterable[Row]) -> dict[str, Json]:
    """How the filters and the judge agree with the reviewer, as JSON, disagreements included."""
    judged = {row["pair_id"]: row for row in judgements}
    counts = Counter(label["label"] for label in review.labels.values())
    labelled = [(row, review.labels[row["pair_id"]]) for row in review.rows
            if review.labels.get(row["pair_id"], {}).get("label") in ("good", "bad")]  # fmt: skip
    verdicts = [
        (row, label, _find_verdict(row, judged.get(row["pair_id"]))) for row, label in labelled
    ]
    decided = [(row, label, verdict) for row, label, verdict in verdicts if verdict is not None]
    by_judge = [
        (row, label, verdict) for row, label, verdict in decided if row["pair_id"] in judged
    ]
    good = counts["good"]
    return {
        **asdict(review.of),
        "file": str(review.path),
        "rows": len(review.rows),
        "gone": review.gone,
        "labelled": {name: counts[name] for name in LABELS},
        "good_share": _make_share(good, good + counts["bad"]),
        "judges": sorted({str(judged[r["pair_id"]]["judge"]) for r, _, _ in by_judge}),
        "filters_and_judge": _measure_agreement(decided),
        "judge": _measure_agreement(by_judge),
        "undecided": len(verdicts) - len(decided),
        "disagreements": [
            _describe_difference(row, label, verdict, judged.get(row["pair_id"]))
            for row, label, verdict in decided if verdict != (label["label"] == "good")
        ],
    }  # fmt: skip


_Z = 1.959964  # 95%


def _make_share(hits: int, n: int) -> dict[str, Json]:
    """`hits` of `n`, with a 95% Wilson interval; `value` is None where nothing was counted."""
    share = measure_share(hits, n).as_dict()
    return {"hits": hits, **share, "value": share["value"] if n else None}


def measure_agreement(pairs: Iterable[tuple[bool, bool]]) -> dict[str, Json]:
    """How verdicts agree with labels. `pairs`: (labelled good, accepted by the verdict), one a row.
    catch: refused of those labelled flawed; false_alarms: of those labelled good. kappa is None
    where it is not defined: nothing was labelled, or verdicts and labels are all the same one
    value; its interval is that of its large-sample standard error (Cohen 1960)."""
    counts = Counter((bool(good), bool(accepted)) for good, accepted in pairs)
    n, same = counts.total(), counts[True, True] + counts[False, False]
    good = counts[True, True] + counts[True, False]
    accepted = counts[True, True] + counts[False, True]
    chance = (good * accepted + (n - good) * (n - accepted)) / n**2 if n else 1.0
    kappa = low = high = None
    if not math.isclose(chance, 1.0):
        share = (same / n - chance) / (1 - chance)
        half = _Z * math.sqrt(same / n * (1 - same / n) / n) / (1 - chance)
        ends = (share, max(-1.0, share - half), min(1.0, share + half))
        kappa, low, high = (round(end, 4) for end in ends)
    return {
        "n": n,
        "accuracy": _make_share(same, n),
        "kappa": kappa,
        "kappa_low": low,
        "kappa_high": high,
        "catch": _make_share(counts[False, False], n - good),
        "false_alarms": _make_share(counts[True, False], good),
    }


def _measure_agreement(decided: Sequence[tuple[Row, Row, bool]]) -> dict[str, Json]:
    return measure_agreement((label["label"] == "good", verdict) for _, label, verdict in decided)


def _find_verdict(row: Row, judged: Row | None) -> bool | None:
    """Whether a row was accepted; None for a repetition, or a judge without an answer."""
    if row["verdict"] == "reject":
        return False
    if not reaches_judge(row) or judged is None or judged["status"] != "ok":
        return None
    return judged["verdict"] == "accept"


def _describe_difference(
    row: Row, label: Row, verdict: bool, judged: Row | None
) -> dict[str, Json]:
    flaws = sorted({flaw["kind"] for flaw in json.loads(row.get("flaws") or "[]")})
    return {
        "pair_id": row["pair_id"],
        "instruction": str(row["instruction"])[:400],
        "label": label["label"],
        "note": label["note"],
        "verdict": "accept" if verdict else "reject",
        "flaws": flaws,
        "score": judged["score"] if judged else None,
        "reasons": str(judged["reasons"] or "")[:600] if judged else None,
    }
