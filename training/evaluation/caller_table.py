"""The table of what callers answered: one row a model and item."""

from assets.columns import read_table_spec

NOT_OFFERED = "not_offered"  # the task of a request whose right tool is left out of the prompt
ASK_BACK = "ask_back"  # the task of a request that lacks a value: right is to ask for it
PERTURBATIONS = ("renamed_tool", "renamed_parameters", "reordered_parameters")
UNPERTURBED = "none"
GONE, RENAMED, RENAMED_HERE = "gone", "renamed", "renamed_here"
PHANTOMS = (GONE, RENAMED, RENAMED_HERE)

CALLER_EVALUATION = read_table_spec(__file__, "caller_evaluation")
