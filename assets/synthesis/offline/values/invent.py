"""Making one value of a sort: from its pool, put together, or from a simple pattern."""

import datetime as dt
import random
from functools import cache
from typing import Any

from assets.synthesis.common.contract_reading import Slot
from assets.synthesis.offline.values.kinds import choose_themed_sort
from assets.vectors.lexicon import list_pool, split_list
from warehouse.json_types import Json

# Where the calendar of invented dates starts; a fixed day keeps every run reproducible.
_EPOCH = dt.date(2025, 3, 3)


# Names and addresses of several languages, all in Latin letters, as texts in English hold them.
_LOCALES = split_list("en_US en_GB de_DE es_ES fr_FR it_IT nl_NL pl_PL sv_SE pt_BR")


@cache
def get_faker(locale: str) -> Any:
    """One generator a locale: making one costs 30 ms, seeding it nothing."""
    from faker import Faker

    return Faker(locale)


def draw_fake(sort: str, rng: random.Random, locale: str | None = None) -> str:
    """One value of Faker's, the same for the same state of `rng`."""
    faker = get_faker(locale or rng.choice(_LOCALES))
    faker.seed_instance(rng.getrandbits(64))
    if sort == "town":  # Faker's `city` makes names up in English; these places exist
        return faker.location_on_land()[2]
    if sort == "address":
        # Not `city`: the Italian one draws from a set, whose order changes from run to run.
        return f"{' '.join(faker.street_address().split())}, {rng.choice(list_pool('city'))}"
    return str(getattr(faker, sort)())


_EXTENSIONS = {
    "excel": "xlsx", "workbook": "xlsx", "sheet": "xlsx", "pdf": "pdf", "word doc": "docx",
    "image": "png", "screenshot": "png", "video": "mp4", "audio": "mp3", "csv": "csv",
    "markdown": "md", "python": "py",
}  # fmt: skip


def invent_value(sort: str, rng: random.Random, slot: Slot | None = None) -> str:
    """One value of a sort: from its pool, or made."""

    def pick(name: str) -> str:
        return rng.choice(list_pool(name))

    def either(faked: str, locale: str | None = None) -> str:
        """Half well-known ones, half of Faker's many."""
        return pick(sort) if rng.random() < 0.5 else draw_fake(faked, rng, locale)

    def number(low: int, high: int) -> int:
        return rng.randint(low, high)

    day = _EPOCH + dt.timedelta(days=rng.randint(0, 420))
    extension = rng.choice(["csv", "md", "txt", "json", "pdf", "xlsx", "docx", "yaml"])
    about = f"{slot.about} {slot.hint}".lower() if slot else ""
    extension = next((to for mark, to in _EXTENSIONS.items() if mark in about), extension)
    home = f"/home/{pick('first').lower().replace('á', 'a')}/{pick('folder')}"
    hexes = "".join(rng.choice("0123456789abcdef") for _ in range(24))
    makers = {
        "date": day.isoformat,
        "datetime": lambda: f"{day}T{number(7, 19):02d}:{15 * number(0, 3):02d}:00Z",
        "time": lambda: f"{number(6, 22):02d}:{5 * number(0, 11):02d}",
        "email": lambda: f"{pick('first')}.{pick('last')}@{pick('domain')}".lower()
        .encode("ascii", "ignore").decode(),  # of domains kept for examples: nobody's address
        "url": lambda: f"https://{pick('domain')}/{pick('slug')}",
        "image_url": lambda: f"https://{pick('domain')}/img/{pick('stem')}.png",
        "path": lambda: f"{home}/{pick('stem')}.{extension}",
        "image_path": lambda: f"{home}/{pick('stem')}.png",
        "video_path": lambda: f"{home}/{pick('stem')}.mp4",
        "folder_path": lambda: f"{home}/{pick('project')}",
        "repo_path": lambda: f"{home}/{pick('repo')}",
        "filename": lambda: f"{pick('stem')}.{extension}",
        "person": lambda: f"{invent_value('first', rng)} {invent_value('last', rng)}",
        "first": lambda: draw_fake("first_name", rng),
        "last": lambda: draw_fake("last_name", rng),
        "username": lambda: either("user_name"),
        "company": lambda: either("company"),
        "city": lambda: pick("city") if rng.random() < 0.5 else draw_fake("town", rng, "en_US"),
        "address": lambda: draw_fake("address", rng),
        "ip": lambda: draw_fake("ipv4_public", rng, "en_US"),
        "color": lambda: draw_fake("hex_color", rng, "en_US"),
        "color_name": lambda: draw_fake("color_name", rng, "en_US"),
        "timezone": lambda: either("timezone"),
        "currency": lambda: either("currency_code"),
        "language": lambda: either("language_name", "en_US"),
        "job": lambda: draw_fake("job", rng, "en_GB").lower(),
        "isbn": lambda: draw_fake("isbn13", rng, "en_US"),
        "iban": lambda: draw_fake("iban", rng, "en_GB"),
        "vin": lambda: draw_fake("vin", rng, "en_US"),
        "mac": lambda: draw_fake("mac_address", rng, "en_US"),
        "tx_hash": lambda: f"0x{draw_fake('sha256', rng, 'en_US')}",
        "wallet": lambda: f"0x{draw_fake('sha1', rng, 'en_US')}",
        "public_key": lambda: "".join(rng.choice(_BASE58) for _ in range(44)),
        "doi": lambda: f"10.{number(1000, 9999)}/{pick('project')}.{number(10000, 99999)}",
        "phone": lambda: f"+1 202-555-01{rng.randint(10, 99)}",
        "zip": lambda: draw_fake("postcode", rng, "en_US"),
        "uuid": lambda: draw_fake("uuid4", rng, "en_US"),
        "sha": lambda: rng.choice([hexes[:7], "HEAD", "HEAD~2", pick("branch")]),
        "id": lambda: rng.choice(
            [str(rng.randint(1000, 99999)), f"{pick('project')[:3]}-{rng.randint(10, 999)}",
             str(rng.randint(10**8, 10**9))]),
        "token": lambda: f"{pick('project')}{rng.randint(10, 99)}",
        "slug_key": lambda: f"{pick('project')}:{pick('stem')}",
        "account": lambda: str(rng.randint(10**7, 10**8)),
        "issue_key": lambda: f"{pick('project')[:4].upper()}-{rng.randint(2, 980)}",
        "project_key": lambda: pick("project")[:4].upper(),
        "arxiv_id": lambda: f"2{number(0, 5)}{number(1, 12):02d}.{number(1000, 19999):05d}",
        "order_id": lambda: f"{pick('project')[:2].upper()}{rng.randint(10**7, 10**8)}",
        "session": lambda: f"{pick('project')}-{rng.randint(2, 60)}",
        "connection_id": lambda: f"{pick('environment')}-{rng.randint(2, 60)}",
        "connection_string": lambda: f"mongodb://{pick('domain')}:27017/{pick('database')}",
        "jql": lambda: f"project = {pick('project')[:4].upper()} AND status = {pick('stem')}",
        "cql": lambda: f"type = page AND title ~ \"{pick('stem')}\"",
        "emoji": lambda: rng.choice(["📌", "🚀", "🌱", "📚"]),
        "user_agent": lambda: draw_fake("user_agent", rng, "en_US"),
        "secret": lambda: f"key-{hexes[:10]}",
        "stage": lambda: pick("status"),
        "span": lambda: f"{rng.randint(1, 6)}h {rng.choice((15, 20, 30, 45))}m",
        "amount": lambda: f"{rng.choice((5, 12.5, 20, 49.9, 75, 120, 250, 480))}",
        "small_number": lambda: str(rng.randint(3, 900)),
    }  # fmt: skip
    if sort in ("topic", "project") and slot is not None:
        sort = choose_themed_sort(slot, sort)
    return makers[sort]() if sort in makers else pick(sort)


_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def make_from_pattern(pattern: str, rng: random.Random) -> str | None:
    """A string that a simple regular expression describes, or None."""
    from re import _parser as parser  # type: ignore[attr-defined]  # how `re` reads a pattern

    try:
        return _write_parsed(parser.parse(pattern), rng)
    except Exception:  # features beyond literals, sets and repeats
        return None


_LONGEST = 200  # characters; a longer pattern is no identifier


def _write_parsed(parsed: Json, rng: random.Random) -> str:
    text = ""
    for op, arg in parsed:
        if len(text) > _LONGEST:
            raise ValueError("too long")
        name = str(op)
        if name == "LITERAL":
            text += chr(arg)
        elif name == "ANY":
            text += "a"
        elif name == "IN":
            text += _draw_member(arg, rng)
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, sub = arg
            if int(low) > _LONGEST:
                raise ValueError("too long")
            times = rng.randint(int(low), min(int(high), int(low) + 5))
            text += "".join(_write_parsed(sub, rng) for _ in range(times))
        elif name == "SUBPATTERN":
            text += _write_parsed(arg[3], rng)
        elif name == "BRANCH":
            text += _write_parsed(rng.choice(arg[1]), rng)
        elif name != "AT":
            raise ValueError(name)
    return text


def _draw_member(options: Json, rng: random.Random) -> str:
    op, arg = rng.choice(options)
    if str(op) == "LITERAL":
        return chr(arg)
    if str(op) == "RANGE":
        return chr(rng.randint(arg[0], arg[1]))
    kinds = {"CATEGORY_DIGIT": "0123456789", "CATEGORY_WORD": "abcdefgh", "CATEGORY_SPACE": " "}
    return rng.choice(kinds[str(arg)])
