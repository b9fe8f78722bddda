"""Demo: replica marketplaces on loopback, of real packages, local bundles or invented servers."""

from demo.replicas.faults import KINDS, SITES, parse_faults
from demo.replicas.ports import PORTS
from demo.server import Replicas, replicas, serve
from demo.world.catalogue import SCALES, list_sites
from demo.world.full import Shares
from demo.world.keys import KEYS

__all__ = [
    "KEYS",
    "KINDS",
    "PORTS",
    "SCALES",
    "SITES",
    "Replicas",
    "Shares",
    "list_sites",
    "parse_faults",
    "replicas",
    "serve",
]
