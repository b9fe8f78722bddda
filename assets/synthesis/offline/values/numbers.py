"""A plausible number for a parameter: of the size its name speaks of, within its schema."""

import random

from assets.synthesis.common.contract_reading import Slot


def draw_number(slot: Slot, rng: random.Random) -> int | float:
    schema, words = slot.schema, set(slot.words)
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and isinstance(schema.get("exclusiveMinimum"), (int, float)):
        low = schema["exclusiveMinimum"] + 1
    if words & {"latitude", "lat"}:
        return round(rng.uniform(-45, 60), 4)
    if words & {"longitude", "lng", "lon"}:
        return round(rng.uniform(-120, 150), 4)
    if words & {"limit", "max", "count", "size", "num", "top", "first", "head", "tail", "results"}:
        usual = [3, 5, 8, 10, 15, 20, 25, 30, 50, 100]
    elif words & {"page", "level", "depth", "step", "rank", "priority", "position", "day"}:
        usual = [1, 2, 3, 4, 5]
    elif words & {"year"}:
        usual = list(range(2018, 2026))
    elif words & {"width", "height", "pixels"}:
        usual = [640, 720, 800, 1080, 1200, 1280, 1440, 1920]
    elif words & {"seconds", "duration", "timeout", "minutes", "ms", "delay", "time"}:
        usual = [5, 10, 15, 30, 45, 60, 90, 120]
    elif words & {"id", "number", "issue", "pr"}:
        usual = [rng.randint(11, 9999) for _ in range(5)]
    elif words & {"amount", "price", "total", "cost", "budget"}:
        usual = [12.5, 49.9, 75, 120, 250, 499, 1200]
    elif words & {"offset", "start", "skip", "index", "row", "col", "line"}:
        usual = [1, 2, 4, 5, 10, 20, 25]
    else:
        usual = [2, 3, 4, 6, 7, 12, 18, 24, 36, 42, 64, 75, 96, 110, 250]
    low = low if isinstance(low, (int, float)) else min(min(usual), high or 0)
    high = high if isinstance(high, (int, float)) else max(max(usual), low)
    fitting = [n for n in usual if low <= n <= high and n != schema.get("default")]
    value = rng.choice(fitting) if fitting else _draw_between(low, high, rng, slot.type)
    step = schema.get("multipleOf")
    if isinstance(step, (int, float)) and step:
        value = round(value / step) * step
    return int(value) if slot.type == "integer" else value


def _draw_between(low: float, high: float, rng: random.Random, kind: str) -> int | float:
    high = min(high, low + 1000)
    if kind == "integer" or high - low >= 4:
        return rng.randint(int(-(-low // 1)), int(max(high, -(-low // 1))))
    return round(rng.uniform(low, high), 2)
