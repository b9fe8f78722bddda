"""Who asks, how, in which language and how hard: drawn for each row, the same in every run.

Every draw is seeded by (contract digest, task, index, seed), so that no other tool moves it.
"""

import random

from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.tables import SINGLE
from warehouse.json_types import Row
from warehouse.storage.digest import digest

KINDS = ("direct", "detailed", "implicit")

# Life and work as they come; a persona is one of each.
_WHO = (
    "a nurse", "a high-school teacher", "a retired engineer", "a first-year student",
    "a freelance translator", "a warehouse supervisor", "a data analyst",
    "a site reliability engineer",
    "a bookkeeper", "a beekeeper", "a museum guide", "a product manager", "a paralegal",
    "a wedding photographer", "a city planner", "a PhD student in biology", "a support agent",
    "an amateur radio operator", "a cafe owner", "a game designer", "a landlord", "a journalist",
    "a parent of three", "a marine surveyor", "an estate agent", "a back-end developer",
    "a theatre technician", "a volunteer treasurer", "a logistics clerk", "a security auditor",
    "a travel agent", "a podcast editor", "a farmer", "a pharmacist", "a mobile developer",
    "an exchange trader", "a librarian", "a bike mechanic", "a grant writer", "a town archivist",
)  # fmt: skip
_WHEN = (
    "on the way to a meeting", "late at night before a deadline", "in the middle of an outage",
    "planning next month", "cleaning up after somebody who left", "doing this for the first time",
    "doing this every week", "on a phone with one hand",
    "with a colleague looking over the shoulder",
    "preparing a report for others", "curious and in no hurry", "fixing yesterday's mistake",
)  # fmt: skip
_TONES = (
    "plain", "friendly", "terse", "formal", "hurried", "chatty", "polite and careful", "dry",
    "a little annoyed", "enthusiastic",
)  # fmt: skip
_HARD = ("easy", "medium", "hard")

# What a harder request has more of; each step of evolution takes another one.
DIRECTIONS: dict[str, str] = {
    "constrain": "add one more condition or limit that the request must respect, and that the tool "
    "can respect through its parameters or that the person keeps in mind",
    "deepen": "say more precisely what is meant, so that the same goal is understood in more depth",
    "concretise": "put something concrete for what is general: a name, a place, a figure, a case",
    "reason": "give the goal behind it, so that what to ask for takes one step of thought",
    "situate": "set it in a situation with a reason that makes it natural",
}


def make_rng(row: Row, task: str, index: int, policy: SynthesisPolicy, use: str) -> random.Random:
    """A generator for one `use` of one row's draws, apart from all others."""
    return random.Random(digest([row["contract_digest"], task, index, policy.seed, use]))


def make_seed(task: str, policy: SynthesisPolicy) -> int:
    """The seed of a task's requests: each its own, or two tasks would ask for one text twice."""
    return policy.seed if task == SINGLE else int(digest([policy.seed, task])[:7], 16)


def draw_profile(row: Row, task: str, index: int, policy: SynthesisPolicy) -> dict[str, str]:
    """{persona, tone, language, difficulty} of one row."""
    rng = make_rng(row, task, index, policy, "profile")
    return {
        "persona": f"{rng.choice(_WHO)}, {rng.choice(_WHEN)}",
        "tone": rng.choice(_TONES),
        "difficulty": rng.choice(_HARD),
        # Last, so that a longer list of languages leaves the rest as it was.
        "language": rng.choice(policy.languages or ("en",)),
    }


def choose_kind(row: Row, task: str, index: int, rows: int, policy: SynthesisPolicy) -> str:
    """The kind of request: all in turn where a tool gets several, else drawn."""
    if rows > 1:
        return KINDS[index % len(KINDS)]
    return make_rng(row, task, index, policy, "kind").choice(KINDS)


def is_evolved(row: Row, task: str, index: int, policy: SynthesisPolicy) -> bool:
    """Whether a row's request is made harder after it was written."""
    drawn = make_rng(row, task, index, policy, "evolves").random()
    return policy.evolve_depth > 0 and drawn < policy.evolve_share


def draw_directions(row: Row, task: str, index: int, policy: SynthesisPolicy) -> list[str]:
    """The directions of a row's evolution, a step each; none twice before all were used."""
    rng = make_rng(row, task, index, policy, "directions")
    order: list[str] = []
    while len(order) < policy.evolve_depth:
        more = list(DIRECTIONS)
        rng.shuffle(more)
        order += more
    return order[: policy.evolve_depth]
