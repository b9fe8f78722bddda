"""A provider's usage against the ledger's, per UTC day and model."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from warehouse.ledger.ledger import Ledger
from warehouse.ledger.usage_file import Usage

_COUNTED = ("requests", "prompt_tokens", "completion_tokens", "usd")
_JUDGED = _COUNTED[1:]  # a request that was tried again is one here and may be two there
ALL_DAYS = "all"


@dataclass(frozen=True)
class Line:
    """One day and model, or a model over all days. `provider`, `ledger`, `difference` (provider
    less ledger): requests, tokens and US dollars, those that the provider's file says."""

    day: str
    model: str
    provider: dict[str, float]
    ledger: dict[str, float]
    difference: dict[str, float]
    within: bool


@dataclass(frozen=True)
class Reconciliation:
    """Both accounts over the days of the provider's files. unknown: attempts that may have been
    paid unseen, with what they still reserve, per day; they belong to no model."""

    days: list[Line]
    totals: list[Line]
    unknown: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        lines = {"days": self.days, "totals": self.totals}
        made = {name: [vars(line) for line in found] for name, found in lines.items()}
        return {**made, "unknown": self.unknown}


def reconcile_usage(
    ledger: Ledger, usage: Sequence[Usage], tolerance: float, models: Collection[str] = ()
) -> Reconciliation:
    """Holds the rows of a provider's files against the ledger; `models` limits both to these.

    tolerance: of the larger of two figures; one line is within it where each of its tokens and
    dollars is. Days of the ledger before and after those of the files are left out.
    """
    wanted = [one for one in usage if not models or one.model in models]
    days = {one.day for one in usage}
    first, last = min(days, default=""), max(days, default="")
    paid = [
        row
        for row in ledger.sum_usage()
        if first <= row["day"] <= last and (not models or row["model"] in models)
    ]
    own = [Usage(**row) for row in paid]
    # A file that names no model is held against the sum of all.
    nameless = bool(wanted) and not any(one.model for one in wanted)
    unknown = [row for row in ledger.sum_unknown() if first <= row["day"] <= last]
    return Reconciliation(
        _compare_sums(wanted, own, tolerance, nameless=nameless, daily=True),
        _compare_sums(wanted, own, tolerance, nameless=nameless, daily=False),
        unknown,
    )


def _compare_sums(
    theirs: Iterable[Usage],
    ours: Iterable[Usage],
    tolerance: float,
    *,
    nameless: bool,
    daily: bool,
) -> list[Line]:
    provider = _sum_up(theirs, nameless=nameless, daily=daily)
    ledger = _sum_up(ours, nameless=nameless, daily=daily)
    counted = {name for row in provider.values() for name in row}
    lines = []
    for place in sorted({*provider, *ledger}):
        there, here = provider.get(place, {}), ledger.get(place, {})
        difference = {
            name: round(there.get(name, 0) - here.get(name, 0), 9)
            for name in _COUNTED
            if name in counted
        }
        within = all(
            abs(difference[name]) <= tolerance * max(there.get(name, 0), here.get(name, 0))
            for name in _JUDGED
            if name in counted
        )
        lines.append(Line(*place, there, here, difference, within))
    return lines


def _sum_up(
    rows: Iterable[Usage], *, nameless: bool, daily: bool
) -> dict[tuple[str, str], dict[str, float]]:
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        place = (row.day if daily else ALL_DAYS, "" if nameless else row.model)
        sums = found.setdefault(place, {})
        for name in _COUNTED:
            if (value := getattr(row, name)) is not None:
                sums[name] = round(sums.get(name, 0) + value, 9)
    return found
