"""Intervals of shares, for every figure that is published with an n."""

import math

_Z = 1.959964  # 95%


def wilson_interval(hits: float, n: float) -> tuple[float, float]:
    """95% Wilson score interval of `hits` of `n`; (0, 1) when nothing was counted. Wilson (1927);
    it stays inside [0, 1] and is honest at 0 and n, where the normal one is not."""
    if n == 0:
        return 0.0, 1.0
    share, half = hits / n, _Z * _Z / (2 * n)
    spread = _Z * math.sqrt(share * (1 - share) / n + half / (2 * n))
    scale = 1 + _Z * _Z / n
    return max(0.0, (share + half - spread) / scale), min(1.0, (share + half + spread) / scale)


def difference_interval(
    hits: float, n: float, other_hits: float, other_n: float
) -> tuple[float, float]:
    """95% interval of one share less another's, by their Wilson intervals (Newcombe 1998, 10)."""
    (low, high), (other_low, other_high) = (
        wilson_interval(hits, n),
        wilson_interval(other_hits, other_n),
    )
    share, other = hits / n if n else 0.0, other_hits / other_n if other_n else 0.0
    below = math.hypot(share - low, other_high - other)
    return share - other - below, share - other + math.hypot(high - share, other - other_low)
