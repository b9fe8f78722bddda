"""Columns that many tables have, each with the words by which the UI describes it."""

import polars as pl

MARKETPLACE = (pl.String, "that lists the server")
LISTING_ID = (pl.String, '"<marketplace>:<its own id of the server>"')
SERVER_ID = (pl.String, "id of the server, by what is launched: the same on every marketplace")
TOOL = (pl.String, "the tool's name, as its server lists it")
CONTRACT_DIGEST = (pl.String, 'of the tool\'s contract: "c1:<sha256>"')
PAIR_ID = (pl.String, "id of the pair, in the table pairs")
KIND = (pl.String, "how the request is put: direct, detailed, implicit")
TEXT_DIGEST = (pl.String, "of the text by which the tool is searched")
PROVIDER = (pl.String, 'who ran the language model: "offline", or the endpoint\'s host')
MODEL = (pl.String, "the language model")
PROMPT_TOKENS = (pl.Int64, "sent to the language model, all requests together")
COMPLETION_TOKENS = (pl.Int64, "written by the language model, all requests together")
USD = (pl.Float64, "US dollars paid for it")
ERROR_KIND = (pl.String, "kind of the failure; null: none")
HINT = (pl.String, "what was found and what to do; null: nothing failed")
TRAINING_SET = (pl.String, "digest of the training set that it was made with")
