"""Agreement of verdicts with labels, by people or of a corpus, with n and intervals."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from warehouse.statistics import wilson_interval

_Z = 1.959964  # 95%


@dataclass(frozen=True)
class Share:
    """`hits` of `n`, with a 95% Wilson interval; `value` is None where nothing was counted."""

    hits: int
    n: int
    value: float | None
    low: float
    high: float


def make_share(hits: int, n: int) -> Share:
    low, high = wilson_interval(hits, n)
    return Share(hits, n, round(hits / n, 4) if n else None, round(low, 4), round(high, 4))


@dataclass(frozen=True)
class Agreement:
    """How verdicts agree with labels. `kappa` is None where it is not defined: nothing was
    labelled, or verdicts and labels are all the same one value."""

    n: int
    accuracy: Share
    kappa: float | None
    kappa_low: float | None
    kappa_high: float | None
    catch: Share  # of those labelled flawed, how many were refused
    false_alarms: Share  # of those labelled good, how many were refused


def measure_agreement(pairs: Iterable[tuple[bool, bool]]) -> Agreement:
    """`pairs`: (labelled good, accepted by the verdict), one a row."""
    counts = Counter((bool(good), bool(accepted)) for good, accepted in pairs)
    n, same = counts.total(), counts[True, True] + counts[False, False]
    kappa, half = _compute_kappa(counts)
    flawed = counts[False, False] + counts[False, True]
    good = counts[True, True] + counts[True, False]
    return Agreement(
        n=n,
        accuracy=make_share(same, n),
        kappa=None if kappa is None else round(kappa, 4),
        kappa_low=None if kappa is None or half is None else round(max(-1.0, kappa - half), 4),
        kappa_high=None if kappa is None or half is None else round(min(1.0, kappa + half), 4),
        catch=make_share(counts[False, False], flawed),
        false_alarms=make_share(counts[True, False], good),
    )


def _compute_kappa(counts: Counter[tuple[bool, bool]]) -> tuple[float | None, float | None]:
    """Cohen's kappa and the half width of its 95% interval (Fleiss, Cohen and Everitt 1969)."""
    n = counts.total()
    if n == 0:
        return None, None
    p = {key: counts[key] / n for key in [(a, b) for a in (True, False) for b in (True, False)]}
    label = {value: p[value, True] + p[value, False] for value in (True, False)}
    verdict = {value: p[True, value] + p[False, value] for value in (True, False)}
    seen = p[True, True] + p[False, False]
    chance = sum(label[value] * verdict[value] for value in (True, False))
    if math.isclose(chance, 1.0):
        return None, None
    kappa = (seen - chance) / (1 - chance)
    on = sum(p[v, v] * (1 - (label[v] + verdict[v]) * (1 - kappa)) ** 2 for v in (True, False))
    off = (1 - kappa) ** 2 * sum(
        p[a, b] * (verdict[a] + label[b]) ** 2 for a, b in ((True, False), (False, True))
    )
    spread = on + off - (kappa - chance * (1 - kappa)) ** 2
    return kappa, _Z * math.sqrt(max(0.0, spread) / n) / (1 - chance)
