"""Trains a caller as a process of its own: `python -m training.caller_script JOB.json`.

Started by Dagster Pipes it logs the live loss to the run; by hand it writes it to stderr. Its last
line on stdout is the model's card as JSON, with tokens/s, step time and peak memory.
"""

import sys

from training.caller import train_caller
from training.run_script import run

if __name__ == "__main__":
    sys.exit(run("caller", train_caller))
