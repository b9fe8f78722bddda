"""What the left-out weights do on other pools and in other languages than they were fitted over."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.router_fit.left_out import Line, compare
from benchmarks.router_fit.pools import (
    BARE,
    MIXED,
    cut_small_pools,
    hide_descriptions,
    is_hidden,
    join_pools,
    list_origins,
    name_language,
    part_servers,
    plant_attackers,
    take_names,
)
from benchmarks.router_fit.rows import Rows, join_rows
from benchmarks.router_fit.sets import NEVER_FITTED, QuerySet

JOINT_EACH = 60  # requests that each set asks of the joint pool
CUT = ("acebench-zh", "corpus", "sealtools", "tldr-en", "toolbench-rapidapi", "vendor-mcp-evals")
DESCRIBED = ("corpus", "sealtools", "toolbench-rapidapi", "tldr-en", "vendor-mcp-evals")
NAMED = ("sealtools", "toolalpaca", "tooleyes", "tooltalk", "vendor-mcp-evals", "corpus")
ATTACKED_SETS = ("corpus", "toolbench-rapidapi", "vendor-mcp-evals")
MANY_LANGUAGES = ("acebench-zh", "home-assistant-intents", "tldr-i18n")
Open = Callable[[QuerySet], Rows]
Weights = Mapping[str, np.ndarray]  # set -> weights that were fitted without it


def compare_languages(sets: Mapping[str, Rows], weights: Weights) -> list[Line]:
    """The sets of many languages together, a line a writing."""
    parts: dict[str, list[tuple[Rows, np.ndarray]]] = defaultdict(list)
    for name in MANY_LANGUAGES:
        if name in sets:
            rows = sets[name]
            languages = np.array([name_language(request) for request in rows.requests])
            ours = rows.measure(weights[name])
            for language in np.unique(languages):
                use = languages == language
                parts[str(language)].append((rows.select(use), ours[use]))
    return [_compare_parts(language, of) for language, of in sorted(parts.items())]


def compare_small_pools(found: Mapping[str, QuerySet], weights: Weights, read: Open) -> list[Line]:
    """Pools of thirty tools, cut from large ones."""
    lines = []
    for name in CUT:
        if name in found:
            parts = [read(pool) for pool in cut_small_pools(found[name])]
            rows = [(part, part.measure(weights[name])) for part in parts]
            lines.append(_compare_parts(f"{name}, pools of 30", rows))
    return lines


def compare_joint_pool(found: Mapping[str, QuerySet], weights: Weights, read: Open) -> list[Line]:
    """One pool of every set's tools; each request by the weights that were fitted without it."""
    sets = [one for name, one in found.items() if name not in NEVER_FITTED]
    joint = join_pools(sets, JOINT_EACH)
    rows = read(joint)
    origins = np.array(list_origins(rows.requests))
    parts = [
        (rows.select(origins == name), rows.select(origins == name).measure(weights[name]))
        for name in dict.fromkeys(origins.tolist())
    ]
    return [_compare_parts(f"joint pool of {joint.tools:,} tools", parts)]


def compare_descriptions(found: Mapping[str, QuerySet], weights: Weights, read: Open) -> list[Line]:
    """Described sets with no server described, and with every second one: there the requests of
    described and of undescribed servers apart."""
    lines = []
    for name in DESCRIBED:
        if name not in found:
            continue
        bare = read(hide_descriptions(found[name], 1.0, BARE))
        lines.append(compare(f"{name}, {BARE}", bare, bare.measure(weights[name])))
        mixed = read(hide_descriptions(found[name], 0.5, MIXED))
        ours = mixed.measure(weights[name])
        hidden = np.array([is_hidden(request.server, 0.5) for request in mixed.requests])
        for label, use in (("described", ~hidden), ("undescribed", hidden)):
            title = f"{name}, {MIXED}: {label}"
            lines.append(compare(title, mixed.select(use), ours[use]))
    return lines


def compare_names(found: Mapping[str, QuerySet], weights: Weights, read: Open) -> list[Line]:
    """Sets as they are, with tools whose names say nothing, and with one tool a server."""
    lines = []
    for name in NAMED:
        if name in found:
            for pool in (found[name], take_names(found[name]), part_servers(found[name])):
                rows = read(pool)
                lines.append(compare(pool.name, rows, rows.measure(weights[name])))
    return lines


def compare_attacked(found: Mapping[str, QuerySet], weights: Weights, read: Open) -> list[Line]:
    """Sets with tools planted that repeat every request: one for all, and ten with a tenth each."""
    lines = []
    for name in ATTACKED_SETS:
        for count in (1, 10):
            if name in found:
                rows = read(plant_attackers(found[name], count))
                title = f"{name}, {count} planted"
                lines.append(compare(title, rows, rows.measure(weights[name])))
    return lines


def _compare_parts(title: str, parts: Sequence[tuple[Rows, np.ndarray]]) -> Line:
    rows = join_rows([part for part, _ in parts])
    return compare(title, rows, np.concatenate([ours for _, ours in parts]))
