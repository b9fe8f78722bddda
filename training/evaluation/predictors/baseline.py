"""The baseline: BM25 picks a tool, slots are copied from the request. No model, one call always."""

import time
from collections.abc import Sequence

from training.evaluation.predictors.interface import Answered, Asked, OnDone, PredictorKind
from training.evaluation.predictors.slot_copy import make_baseline_call
from training.role import BASELINE


class BaselinePredictor:
    """What every caller is set beside."""

    label = BASELINE
    kind: PredictorKind = "baseline"

    def predict(self, asked: Sequence[Asked], on_done: OnDone | None = None) -> list[Answered]:
        out = []
        for one in asked:
            began = time.perf_counter()
            calls = [make_baseline_call(one.tools, one.request_text)] if one.tools else []
            took = time.perf_counter() - began
            out.append(Answered(calls, "call" if calls else "no_call", seconds=took))
            if on_done:
                on_done(len(out), len(asked))
        return out
