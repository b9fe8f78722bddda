"""Draws who asks, how, in which language and how hard, and the request's world of files and ids,
seeded by (contract digest, task, index, seed)."""

import random
from datetime import date, timedelta
from typing import Any

from assets.synthesis.offline.invented_values import get_faker
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.tables import SINGLE
from warehouse.json_types import Row
from warehouse.storage.digest import digest
from warehouse.storage.files import read_data

KINDS = ("direct", "detailed", "implicit")

_DRAWN = read_data(__file__, "profiles.toml")
_HARD = ("easy", "medium", "hard")
DIRECTIONS: dict[str, str] = _DRAWN["directions"]


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
        "persona": f"{rng.choice(_DRAWN['who'])}, {rng.choice(_DRAWN['when'])}",
        "tone": rng.choice(_DRAWN["tones"]),
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


World = dict[str, list[str]]
_FIRST_DAY, _DAYS = date(2025, 9, 1), 540
_EACH = 4  # of a kind: enough to choose among, few enough to read


def make_environment(language: str, rng: random.Random) -> World:
    """{files, ids, places, people, dates}: what Faker draws in the language's own names."""
    faker = get_faker(_DRAWN["locales"].get(language.lower()[:2], "en_US"))
    faker.seed_instance(rng.getrandbits(64))
    plain = get_faker("en_US")
    plain.seed_instance(rng.getrandbits(64))
    people = [f"{faker.name()} <{plain.ascii_safe_email()}>" for _ in range(2)]
    return {
        "files": [_draw_file(plain, rng) for _ in range(_EACH)],
        "ids": [
            str(plain.uuid4()),
            f"{plain.word()[:4].upper()}-{rng.randint(100, 9999)}",
            str(rng.randint(1000, 999_999)),
            f"{plain.word()}_{plain.hexify('^^^^^^')}",
        ],
        "places": [_draw_city(faker, rng) for _ in range(_EACH)],
        "people": [*people, *(faker.name() for _ in range(_EACH - len(people)))],
        "dates": [
            (_FIRST_DAY + timedelta(days=rng.randrange(_DAYS))).isoformat() for _ in range(_EACH)
        ],
    }


def _draw_city(faker: Any, rng: random.Random) -> str:
    """Not Faker's `city`: its Italian ones were a set, whose order changes by process."""
    city_lists = (getattr(provider, "cities", None) for provider in faker.get_providers())
    cities = next((city_list for city_list in city_lists if city_list), None)
    return rng.choice(sorted(cities)) if cities else str(faker.city())


def _draw_file(faker: Any, rng: random.Random) -> str:
    folder, name = rng.choice(_DRAWN["folders"]), rng.choice(_DRAWN["names"])
    mark = "\\" if folder.startswith("C:") else "/"
    facts = {"user": faker.first_name().lower(), "word": faker.word(), "number": rng.randint(1, 99)}
    return f"{folder}{mark}{name}".format(**facts)
