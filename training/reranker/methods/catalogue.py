"""Every method by its name."""

from collections.abc import Callable

from training.reranker.examples import Method
from training.reranker.methods.fitted import Blend, BoostedTrees, Logistic
from training.reranker.methods.linucb import LinUcb
from training.reranker.methods.ours import Ours
from training.reranker.methods.simple import Cosine, Oats, Prior, Thompson
from training.reranker.methods.toolflix import ToolFlix, ToolFlixOneHead

METHODS: dict[str, Callable[[], Method]] = {
    "cosine": Cosine,
    "prior": Prior,
    "oats": Oats,
    "thompson": Thompson,
    "linucb": LinUcb,
    "logistic": Logistic,
    "boosted_trees": BoostedTrees,
    "blend": Blend,
    "toolflix": ToolFlix,
    "toolflix_one_head": ToolFlixOneHead,
    "ours": Ours,
}
