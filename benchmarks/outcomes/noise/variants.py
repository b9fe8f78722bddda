"""Variants: copies of real endpoints in other words, most with a fault; and what changes later."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from benchmarks.outcomes.noise.endpoints import (
    ToolEndpoint,
    make_opaque_id,
    rename_arguments,
)
from benchmarks.outcomes.noise.faults import EMPTY, FAULTS, RANDOM, STALE
from benchmarks.outcomes.noise.paraphrase import (
    RENAMES,
    paraphrase_contract,
    paraphrase_name,
    paraphrase_text,
)

HEALTHY_SHARE = 0.2  # of variants: copies in other words that have no fault
NEWCOMERS = 12
CHANGED_SHARE = 0.2  # of all endpoints; a third of them with their contract


def make_variants(real: Sequence[ToolEndpoint], n: int, seed: int) -> list[ToolEndpoint]:
    """`n` variants of real endpoints, of each about as many, each fault as often as any other."""
    rng = Random(f"variants/{seed}")
    bases = list(_cycle_shuffled(real, n, rng))
    healthy = round(n * HEALTHY_SHARE)
    faults: list[str | None] = [None] * healthy
    faults += [FAULTS[at % len(FAULTS)] for at in range(n - healthy)]
    rng.shuffle(faults)
    return [
        make_variant(base, fault, at, seed)
        for at, (base, fault) in enumerate(zip(bases, faults, strict=True))
    ]


def make_newcomers(real: Sequence[ToolEndpoint], n: int, seed: int) -> list[ToolEndpoint]:
    """Copies without a fault that are listed in the second phase only."""
    bases = Random(f"newcomers/{seed}").sample(list(real), min(n, len(real)))
    made = (make_variant(base, None, f"new-{at}", seed) for at, base in enumerate(bases))
    return [replace(item, newcomer=True) for item in made]


def make_variant(base: ToolEndpoint, fault: str | None, at: int | str, seed: int) -> ToolEndpoint:
    """A copy of a real endpoint behind our proxy: another server, name and description."""
    rng = Random(f"{base.id}/{fault}/{at}/{seed}")
    name = f"{paraphrase_name(base.tool, rng)}"
    contract = paraphrase_contract(base.contracts[0], name, rng)
    server = make_opaque_id("variant", at, seed)
    return ToolEndpoint(
        server, name, base.source, base.base, (contract, contract), (fault, fault), direct=False
    )


def change_endpoints(endpoints: Sequence[ToolEndpoint], seed: int) -> list[ToolEndpoint]:
    """The endpoints of which a share changes in the second phase: what works gets a fault, what has
    one loses it; a third of those get another contract as well."""
    rng = Random(f"changes/{seed}")
    kept = [endpoint for endpoint in endpoints if not endpoint.newcomer]
    chosen = {item.id for item in rng.sample(kept, round(len(kept) * CHANGED_SHARE))}
    return [
        _change_endpoint(endpoint, rng) if endpoint.id in chosen else endpoint
        for endpoint in endpoints
    ]


def _change_endpoint(endpoint: ToolEndpoint, rng: Random) -> ToolEndpoint:
    before = endpoint.faults[0]
    after = None if before else rng.choice((RANDOM, STALE, EMPTY))
    changed = replace(endpoint, faults=(before, after))
    if rng.random() >= 1 / 3:
        return changed
    known = list((endpoint.contracts[0].get("inputSchema") or {}).get("properties") or {})
    names = [item for item in RENAMES if item not in known]
    renames = dict(zip(known[:1], rng.sample(names, 1), strict=False))
    words = str(endpoint.contracts[0].get("description") or "")
    return rename_arguments(changed, renames, paraphrase_text(endpoint.base, words, rng))


def _cycle_shuffled(real: Sequence[ToolEndpoint], n: int, rng: Random) -> Iterator[ToolEndpoint]:
    left: list[ToolEndpoint] = []
    for _ in range(n):
        if not left:
            left = rng.sample(list(real), len(real))
        yield left.pop()
