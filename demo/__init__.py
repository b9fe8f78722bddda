"""Demo: replica marketplaces on loopback, listing real packages and local bundles.

What belongs here: what the replicas list and serve. What does not: reading them
(`assets/marketplaces`), with which they share no parsing code.
"""

from demo.server import Replicas, replicas, serve

__all__ = ["Replicas", "replicas", "serve"]
