"""The judged drafts as tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.repair.arms import DraftCase
from benchmarks.repair.judge import Judged
from extensions.sidecar.flaws import FLAWS, HOPELESS, UNTOUCHED
from training.evaluation.metrics import MetricFigure, bootstrap_mean, measure_share


@dataclass(frozen=True)
class ArmResults:
    """Every draft, and what each arm made of it, in the same order."""

    asked: Sequence[DraftCase]
    arms: dict[str, list[Judged]]

    def pick(self, arm: str, kind: str | None = None) -> list[tuple[DraftCase, Judged]]:
        """The drafts of one kind; None: of every flaw."""
        pairs = zip(self.asked, self.arms[arm], strict=True)
        return [
            (asked, judged)
            for asked, judged in pairs
            if asked.draft.kind == kind or (kind is None and asked.draft.kind != UNTOUCHED)
        ]


def print_arms(found: ArmResults) -> None:
    """Shares of all flawed drafts, with intervals by server."""
    print("| arm | valid | right | valid and wrong | left with a reason | ms p50 / p99 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for arm in found.arms:
        own = found.pick(arm)
        ms = np.percentile([one.answer.ms for _, one in own], (50, 99))
        shares = (
            _measure_by_server((asked, getattr(one, name)) for asked, one in own)
            for name in ("valid", "right", "wrong", "left")
        )
        cells = " | ".join(f"{share:}" for share in shares)
        print(f"| {arm} | {cells} | {ms[0]:.2f} / {ms[1]:.2f} |")


def print_targets(found: ArmResults) -> None:
    """What the ladder must not do, and how often it asks."""
    coerced, last, before = (
        found.pick("contract"),
        found.pick("+ conversation"),
        found.arms["draft"],
    )
    untouched = [one for _, one in found.pick("+ conversation", UNTOUCHED)]
    both = list(zip(before, found.arms["+ conversation"], strict=True))
    harmed = sum(old.right and not new.right for old, new in both)
    spoilt = sum(old.valid and not new.valid for old, new in both)
    held = [(asked, one.left) for asked, one in last if asked.stated]
    able = [(asked, left) for asked, left in held if asked.draft.kind not in HOPELESS]
    missing = [
        (asked, left) for asked, left in held if asked.draft.kind == "required value missing"
    ]
    sure = _measure_by_server((asked, one.valid or one.left) for asked, one in coerced)
    lost = sum(not item.answer.intact for item in untouched)
    print(f"\nvalid or left with a reason, contract alone: {sure} (n = {sure.n:,})")
    print(f"untouched calls not byte for byte the same: {_show_count(lost, len(untouched))}")
    print(f"right before, not after: {harmed} of {sum(item.right for item in before)}")
    print(f"valid before, not after: {spoilt} of {sum(item.valid for item in before)}")
    invented = sum(one.invented for _, one in last)
    print(f"required values invented: {_show_count(invented, len(last))}")
    for name, pairs in (
        ("every flaw", held),
        (f"without `{HOPELESS[0]}`", able),
        ("`required value missing` alone", missing),
    ):
        share = _measure_by_server(pairs)
        print(f"left though the conversation holds all, {name}: {share} (n = {share.n:,})")


def print_kinds(found: ArmResults) -> None:
    """Each kind of flaw, before and after the whole ladder."""
    print("\n| flaw | n | valid before | right before | valid | right | wrong | left |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for kind in (UNTOUCHED, *FLAWS):
        before = [one for _, one in found.pick("draft", kind)]
        after = [one for _, one in found.pick("+ conversation", kind)]
        counts = [sum(item.valid for item in before), sum(item.right for item in before)]
        counts += [
            sum(getattr(item, k) for item in after) for k in ("valid", "right", "wrong", "left")
        ]
        print(f"| {kind} | {len(after)} | {' | '.join(map(str, counts))} |")


def _measure_by_server(pairs: Iterable[tuple[DraftCase, bool]]) -> MetricFigure:
    """A share with an interval that draws whole servers; Wilson's where all are alike."""
    own = list(pairs)
    hits = sum(held for _, held in own)
    if hits in (0, len(own)):
        return measure_share(hits, len(own))
    return bootstrap_mean([float(held) for _, held in own], [asked.good.server for asked, _ in own])


def _show_count(hits: int, n: int) -> str:
    return f"{hits} of {n:,}, {measure_share(hits, n):}"
