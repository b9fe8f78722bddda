"""Figures of a running proxy, in Prometheus' text format."""

from collections import Counter
from collections.abc import Iterator

_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)  # seconds
_HELP = {
    "requests": "answers by status",
    "refused": "requests that a limit refused, by reason",
    "first_calls": "conversations that a local model was asked to begin, by outcome",
    "upstream_failures": "requests that got no answer of the upstream, by reason",
    "calls_repaired": "calls that were changed",
    "calls_revised": "calls that a model was asked about, by outcome",
    "tool_searches": "searches for tools that a model made, by outcome",
    "calls_left": "calls that do not fit and were not changed",
}


class Metrics:
    """Counters, one gauge and one histogram, for one event loop."""

    def __init__(self) -> None:
        self.open = 0  # requests that are being answered
        self._counts: Counter[tuple[str, str]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._sum, self._n = 0.0, 0

    def count(self, name: str, label: str = "", by: int = 1) -> None:
        """One more of a counter. label: like `status="200"`."""
        self._counts[name, label] += by

    def observe_overhead(self, seconds: float) -> None:
        """What one request cost here: reading, judging and writing; waiting left out."""
        self._sum, self._n = self._sum + seconds, self._n + 1
        bound = next((one for one in _BOUNDS if seconds <= one), None)
        if bound is not None:
            self._buckets[bound] += 1

    def render_text(self) -> str:
        """All of them, as `GET /metrics` answers."""
        return "\n".join([*self._render_counters(), *self._render_rest(), ""])

    def _render_counters(self) -> Iterator[str]:
        for name, words in _HELP.items():
            full = f"toolmill_proxy_{name}_total"
            yield f"# HELP {full} {words}"
            yield f"# TYPE {full} counter"
            labels = sorted(label for one, label in self._counts if one == name)
            for label in labels or [""]:
                yield (
                    f"{full}{{{label}}} {self._counts[name, label]}"
                    if label
                    else (f"{full} {self._counts[name, label]}")
                )

    def _render_rest(self) -> Iterator[str]:
        yield "# HELP toolmill_proxy_open_requests requests that are being answered"
        yield "# TYPE toolmill_proxy_open_requests gauge"
        yield f"toolmill_proxy_open_requests {self.open}"
        full = "toolmill_proxy_overhead_seconds"
        yield f"# HELP {full} time spent in the proxy by one request, waiting left out"
        yield f"# TYPE {full} histogram"
        below = 0
        for bound in _BOUNDS:
            below += self._buckets[bound]
            yield f'{full}_bucket{{le="{bound}"}} {below}'
        yield f'{full}_bucket{{le="+Inf"}} {self._n}'
        yield f"{full}_sum {self._sum:.6f}"
        yield f"{full}_count {self._n}"
