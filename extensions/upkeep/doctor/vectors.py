"""Checks of the vector store: keys that occur once, and a vector for every text that is current."""

from assets.vectors.index import VECTORS
from extensions.upkeep.doctor.check import RUN, Finding, Home, Looked
from warehouse.storage.lance import DuplicateKeys, LanceStore, make_vector_key


def check_vector_keys(at: Home) -> Looked:
    """Whether each key of each table of vectors occurs once."""
    store, found, n = LanceStore(at.home / "lance"), [], 0
    for path in sorted(store.root.glob("*.lance")):
        table = path.name.removesuffix(".lance")
        try:
            n += store.check_keys(table)
        except DuplicateKeys as error:
            problem = " ".join(str(error).split())
            found.append(Finding(f"lance/{path.name}", problem, f"rm -r {path}, then {RUN}"))
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            problem = f"cannot be read ({' '.join(str(error).split())[:160]})"
            found.append(Finding(f"lance/{path.name}", problem, f"rm -r {path}, then {RUN}"))
    return Looked(n, found)


def check_vectors(at: Home) -> Looked:
    """Whether every text that `contract_vectors` names has its vector."""
    rows = at.tables.read(VECTORS).select("text_digest", "embedder").unique().rows()
    keys = at.choose_some(make_vector_key(text, embedder) for text, embedder in rows)
    missing = LanceStore(at.home / "lance").find_missing(keys) if keys else set()
    if not missing:
        return Looked(len(keys))
    problem = f"{len(missing)} of {len(keys)} texts have no vector, first {min(missing)[:60]}"
    fix = f"materialize contract_vectors again: {RUN}"
    return Looked(len(keys), [Finding("lance/texts.lance", problem, fix)])
