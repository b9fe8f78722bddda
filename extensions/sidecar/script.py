"""Trains a sidecar: `python -m extensions.sidecar.script JOB.json`, as `training.caller.script`."""

import sys

from extensions.sidecar.train import train_sidecar
from training.runtime.script_frame import run_script

if __name__ == "__main__":
    sys.exit(run_script("sidecar", train_sidecar))
