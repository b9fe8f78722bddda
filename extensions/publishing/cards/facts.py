"""What a model card is written from: base, licences, and the rows that were learnt from."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assets.vectors.encoders.hub import SENTENCE
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET

Json = Mapping[str, Any]
UNKNOWN = "unknown"

# name in a card -> (id on the hub, licence)
_BASES = {"minilm-l6-v2": ("sentence-transformers/all-MiniLM-L6-v2", "apache-2.0")}
_LICENCES = {"qwen/": "apache-2.0", "meta-llama/llama-3.1": "llama3.1",
             "sentence-transformers/": "apache-2.0"}  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """All that a card is written from."""

    model: Json
    manifest: Json = field(default_factory=dict)
    learnt: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)  # over the train split
    summary: Json = field(default_factory=dict)
    gates: Iterable[Json] = ()

    def count_pairs(self, column: str, in_manifest: str) -> dict[str, int]:
        """Pairs by a column: of the train split where its rows are there, else of the whole set."""
        held = self.learnt.get(column) or self.manifest.get(in_manifest) or {}
        return {UNKNOWN if name in (None, "None") else str(name): n for name, n in held.items()}


def get_base_and_licence(model: Json) -> tuple[str | None, str | None]:
    """(id on the hub, licence) of the base; None for what is local or not known."""
    base = str(model.get("base") or "").removeprefix(SENTENCE)
    base = base.partition("@")[0]  # without its commit, its files
    if base in _BASES:
        return _BASES[base]
    parts = base.split("/")
    on_hub = len(parts) == 2 and all(
        part and all(c.isascii() and (c.isalnum() or c in "-_.") for c in part) and part[0] != "."
        for part in parts
    )
    if not on_hub:
        return None, None
    known = [licence for prefix, licence in _LICENCES.items() if base.lower().startswith(prefix)]
    return base, known[0] if known else None


def choose_licence(facts: Facts, base: str | None) -> str:
    """The one licence of base and data, or "other"."""
    from assets.synthesis.export.selection import normalise_licence

    held = facts.learnt.get("license") or facts.manifest.get("licences") or {}
    names = {
        (normalise_licence(None if name in (None, "None") else str(name)) or "?").lower()
        for name in held
    }
    return str(base) if base and names == {base} else "other"


def count_learnt_rows(home: Path, training_set: str) -> dict[str, Counter[Any]]:
    """Counts over the rows that were learnt from; empty where that version of the table is gone."""
    import polars as pl

    path = home / "tables" / TRAINING_SET.name / "_" / f"{training_set}.parquet"
    if not training_set or not path.exists():
        return {}
    frame = pl.read_parquet(path)
    names = [name for name in ("license", "provider", "server_id") if name in frame.columns]
    learnt = frame.filter(pl.col("split") == TRAIN).select(names)
    return {name: Counter(map(str, learnt[name].fill_null(UNKNOWN))) for name in names}


def make_dataset_name(model: Json) -> str:
    return f"toolmill-training-set-{str(model.get('training_set'))[:12]}"
