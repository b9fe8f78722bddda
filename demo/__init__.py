"""Demo: replica marketplaces on loopback, of real packages, local bundles or invented servers.

What belongs here: what the replicas list and serve. What does not: reading them
(`assets/marketplaces`), with which they share no parsing code.
"""

from demo.catalogue import SCALES, listed_sites
from demo.faults import KINDS, SITES, parse_faults
from demo.full import Shares
from demo.keys import KEYS
from demo.ports import PORTS
from demo.server import Replicas, replicas, serve

__all__ = [
    "KEYS",
    "KINDS",
    "PORTS",
    "SCALES",
    "SITES",
    "Replicas",
    "Shares",
    "listed_sites",
    "parse_faults",
    "replicas",
    "serve",
]
