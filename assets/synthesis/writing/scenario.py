"""The small world in which a request is made: which files, ids, places, people and dates exist.

The same contract, task, index and seed give the same world on every machine; Faker's version is
part of the plan (`assets/synthesis/common/code_version.py`).
"""

import random
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from assets.synthesis.common.contract_reading import (
    get_input_schema,
    get_properties,
    resolve_schema,
)
from assets.synthesis.offline.values.invent import get_faker
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract, Json, Schema

World = dict[str, list[str]]
_LOCALES = {
    "en": "en_US", "de": "de_DE", "fr": "fr_FR", "es": "es_ES", "pt": "pt_BR", "it": "it_IT",
    "nl": "nl_NL", "tr": "tr_TR", "pl": "pl_PL", "ru": "ru_RU", "uk": "uk_UA", "zh": "zh_CN",
    "ja": "ja_JP", "ko": "ko_KR", "ar": "ar_SA", "id": "id_ID", "sv": "sv_SE", "cs": "cs_CZ",
}  # fmt: skip
# Paths stay in plain letters whatever the language: that is how files are named.
_FOLDERS = (
    "/home/{user}/documents", "/home/{user}/projects/{word}", "/srv/{word}", "/var/log/{word}",
    "/data/{word}/2026", "C:\\Users\\{user}\\Desktop", "./src/{word}", "~/notes",
)  # fmt: skip
_NAMES = (
    "{word}_report.pdf", "{word}.csv", "{word}-notes.md", "{word}_{number}.jpg", "{word}.log",
    "{word}_config.yaml", "index.html", "{word}.py", "{word}_draft.docx", "{word}.json",
)  # fmt: skip
_FIRST_DAY, _DAYS = date(2025, 9, 1), 540
_EACH = 4  # of a kind: enough to choose among, few enough to read
_LONGEST = 80  # characters of an example that is worth repeating
# Words of a parameter's name or format that say which kind its examples are of.
_KIND_OF = {
    "files": {"file", "files", "path", "paths", "filename", "folder", "directory", "dir"},
    "places": {"city", "country", "location", "place", "address", "region", "town", "destination"},
    "people": {"user", "username", "name", "email", "author", "owner", "assignee", "contact"},
    "dates": {"date", "day", "time", "datetime", "since", "until", "start", "end", "deadline"},
    "ids": {"id", "ids", "uuid", "key", "code", "token", "number", "ref", "slug", "repo"},
}


def make_environment(contract: Contract, language: str, rng: random.Random) -> World:
    """{files, ids, places, people, dates}: what the contract gives as examples, then what Faker
    draws in the language's own names."""
    world = _draw_world(language, rng)
    for kind, value in _read_examples(contract):
        if value not in world[kind]:
            world[kind].insert(0, value)
    return {kind: things[: 2 * _EACH] for kind, things in world.items()}


def _draw_world(language: str, rng: random.Random) -> World:
    faker = get_faker(_LOCALES.get(language.lower()[:2], "en_US"))
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
    """Faker's Italian cities were a set before they were a list: their order changes from process
    to process."""
    held = (getattr(provider, "cities", None) for provider in faker.get_providers())
    cities = next((found for found in held if found), None)
    return rng.choice(sorted(cities)) if cities else str(faker.city())


def _draw_file(faker: Any, rng: random.Random) -> str:
    folder, name = rng.choice(_FOLDERS), rng.choice(_NAMES)
    mark = "\\" if folder.startswith("C:") else "/"
    facts = {"user": faker.first_name().lower(), "word": faker.word(), "number": rng.randint(1, 99)}
    return f"{folder}{mark}{name}".format(**facts)


def _read_examples(contract: Contract) -> Iterator[tuple[str, str]]:
    """(kind, value) of what the schema itself says exists: examples, defaults and choices."""
    for name, raw in list(get_properties(contract).items())[:40]:
        of = resolve_schema(raw, get_input_schema(contract))
        kind = _find_kind(str(name), of)
        if kind is None:
            continue
        for value in _list_values(of):
            plain = isinstance(value, (str, int)) and not isinstance(value, bool)
            if plain and 0 < len(str(value)) <= _LONGEST:
                yield kind, str(value)


def _find_kind(name: str, schema: Schema) -> str | None:
    if schema.get("format") in ("date", "date-time"):
        return "dates"
    if schema.get("format") == "uuid":
        return "ids"
    parts = set(split_identifier(name))
    return next((kind for kind, words in _KIND_OF.items() if parts & words), None)


def _list_values(schema: Schema) -> list[Json]:
    found: list[Json] = []
    for key in ("examples", "enum"):
        more = schema.get(key)
        found += more[:3] if isinstance(more, list) else []
    found += [schema[key] for key in ("example", "default") if key in schema]
    return found[:3]
