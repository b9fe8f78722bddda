"""Whether the retriever in service is as good as the one before it, on requests frozen once."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from orchestration.factories import make_trainer
from orchestration.settings.load import load_settings
from training.evaluation.retriever import evaluate_retriever, make_encoder, select_testable_rows
from training.releases.in_service import find_model_in_service
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.storage.files import write_atomically
from warehouse.storage.lance import LanceStore
from warehouse.store import Warehouse


def measure_champion(warehouse: Warehouse, file: Path) -> dict[str, Any]:
    """{model, n, recall_at_1} of the retriever in service on the frozen requests and tools of
    `file`, which are those of the first training set; {} before there is one."""
    if not file.exists():
        rows = warehouse.tables.read(TRAINING_SET).to_dicts()
        held = select_testable_rows([row for row in rows if row["split"] != TRAIN])
        if not held:
            return {}
        pool = sorted({row["positive"] for row in rows if row["positive"]})
        write_atomically(file, json.dumps({"rows": held, "pool": pool}, default=str).encode())
    frozen = json.loads(file.read_bytes())
    model = find_model_in_service(warehouse.home, "retriever").model
    known = frozen.setdefault("measured", {})
    if model not in known:
        start = make_trainer(load_settings()).retriever.start
        store = LanceStore(warehouse.home / "lance")
        encode = make_encoder(warehouse.home, model, store, start)
        ranked = evaluate_retriever(frozen["rows"], frozen["pool"], {model: encode}, "frozen")
        known[model] = float(np.mean([row["rank"] == 1 for row in ranked]))
        write_atomically(file, json.dumps(frozen).encode())
    return {"model": model, "n": len(frozen["rows"]), "recall_at_1": known[model]}
