"""The table of what callers answered: one row a model and item."""

import polars as pl

from assets.columns import (
    COMPLETION_TOKENS,
    KIND,
    PAIR_ID,
    PROMPT_TOKENS,
    SERVER_ID,
    TEXT_DIGEST,
    TRAINING_SET,
    USD,
)
from warehouse.storage.tables import TableSpec

NOT_OFFERED = "not_offered"  # the task of a request whose right tool is left out of the prompt
ASK_BACK = "ask_back"  # the task of a request that lacks a value: right is to ask for it
PERTURBATIONS = ("renamed_tool", "renamed_parameters", "reordered_parameters")
UNPERTURBED = "none"
GONE, RENAMED, RENAMED_HERE = "gone", "renamed", "renamed_here"
PHANTOMS = (GONE, RENAMED, RENAMED_HERE)

CALLER_EVALUATION = TableSpec(
    name="caller_evaluation",
    key=("model", "item_id"),
    columns={
        "model": (pl.String, "Label of the predictor; for an adapter the digest that names it"),
        "item_id": (pl.String, "Id of the question: pair, split, candidates, distractors, seed …"),
        "pair_id": PAIR_ID,
        "split": (pl.String, "Split of the pair"),
        "task": (pl.String, "Task as in synthesis, or not_offered, ask_back"),
        "candidates": (pl.Int64, "Planned number of candidates"),
        "offered": (pl.Int64, "Tools in the question; fewer where the pool is smaller"),
        "shown": (pl.Int64, "Candidates that fit into the model's prompt"),
        "distractors": (pl.String, "random, hard, or fresh (of contracts that are new or changed)"),
        "perturbation": (pl.String, f"none, or {', '.join(PERTURBATIONS)}"),
        "phantom": (pl.String, 'Perturbation: "", gone, renamed or renamed_here'),
        "server_id": SERVER_ID,
        "tool": (pl.String, 'Right tool, by its own name; "" where none is right'),
        "kind": KIND,
        "text_digest": TEXT_DIGEST,
        "seed": (pl.Int64, "Seed of the drawn candidates"),
        "called": (pl.String, "JSON list of {name, arguments}"),
        "expected": (pl.String, "Expected calls in the same form; [] where no call is right"),
        "parsed": (pl.Boolean, "Whether the text could be read as calls, or as no call"),
        "calls": (pl.Int64, "Number of calls"),
        "known_calls": (pl.Int64, "Calls that name an offered tool"),
        "valid_calls": (pl.Int64, "Calls that also pass its schema"),
        "known_name": (pl.Boolean, "Whether all calls name offered tools, and there are some"),
        "valid": (pl.Boolean, "Whether all calls pass, and there are some"),
        "tool_ok": (pl.Boolean, "Whether the called names are the expected ones"),
        "name_f1": (pl.Float64, "F1 of the parameter names, over all calls"),
        "value_f1": (pl.Float64, "F1 of the parameter values, over all calls"),
        "ast_ok": (pl.Boolean, "Whether the calls match the expected ones, with no extra call"),
        "error_kind": (pl.String, "What is wrong with the answer; null where nothing is"),
        "failed": (pl.Boolean, "Whether no answer came (an endpoint's fault); left out of rates"),
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": COMPLETION_TOKENS,
        "seconds": (pl.Float64, "Seconds until the answer"),
        "usd": USD,
        "training_set": TRAINING_SET,
    },
    volatile=("seconds",),
    schema_version=3,
)
