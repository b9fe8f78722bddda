"""Trains a sidecar as a process of its own: `python -m training.sidecar.script JOB.json`; see
`training.caller.script`."""

import sys

from training.runtime.script_frame import run_script
from training.sidecar.train import train_sidecar

if __name__ == "__main__":
    sys.exit(run_script("sidecar", train_sidecar))
