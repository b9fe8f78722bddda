"""Moves the wall clock of one Python process: imported by the interpreter when it starts.

Belongs here: the shift, by CLOCK_OFFSET_S seconds. Runs in a stranger's process, in the sandbox.
Does not belong here: choosing when (`assets/servers/probe/consistency.py`). libfaketime was tried and left: on
Python 3.11 its 0.9.10 makes `time.sleep` fail (EINVAL) or queues wait for ever.
"""

import os
import time

import time_machine

time_machine.travel(time.time() + float(os.environ["CLOCK_OFFSET_S"]), tick=True).start()
