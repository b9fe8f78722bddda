# ruff: noqa: E501  (tables of names read better unbroken)
"""Names that stand for each other: languages, countries, currencies, units, tickers, directions."""

import re
from functools import cache

from assets.synthesis.verify.grounding.folding import fold
from assets.vectors.lexicon import words_in

# Names that stand for each other, both ways.
_SAME = [
    "english en eng anglais ingles englisch british", "german de deu deutsch allemand aleman alemao tedesco almanca", "french fr fra francais franzosisch frances",
    "spanish es spa espanol espagnol spanisch", "portuguese pt por portugues", "italian it ita italiano italienisch italien italyanca", "japanese ja jpn japan jp japanisch japones japonais giapponese japonca",
    "chinese zh zho chinesisch chino chinois cinese cince mandarin china cn zhcn zhhans", "korean ko kor korea kr", "russian ru rus russia russisch ruso russe rusca", "turkish tr tur turkce turkey turkiye", "arabic ar ara arabisch arabe arapca",
    "dutch nl nld netherlands", "polish pl pol poland", "swedish sv swe sweden se", "norwegian nb nn nor norway", "danish da dan denmark dk", "finnish fi fin finland",
    "greek el ell greece gr", "czech cs ces czechia cz", "hungarian hu hun hungary", "romanian ro ron romania", "ukrainian uk ukr ukraine ua", "bulgarian bg bul bulgaria",
    "croatian hr hrv croatia", "serbian sr srp serbia", "slovak sk slk slovakia", "hebrew he heb israel il", "hindi hi hin", "bengali bn ben", "tamil ta tam", "urdu ur urd",
    "persian fa fas farsi iran ir", "thai th tha thailand", "vietnamese vi vie vietnam vn", "indonesian ind indonesia bahasa", "malay ms msa malaysia my", "catalan cat",
    "germany de deutschland", "france fr", "spain es", "italy it", "portugal pt", "brazil br brasil brazilian",
    "india in indian", "canada ca canadian", "australia au australian", "mexico mx mexican", "norway no", "finland fi", "denmark dk",
    "austria at austrian", "switzerland ch swiss", "belgium be belgian", "ireland ie irish", "usa us america american", "uk gb britain british england",
    "euro eur euros €", "dollar usd dollars $ bucks", "pound gbp pounds sterling £ quid", "yen jpy ¥", "franc chf francs", "lira try liras", "rupee inr rupees", "won krw",
    "yuan cny rmb renminbi", "krona sek kronor", "krone nok kroner kr", "zloty pln zlotys", "real brl reais", "rand zar", "peso mxn pesos", "shekel ils shekels", "ruble rub rubles",
    "bitcoin btc xbt", "ethereum eth ether", "solana sol", "dogecoin doge", "cardano ada", "ripple xrp", "litecoin ltc", "tether usdt", "polkadot dot", "avalanche avax", "chainlink link",
    "apple aapl", "microsoft msft", "nvidia nvda", "tesla tsla", "amazon amzn", "google googl goog alphabet gcs gcp", "netflix nflx", "meta facebook", "intel intc", "disney dis", "boeing ba", "walmart wmt",
    "celsius metric c centigrade", "fahrenheit imperial f", "python py", "javascript js", "typescript ts", "kubernetes k8s", "postgres postgresql pg", "markdown md", "golang go",
    "weekly week weeks 1w", "monthly month months", "daily day days 1d", "yearly year annual annually years", "hourly hour hours 1h", "minutely minute minutes",
    "picture image photo", "movie film", "jpeg jpg", "html webpage", "ascending asc", "descending desc",
    "tablespoon tablespoons tbsp", "teaspoon teaspoons tsp", "litre liter litres liters l", "millilitre milliliter millilitres milliliters ml", "kilogram kilograms kilo kilos kg", "gram grams gramme g", "milligram mg milligrams",
    "pound pounds lb lbs", "ounce ounces oz", "kilometre kilometer kilometres kilometers km kms klicks", "mile miles mi", "metre meter metres meters m", "centimetre centimeter centimetres centimeters cm",
    "millimetre millimeter mm millimetres millimeters", "foot feet ft", "inch inches", "yard yards yd", "gallon gallons gal", "pint pints pt", "quart quarts qt", "cup cups",
    "megabyte megabytes mb meg megs", "gigabyte gigabytes gb gig gigs", "terabyte terabytes tb", "kilobyte kilobytes kb", "hertz hz", "kilohertz khz", "megahertz mhz", "gigahertz ghz", "kelvin k", "knots knot kn kt",
    "second seconds sec secs s", "minute minutes min mins", "hour hours hr hrs h", "percent percentage pct", "watt watts w", "kilowatt kw kilowatts", "joule joules j", "calorie calories cal kcal", "acre acres", "hectare hectares ha",
]  # fmt: skip
_SPELLED = {
    "new york": "ny nyc", "united states": "us usa", "united kingdom": "uk gb", "south korea": "kr ko",
    "los angeles": "la lax", "san francisco": "sf sfo", "black and white": "grayscale", "traditional chinese": "cht zhtw zhhant tw", "simplified chinese": "chs zhcn zhhans",
    "new zealand": "nz", "hong kong": "hk", "per cent": "%", "google cloud": "gcs gcp", "brazilian portuguese": "ptbr", "british english": "engb", "american english": "enus",
}  # fmt: skip
_STATES = words_in(
    "alabama al alaska ak arizona az arkansas ar california ca colorado co connecticut "
    "ct delaware de florida fl georgia ga hawaii hi idaho id illinois il indiana in "
    "iowa ia kansas ks kentucky ky louisiana la maine me maryland md massachusetts ma "
    "michigan mi minnesota mn mississippi ms missouri mo montana mt nebraska ne nevada "
    "nv ohio oh oklahoma ok oregon or pennsylvania pa tennessee tn texas tx utah ut "
    "vermont vt virginia va wisconsin wi wyoming wy"
)
# Everyday words: as a name in a text they say nothing.
_EVERYDAY = words_in(
    "in or it no at be a c f de es as on ca sol my s h l m g k j w ha go se link dot dis cat he me hi id la pa ok oh us real pound second meter cup won try rand gal min"
)


def _aliases() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for group in _SAME:
        names = group.split()
        for name in names:
            found[name] = (*found.get(name, ()), *(other for other in names if other != name))
    found |= {name: tuple(codes.split()) for name, codes in _SPELLED.items()}
    for name, code in zip(_STATES[::2], _STATES[1::2], strict=True):
        found[name] = (*found.get(name, ()), code)
    return found


# What a value may be called in a text.
NAMES = _aliases()
# What a word of a text may stand for.
ALIASES = {name: codes for name, codes in NAMES.items() if name not in _EVERYDAY}


_RENAMED = {
    "Asia/Kolkata": "Asia/Calcutta", "Asia/Ho_Chi_Minh": "Asia/Saigon", "Europe/Kyiv": "Europe/Kiev",
    "Asia/Kathmandu": "Asia/Katmandu", "Asia/Yangon": "Asia/Rangoon",
}  # fmt: skip


@cache
def _world() -> tuple[dict[str, str], dict[str, set[str]], dict[str, set[str]]]:
    """Currency code -> name; country code -> names of it; time zone -> names of its places."""
    from faker.providers.currency import Provider as Currency
    from faker.providers.date_time import Provider as Countries

    currencies = {code.lower(): fold(name) for code, name in Currency.currencies}
    countries: dict[str, set[str]] = {}
    zones: dict[str, set[str]] = {}
    for country in Countries.countries:
        names = {" ".join(re.findall(r"\w+", fold(n))) for n in (country.name, country.capital)}
        names -= {""}
        for code in (country.alpha_2_code, country.alpha_3_code):
            countries.setdefault(code.lower(), set()).update(names)
        for zone in country.timezones if len(country.timezones) < 3 else ():
            zones.setdefault(zone, set()).update(names)
    for now, before in _RENAMED.items():
        zones.setdefault(now, set()).update(zones.get(before, ()))
    return currencies, countries, zones


def called(value: str, spaced: str, tokens: set[str]) -> bool:
    """Whether a text speaks of what a code stands for: NOK, BR, BRA, America/Sao_Paulo."""
    if not 2 <= len(value) <= 40 or not value.isascii():
        return False
    currencies, countries, zones = _world()
    code = value.lower()
    if code in currencies and len(code) == 3:
        words = re.findall(r"\w+", currencies[code])
        if words and all(_meant(word, tokens) for word in words):
            return True
    names = countries.get(code, set()) | zones.get(value, set())
    return any(f" {name} " in spaced for name in names)


def _meant(word: str, tokens: set[str]) -> bool:
    """A word or its inflection: krone, kroner; pound, pounds."""
    return word in tokens or any(
        len(t) > 3 and t[:4] == word[:4] and abs(len(t) - len(word)) < 3 for t in tokens
    )


_UP = re.compile(
    r"\b(?:oldest|lowest|smallest|cheapest|least|fewest|earliest|shortest|nearest|closest|first to last"
    r"|alphabetical\w*|a to z|a-z|ascending|rising|increasing|growing|low to high)\b"
)
_DOWN = re.compile(
    r"\b(?:newest|latest|highest|biggest|largest|greatest|most|top|priciest|dearest|longest|best|recent"
    r"|descending|falling|decreasing|heaviest|busiest|reverse|z to a|high to low|last to first|freshest|strongest)\b"
)


def directed(value: str, folded: str) -> bool:
    """Whether a sort direction (asc, Descending) is what a superlative of the text says."""
    pattern = {"asc": _UP, "ascending": _UP, "desc": _DOWN, "descending": _DOWN}.get(value)
    return pattern is not None and pattern.search(folded) is not None
