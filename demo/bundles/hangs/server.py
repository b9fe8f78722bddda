"""A fault on purpose: starts, reads nothing and answers nothing."""

import time

while True:
    time.sleep(60)
