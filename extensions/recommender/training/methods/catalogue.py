"""Every method by its name."""

from collections.abc import Callable

from extensions.recommender.training.examples import Method
from extensions.recommender.training.methods.fitted import Blend, BoostedTrees, Logistic
from extensions.recommender.training.methods.linucb import LinUcb
from extensions.recommender.training.methods.ours import Ours
from extensions.recommender.training.methods.simple import Cosine, Oats, Prior, Thompson
from extensions.recommender.training.methods.toolflix import ToolFlix, ToolFlixOneHead

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
