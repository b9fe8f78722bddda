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
PERTURBATIONS = ("renamed_tool", "renamed_parameters", "reordered_parameters", "paraphrased")
UNPERTURBED = "none"
GONE, RENAMED, RENAMED_HERE = "gone", "renamed", "renamed_here"
PHANTOMS = (GONE, RENAMED, RENAMED_HERE)

CALLER_EVALUATION = TableSpec(
    name="caller_evaluation",
    key=("model", "item_id"),
    columns={
        "model": (pl.String, "a predictor's label; of an adapter the digest that names it"),
        "item_id": (pl.String, "of the question: pair, split, candidates, distractors, seed …"),
        "pair_id": PAIR_ID,
        "split": (pl.String, "of the training set that the pair is in"),
        "task": (pl.String, "as synthesis has them, or not_offered, ask_back"),
        "candidates": (pl.Int64, "as planned"),
        "offered": (pl.Int64, "tools in the question: fewer where the pool has no more"),
        "shown": (pl.Int64, "of them, how many fitted into the model's prompt"),
        "distractors": (pl.String, "random, hard, or pool (the router over its whole index)"),
        "perturbation": (pl.String, f"none, or {', '.join(PERTURBATIONS)}"),
        "phantom": (pl.String, '"", gone, renamed, renamed_here'),
        "server_id": SERVER_ID,
        "tool": (pl.String, 'the right one, by its own name; "" where none is'),
        "kind": KIND,
        "text_digest": TEXT_DIGEST,
        "seed": (pl.Int64, "of the drawing of its candidates"),
        "called": (pl.String, "JSON list of {name, arguments}"),
        "expected": (pl.String, "the same; [] where no call is right"),
        "parsed": (pl.Boolean, "the text could be read: as calls, or as none where none is right"),
        "calls": (pl.Int64, "that the model made"),
        "known_calls": (pl.Int64, "that name an offered tool"),
        "valid_calls": (pl.Int64, "and pass its schema"),
        "known_name": (pl.Boolean, "there are calls, and all name offered tools"),
        "valid": (pl.Boolean, "there are calls, and all pass"),
        "tool_ok": (pl.Boolean, "the called names are the expected ones, each as often"),
        "name_f1": (pl.Float64, "of the parameters' names, over all calls"),
        "value_f1": (pl.Float64, "of the parameters' values, over all calls"),
        "ast_ok": (pl.Boolean, "the calls match the expected ones, and no other was made"),
        "error_kind": (pl.String, "what is wrong with the answer; null: nothing"),
        "parameters": (pl.String, "JSON list of {name, declared type, verdict}"),
        "failed": (pl.Boolean, "no answer came (an endpoint's fault): in no rate, counted apart"),
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": COMPLETION_TOKENS,
        "seconds": (pl.Float64, "that the answer took"),
        "usd": USD,
        "training_set": TRAINING_SET,
    },
    volatile=("seconds",),
    schema_version=2,
)
