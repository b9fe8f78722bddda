"""Which rows are learnt from and which are only ever tested on, by frozen hashes.

    train server + train tool + most pairs      train
    train server + train tool + other pairs     seen_tool       held-out requests of trained tools
    train server + other tool                   unseen_tool     held-out tools of trained servers
    train server, first seen after the cutoff   unseen_time
    other server                                unseen_server

A place is a pure function of ids: it is the same on every machine and in every run, and a new
server, tool or pair moves no old one. Only a server that the catalogue joins with a test server
(the hosted form of a package) goes over to its side. Server first: the hash of the server goes
before its date, so that setting a cutoff moves no server out of `unseen_server`, on which past
figures stand. A tool falls by its name alone, so that copies of one tool on several servers stand
on one side.
"""

import hashlib
from collections.abc import Iterable
from datetime import date

from training.sets.policy import SetPolicy

TRAIN, TEST = "train", "test"  # the two sides of a server
SEEN_TOOL, UNSEEN_TOOL = "seen_tool", "unseen_tool"
UNSEEN_SERVER, UNSEEN_TIME = "unseen_server", "unseen_time"
SPLITS = (TRAIN, SEEN_TOOL, UNSEEN_TOOL, UNSEEN_SERVER, UNSEEN_TIME)
TEST_SPLITS = SPLITS[1:]
TEST_SHARE = 0.3
# Frozen: other salts make every past figure incomparable.
_SALT = "toolmill-split-10"
_TOOL_SALT = "toolmill-split-tool-3"
_PAIR_SALT = "toolmill-split-pair-3"
SALTS = {"server": _SALT, "tool": _TOOL_SALT, "pair": _PAIR_SALT}


def split_of(server_id: str, *, test_share: float = TEST_SHARE) -> str:
    """ "train" or "test"; about `test_share` of all servers are test servers."""
    return TEST if _hash_to_share(_SALT, server_id) < test_share else TRAIN


def split_of_same(server_ids: Iterable[str], *, test_share: float = TEST_SHARE) -> str:
    """The side of one server by all ids that it has: "test" where any of them falls there."""
    sides = {split_of(name, test_share=test_share) for name in server_ids}
    return TEST if TEST in sides else TRAIN


def choose_tool_place(
    server_id: str, tool: str, first_seen: str | None, policy: SetPolicy, same: Iterable[str] = ()
) -> str:
    """The place of a contract: TRAIN, UNSEEN_TOOL, UNSEEN_SERVER or UNSEEN_TIME.

    `first_seen`: the UTC date of the server's first run; None (older tables) counts as old. `same`:
    the other ids of the server.
    """
    if split_of_same((server_id, *same), test_share=policy.test_share) == TEST:
        return UNSEEN_SERVER
    if policy.cutoff and first_seen and date.fromisoformat(first_seen[:10]) > policy.cutoff:
        return UNSEEN_TIME
    name = "".join(char for char in tool.casefold() if char.isalnum()) or tool
    return UNSEEN_TOOL if _hash_to_share(_TOOL_SALT, name) < policy.unseen_tools else TRAIN


def compute_pair_draw(pair_id: str) -> float:
    """Where a pair stands between 0 and 1: the lowest of a trained tool are held out."""
    return _hash_to_share(_PAIR_SALT, pair_id)


def _hash_to_share(salt: str, name: str) -> float:
    head = hashlib.sha256(f"{salt}|{name}".encode()).digest()[:8]
    return int.from_bytes(head) / 2**64
