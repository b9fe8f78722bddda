"""The partition key of everything that is read from a marketplace.

A marketplace is code (an adapter), so its name is code. Incrementality is inside an asset, by
digest: a partition per server was measured at 40-55 ms an event and seconds a run.
"""

import dagster as dg

MARKETPLACES = ("registry", "mcpso")

marketplaces = dg.StaticPartitionsDefinition(list(MARKETPLACES))
