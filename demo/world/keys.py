"""Keys: what the replicas ask for where the real marketplace wants a key."""

from collections.abc import Mapping

# Not secret: whoever reads this file may use them.
KEYS: Mapping[str, Mapping[str, str]] = {
    "glama": {"api_key": "demo-key"},
    "pulsemcp": {"api_key": "demo-key", "tenant_id": "demo-tenant"},
    "pipedream": {"client_id": "demo-client", "client_secret": "demo-client-secret"},
}
