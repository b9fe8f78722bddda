"""What the shipped retriever learns from, and how."""

from dataclasses import asdict, dataclass, field
from typing import Any

from training.retriever.settings import RetrieverSettings

# Sets under open licences; `sgd` (CC BY-SA, sister services in BFCL) is measured and never learnt,
# MetaTool and API-Bank stay outside sets.
LEARNT = (
    "acebench-en", "acebench-zh", "apibench", "home-assistant-intents", "nestful", "sealtools",
    "tldr-en", "tldr-i18n", "toolalpaca", "toolbench-rapidapi", "tooleyes", "tooltalk",
    "vendor-mcp-evals", "corpus",
)  # fmt: skip

# Tools of a marketplace's list that no set asks, for each of which pairs are made here (`listed`).
WRITTEN, REQUESTS = "smithery-written", "smithery-requests"
DESCRIPTIONS = "smithery-descriptions"

# What is left out together: families in two halves of about as many pairs and as many styles.
FOLDS = (
    (
        "acebench-en", "acebench-zh", "home-assistant-intents", "nestful", "toolbench-rapidapi",
        "tooltalk", "vendor-mcp-evals",
    ),
    (
        "apibench", "corpus", "sealtools", "tldr-en", "tldr-i18n", "toolalpaca", "tooleyes",
    ),
)  # fmt: skip


SETTINGS = RetrieverSettings(
    epochs=2, tools=48, negatives=1, learning_rate=5e-4, query_tokens=64, text_tokens=96,
    checkpoint_steps=20, hold_tokens=6144, cache_mb=2048,
)  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """Data and rates of the shipped retriever; equal recipes over equal sets make equal rows."""

    sets: tuple[str, ...] = LEARNT
    listed: tuple[str, ...] = (WRITTEN, REQUESTS, DESCRIPTIONS)
    cap: int = 600  # requests of a set
    # Noisy gold, another script than the encoder reads, or a handful of tools.
    caps: dict[str, int] = field(
        default_factory=lambda: {
            "apibench": 200, "acebench-zh": 300, "tldr-i18n": 400, "home-assistant-intents": 200,
            "corpus": 1000,
        }
    )  # fmt: skip
    longest: int = 600  # characters of a request: of longer ones the end, with the task, is cut off
    tools_a_request: int = 2  # of those that a chain wants
    pairs_a_tool: int = 8
    sentences_a_server: int = 12
    near: int = 2  # tools whose words are nearest, of which a batch draws its hard negatives
    settings: RetrieverSettings = SETTINGS

    def as_facts(self) -> dict[str, Any]:
        return asdict(self)
