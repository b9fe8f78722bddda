"""Names: which marketplaces there are, without importing any of them."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

GROUP = "toolmill.marketplaces"
# The order of a run: the sources that state pinned packages first.
OURS = (
    *("registry", "smithery", "glama", "pulsemcp", "mcpso"),
    *("mcphub", "deepnlp", "pipedream", "docker", "private"),
)


@cache
def load_entry_points() -> dict[str, EntryPoint]:
    """Every installed adapter's entry point by name, ours first and in their order."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    ordered = [*(name for name in OURS if name in points), *sorted(points.keys() - set(OURS))]
    return {name: points[name] for name in ordered}


def list_installed() -> tuple[str, ...]:
    """Names of the installed adapters."""
    return tuple(load_entry_points())
