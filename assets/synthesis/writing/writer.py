"""Who writes and judges a marketplace's pairs, and whether private rows may leave for that."""

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from assets.marketplaces.adapters.private import NotApproved, is_endpoint_approved
from assets.synthesis.judging.judge import make_offline_provider
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.tables import TaskSource
from assets.vectors.encoders.embedder import Embedder
from warehouse.llm.client import LLM, OFFLINE, Role
from warehouse.network.egress import is_loopback
from warehouse.store import Warehouse


@dataclass(frozen=True)
class PairWriter:
    """Who writes and judges, how much, how strictly. worlds: whose tasks become pairs too;
    open_retriever: the model that tells requests for a sibling of their tool, if any."""

    roles: tuple[Role, ...]
    policy: SynthesisPolicy = field(default_factory=SynthesisPolicy)
    approved: tuple[str, ...] = ()  # endpoints to which private rows may go
    worlds: TaskSource | None = None
    open_retriever: Callable[[], Embedder | None] = lambda: None

    def make_llm(self, warehouse: Warehouse, partition: str, *, batches: bool = False) -> LLM:
        """The client of one marketplace. batches: whether answers may come later. Raises
        NotApproved."""
        for role in self.roles:
            endpoint = _find_endpoint(role)
            if not is_endpoint_approved(partition, endpoint, self.approved):
                raise NotApproved(
                    f"role {role.name!r} would send private tools to {endpoint}; approve it with"
                    " TOOLMILL_MARKETPLACES__PRIVATE__APPROVED, or let the role be offline"
                )
        return LLM(
            self.roles,
            warehouse.ledger,
            offline=make_offline_provider(),
            partition=partition,
            batches=batches,
        )


def _find_endpoint(role: Role) -> str | None:
    """Where a role's requests go; None where they stay on this machine."""
    if role.model == OFFLINE:
        return None
    endpoint = role.base_url or role.provider
    return None if is_loopback(urlsplit(endpoint).hostname or "") else endpoint
