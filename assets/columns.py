"""Columns that many tables have, each with the words by which the UI describes it."""

import polars as pl

MARKETPLACE = (pl.String, "Marketplace that lists the server")
LISTING_ID = (pl.String, 'Listing id: "<marketplace>:<native id>"')
SERVER_ID = (pl.String, "Server id, the same on every marketplace")
TOOL = (pl.String, "Tool name, as the server lists it")
CONTRACT_DIGEST = (pl.String, 'Digest of the tool\'s contract: "c1:<sha256>"')
PAIR_ID = (pl.String, "Id of the pair, as in the table pairs")
KIND = (pl.String, "Style of the request: direct, detailed or implicit")
TEXT_DIGEST = (pl.String, "Digest of the text by which the tool is searched")
PROVIDER = (pl.String, 'Provider of the language model: "offline", or the endpoint\'s host')
MODEL = (pl.String, "Language model")
PROMPT_TOKENS = (pl.Int64, "Tokens sent to the language model, over all requests")
COMPLETION_TOKENS = (pl.Int64, "Tokens written by the language model, over all requests")
USD = (pl.Float64, "Cost in US dollars")
ERROR_KIND = (pl.String, "Kind of failure; null where nothing failed")
HINT = (pl.String, "What was found and how to fix it; null where nothing failed")
TRAINING_SET = (pl.String, "Digest of the training set")
