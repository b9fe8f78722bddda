"""Keys: what the replicas ask for where the real marketplace wants a key.

What belongs here: fixed public strings; they open a replica on loopback and nothing else.
What does not: anybody's real key; those come from the environment.
"""

from collections.abc import Mapping

# Not secret: whoever reads this file may use them.
KEYS: Mapping[str, Mapping[str, str]] = {
    "glama": {"api_key": "demo-key"},
    "pulsemcp": {"api_key": "demo-key", "tenant_id": "demo-tenant"},
    "pipedream": {"client_id": "demo-client", "client_secret": "demo-client-secret"},
}
