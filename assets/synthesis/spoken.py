# ruff: noqa: E501  (tables of phrases read better unbroken)
"""Numbers, months and well-known names as people say them.

What belongs here: word lists and the reading of numbers out of folded text.
What does not: deciding whether a value is grounded (`grounding.py`).
"""

import re

from assets.synthesis.lexicon import words_in

_UNITS = {
    word: number
    for number, words in enumerate(
        words_in(
            "zero/nil/null/sifir one/un/uno/um/uma/una/une/ein/eine/einen/bir/satu "
            "two/deux/dos/dois/duas/zwei/iki/dua/due three/trois/tres/drei/uc/tiga/tre "
            "four/quatre/cuatro/quatro/vier/dort/empat/quattro "
            "five/cinq/cinco/funf/bes/lima/cinque six/seis/sechs/alti/enam/sei "
            "seven/sept/siete/sete/sieben/yedi/tujuh eight/huit/ocho/oito/acht/sekiz/delapan "
            "nine/neuf/nueve/nove/neun/dokuz/sembilan ten/dix/diez/dez/zehn/on/sepuluh "
            "eleven/onze/once/elf twelve/douze/doce/doze/zwolf "
            "thirteen/treize/trece/treze/dreizehn fourteen/quatorze/catorce/vierzehn "
            "fifteen/quinze/quince/funfzehn sixteen/seize/dieciseis/sechzehn seventeen/siebzehn "
            "eighteen/achtzehn nineteen/neunzehn"
        )
    )
    for word in words.split("/")
}
del _UNITS["on"]  # Turkish ten, but an English preposition far more often
_TENS = {
    word: (number + 2) * 10
    for number, words in enumerate(
        words_in(
            "twenty/vingt/veinte/vinte/zwanzig/yirmi thirty/trente/treinta/trinta/dreissig/otuz "
            "forty/quarante/cuarenta/quarenta/vierzig/kirk "
            "fifty/cinquante/cincuenta/cinquenta/funfzig/elli "
            "sixty/soixante/sesenta/sessenta/sechzig/altmis seventy/setenta/siebzig/yetmis "
            "eighty/ochenta/oitenta/achtzig/seksen ninety/noventa/neunzig/doksan"
        )
    )
    for word in words.split("/")
}
_SCALES = {
    "hundred": 100, "cent": 100, "cien": 100, "cem": 100, "hundert": 100, "yuz": 100,
    "thousand": 1e3, "mille": 1e3, "mil": 1e3, "tausend": 1e3, "bin": 1e3, "grand": 1e3,
    "million": 1e6, "millions": 1e6, "milyon": 1e6, "billion": 1e9, "dozen": 12,
}  # fmt: skip
_ORDINALS = {
    word: number + 1
    for number, word in enumerate(
        words_in(
            "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
            "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth"
        )
    )
} | {"twentieth": 20, "thirtieth": 30, "fortieth": 40, "fiftieth": 50}
_PHRASES = {
    "a couple": 2, "a pair": 2, "both": 2, "twice": 2, "alone": 1, "once": 1, "a dozen": 12,
    "half a dozen": 6, "half an hour": 30, "quarter of an hour": 15, "a hundred": 100,
    "a thousand": 1000, "half": 0.5, "a week": 7, "fortnight": 14, "a quarter": 0.25, "single": 1,
    "top": 1, "an hour": 1, "a day": 1, "a month": 1, "a year": 1, "cent ": 100, "on ": 10,
}  # fmt: skip
_CHINESE = {char: number for number, char in enumerate("零一二三四五六七八九十")} | {"两": 2}
_DIGITS = re.compile(
    r"(?<![\w.])-?\d{1,3}(?:[,' .]\d{3})+(?:[.,]\d+)?(?!\d)|(?<![\d.])-?\d+(?:[.,]\d+)?"
)
_GLUED = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}

MONTHS = (
    {
        name: number + 1
        for number, names in enumerate(
            words_in(
                "jan/janvier/enero/januar/ocak/gennaio feb/fevrier/febrero/fevereiro/subat "
                "mar/marz/mars/marco apr/avril/abril/nisan may/mai/mayo/maio/mayis jun/juin/haziran "
                "jul/juil/temmuz aug/aout/agosto/agustos sep/set/eylul oct/okt/out/ekim nov/kasim "
                "dec/dez/dic/aralik"
            )
        )
        for name in names.split("/")
    }
    | {f"{number}月": number for number in range(1, 13)}
    | {f"{n}월": n for n in range(1, 13)}
)

RELATIVE_TIME = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday|now|next|last|this|past|coming|week|weekend|month|year"
    r"|ago|monday|tuesday|wednesday|thursday|friday|saturday|sunday|noon|midnight|morning|quarter"
    r"|heute|morgen|gestern|demain|hier|manana|ayer|amanha|ontem|bugun|yarin|dun|besok|kemarin)\b"
    r"|今天|明天|昨天|今日|明日|昨日|上周|下周|오늘|내일|어제"
)

# Names that stand for each other, both ways.
_SAME = [
    "english en eng anglais ingles", "german de deu deutsch allemand aleman", "french fr fra francais",
    "spanish es spa espanol", "portuguese pt por portugues", "italian it ita italiano",
    "japanese ja jpn japan jp", "chinese zh zho mandarin china cn", "korean ko kor korea kr",
    "russian ru rus russia", "turkish tr tur turkce turkey turkiye", "arabic ar ara",
    "dutch nl nld netherlands", "polish pl pol poland", "swedish sv swe sweden se",
    "germany de deutschland", "france fr", "spain es", "italy it", "portugal pt", "brazil br brasil",
    "india in", "canada ca", "australia au", "mexico mx", "norway no", "finland fi", "denmark dk",
    "austria at", "switzerland ch", "belgium be", "ireland ie", "usa us america", "uk gb britain",
    "euro eur euros €", "dollar usd dollars $ bucks", "pound gbp pounds sterling £", "yen jpy ¥",
    "franc chf francs", "lira try liras", "rupee inr rupees", "won krw", "yuan cny rmb renminbi",
    "bitcoin btc", "ethereum eth ether", "solana sol", "dogecoin doge", "cardano ada", "ripple xrp",
    "litecoin ltc", "tether usdt", "apple aapl", "microsoft msft", "nvidia nvda", "tesla tsla",
    "amazon amzn", "google googl goog alphabet", "netflix nflx", "meta facebook",
    "celsius metric c", "fahrenheit imperial f", "python py", "javascript js", "typescript ts",
    "descending desc newest latest highest", "ascending asc oldest lowest", "weekly week weeks",
    "monthly month months", "daily day days", "yearly year annual annually years", "hourly hour hours",
    "picture image photo",
]  # fmt: skip
_SPELLED = {
    "new york": "ny nyc", "united states": "us usa", "united kingdom": "uk gb", "south korea": "kr ko",
    "los angeles": "la lax", "san francisco": "sf sfo", "black and white": "grayscale",
    "new zealand": "nz", "hong kong": "hk", "per cent": "%",
}  # fmt: skip
ALIASES: dict[str, tuple[str, ...]] = {}
for _group in _SAME:
    for _name in _group.split():
        ALIASES[_name] = (*ALIASES.get(_name, ()), *(n for n in _group.split() if n != _name))
_STATES = words_in(
    "alabama al alaska ak arizona az arkansas ar california ca colorado co connecticut "
    "ct delaware de florida fl georgia ga hawaii hi idaho id illinois il indiana in "
    "iowa ia kansas ks kentucky ky louisiana la maine me maryland md massachusetts ma "
    "michigan mi minnesota mn mississippi ms missouri mo montana mt nebraska ne nevada "
    "nv ohio oh oklahoma ok oregon or pennsylvania pa tennessee tn texas tx utah ut "
    "vermont vt virginia va wisconsin wi wyoming wy"
)
ALIASES |= {name: tuple(codes.split()) for name, codes in _SPELLED.items()}
for _name, _code in zip(_STATES[::2], _STATES[1::2], strict=True):
    ALIASES[_name] = (*ALIASES.get(_name, ()), _code)
for _name in (
    "in",
    "or",
    "it",
    "no",
    "at",
    "be",
    "a",
    "c",
    "f",
    "de",
    "es",
    "as",
    "on",
    "ca",
    "sol",
):
    ALIASES.pop(_name, None)  # everyday words


def numbers_in(folded: str) -> set[float]:
    """Every number the folded text states, in digits or words (several languages)."""
    found: set[float] = set()
    for match in _DIGITS.finditer(folded):
        found |= _readings(match.group(), folded[match.end() : match.end() + 9])
    for match in re.finditer(r"(?<![\d.])(?<!\s-)\d+(?:\.\d+)?|\d+", folded):  # ids, times, 12x34
        if not re.search(r"[\s(,:]-\d*$", folded[: match.end()]):
            found.add(float(match.group()))
    found |= _worded(re.findall(r"[a-z]+", folded.replace("-", " ")))
    found |= {float(value) for phrase, value in _PHRASES.items() if f" {phrase}" in f" {folded} "}
    found |= {float(value) for char, value in _CHINESE.items() if char in folded}
    for match in re.finditer(r"(\d+(?:\.\d+)?)\s*(k|m|g|b)\b", folded):
        found.add(float(match.group(1)) * _GLUED[match.group(2)])
    return found | {-number for number in found if "minus" in folded}


def _readings(digits: str, after: str) -> set[float]:
    plain = digits.replace("'", "").replace(" ", "")
    # Both conventions: 1,000.5 and 1.000,5; what does not parse in one is the other.
    readings = (plain.replace(",", ""), plain.replace(".", "").replace(",", "."))
    numbers = {float(reading) for reading in readings if reading.count(".") <= 1}
    numbers |= {float(part) for part in digits.split() if re.fullmatch(r"-?\d+", part)}
    following = re.match(r"\s*([a-z]+)", after)
    scale = _SCALES.get(following.group(1)) if following else None
    return numbers | ({number * scale for number in numbers} if scale else set())


def _worded(words: list[str]) -> set[float]:
    """Numbers in words: each part, and what each run of them says ("two hundred and six")."""
    found: set[float] = set()
    run: list[float | str] = []
    for word in [*words, ""]:
        value = _value(word)
        if value is not None or (word in _SCALES and (run or word in _BARE_SCALES)):
            run.append(word if value is None else value)
            found |= set() if value is None else {value}
            if word in _ORDINALS:  # an ordinal ends its number: "the twenty-first one"
                found |= _said(run)
                run = []
        elif run and word not in ("and", "y", "e", "et", "und"):
            found |= _said(run)
            run = []
    return found


_BARE_SCALES = {"hundred", "thousand", "cent", "mil"}


def _value(word: str) -> float | None:
    for table in (_UNITS, _ORDINALS, _TENS):
        if word in table:
            return float(table[word])
    return next((float(n) for t, n in _TENS.items() if word == t[:-1] + "ieth"), None)


def _said(run: list[float | str]) -> set[float]:
    """What a run of number words can mean: a sum with scales, or two halves of a year."""
    total, current = 0.0, 0.0
    for part in run:
        if isinstance(part, str):
            current = (current or 1.0) * _SCALES[part]
            if _SCALES[part] >= 1000:
                total, current = total + current, 0.0
        else:
            current += part
    found = {total + current}
    plain = [part for part in run if isinstance(part, float)]
    if len(plain) == len(run) and 10 < plain[0] < 100:
        found.add(plain[0] * 100 + sum(plain[1:]))  # nineteen ninety-six
        if len(plain) > 2 and plain[0] % 10 == 0:
            found.add((plain[0] + plain[1]) * 100 + sum(plain[2:]))  # twenty twenty-five
    return found
