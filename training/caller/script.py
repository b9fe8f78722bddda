"""Trains a caller as a process of its own: `python -m training.caller.script JOB.json`.

Started by Dagster Pipes it logs the live loss to the run, otherwise to stderr. Its last
line on stdout is the model's card as JSON, with tokens/s, step time and peak memory.
"""

import sys

from training.caller.train import train_caller
from training.runtime.script_frame import run_script

if __name__ == "__main__":
    sys.exit(run_script("caller", train_caller))
