"""Which servers are learnt from and which are only ever tested on.

What belongs here: the frozen hash. What does not: rows (`training_set.py`).

The split is a pure function of `server_id`: it is the same on every machine and every night, a
new server cannot move an old one, and all tools and pairs of a server stay on one side.
"""

import hashlib

TRAIN, TEST = "train", "test"
TEST_SHARE = 0.3
_SALT = "toolmill-split-10"  # frozen: another salt makes every past figure incomparable


def split_of(server_id: str, *, test_share: float = TEST_SHARE) -> str:
    """ "train" or "test"; about `test_share` of all servers are test servers."""
    head = hashlib.sha256(f"{_SALT}|{server_id}".encode()).digest()[:8]
    return TEST if int.from_bytes(head) / 2**64 < test_share else TRAIN
