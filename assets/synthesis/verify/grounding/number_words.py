# ruff: noqa: E501  (tables of phrases read better unbroken)
"""Numbers as people say and write them, in several languages and scripts."""

import re
from collections.abc import Iterator

from assets.synthesis.verify.grounding.folding import fold
from assets.vectors.lexicon import words_in

_UNITS = {
    word: number
    for number, words in enumerate(
        words_in(
            "zero/nil/null/sifir/nul/noll/oh/ноль/нуль/صفر/शून्य one/un/uno/um/uma/una/une/ein/eine/einen/eins/bir/satu/een/jeden/en/один/одна/одну/واحد/एक "
            "two/deux/dos/dois/duas/zwei/zwo/iki/dua/due/twee/dwa/dwie/tva/два/две/اثنان/اثنين/दो three/trois/tres/drei/uc/tiga/tre/drie/trzy/три/ثلاثة/ثلاث/तीन "
            "four/quatre/cuatro/quatro/vier/dort/empat/quattro/cztery/fyra/четыре/اربعة/اربع/चार "
            "five/cinq/cinco/funf/bes/lima/cinque/vijf/piec/fem/пять/خمسة/خمس/पांच six/seis/sechs/alti/enam/sei/zes/szesc/шесть/ستة/ست/छह "
            "seven/sept/siete/sete/sieben/yedi/tujuh/sette/zeven/siedem/sju/семь/سبعة/سبع/सात eight/huit/ocho/oito/acht/sekiz/delapan/otto/osiem/atta/восемь/ثمانية/ثماني/आठ "
            "nine/neuf/nueve/nove/neun/dokuz/sembilan/negen/dziewiec/nio/девять/تسعة/تسع/नौ ten/dix/diez/dez/zehn/on/sepuluh/dieci/tien/dziesiec/tio/десять/عشرة/عشر/दस "
            "eleven/onze/once/elf/undici/jedenascie/одиннадцать twelve/douze/doce/doze/zwolf/dodici/twaalf/dwanascie/двенадцать "
            "thirteen/treize/trece/treze/dreizehn/tredici/тринадцать fourteen/quatorze/catorce/catorze/vierzehn/quattordici/четырнадцать "
            "fifteen/quinze/quince/funfzehn/quindici/vijftien/pietnascie/пятнадцать sixteen/seize/dieciseis/dezesseis/sechzehn/sedici/шестнадцать seventeen/diecisiete/dezessete/siebzehn/diciassette/семнадцать "
            "eighteen/dieciocho/dezoito/achtzehn/diciotto/восемнадцать nineteen/diecinueve/dezenove/neunzehn/diciannove/девятнадцать"
        )
    )
    for word in map(fold, words.split("/"))
}
del _UNITS["on"]  # Turkish ten, but an English preposition far more often
_TENS = {
    fold(word): (number + 2) * 10
    for number, words in enumerate(
        words_in(
            "twenty/vingt/veinte/vinte/zwanzig/yirmi/venti/twintig/двадцать/عشرين/عشرون/बीस thirty/trente/treinta/trinta/dreissig/otuz/trenta/dertig/тридцать/ثلاثين/ثلاثون/तीस "
            "forty/quarante/cuarenta/quarenta/vierzig/kirk/quaranta/veertig/сорок/اربعين/اربعون "
            "fifty/cinquante/cincuenta/cinquenta/funfzig/elli/cinquanta/vijftig/пятьдесят/خمسين/خمسون/पचास "
            "sixty/soixante/sesenta/sessenta/sechzig/altmis/sessanta/zestig/шестьдесят/ستين seventy/setenta/siebzig/yetmis/settanta/zeventig/семьдесят/سبعين "
            "eighty/ochenta/oitenta/achtzig/seksen/ottanta/tachtig/восемьдесят/ثمانين ninety/noventa/neunzig/doksan/novanta/negentig/девяносто/تسعين"
        )
    )
    for word in words.split("/")
}
_SCALES = {
    "hundred": 100, "hundreds": 100, "hundredth": 100, "cent": 100, "cents": 100, "cien": 100, "ciento": 100, "cem": 100, "cento": 100, "hundert": 100, "yuz": 100, "honderd": 100, "ratus": 100, "сто": 100, "مئة": 100, "مية": 100, "सौ": 100,
    "thousand": 1e3, "thousands": 1e3, "thousandth": 1e3, "mille": 1e3, "mil": 1e3, "tausend": 1e3, "bin": 1e3, "grand": 1e3, "mila": 1e3, "duizend": 1e3, "ribu": 1e3, "тысяча": 1e3, "тысячи": 1e3, "тысяч": 1e3, "الف": 1e3, "हजार": 1e3,
    "million": 1e6, "millions": 1e6, "milyon": 1e6, "millionen": 1e6, "millones": 1e6, "milhoes": 1e6, "milioni": 1e6, "juta": 1e6, "mio": 1e6, "billion": 1e9, "milliard": 1e9, "milliarde": 1e9, "milliarden": 1e9, "trillion": 1e12,
    "dozen": 12, "dozens": 12, "docena": 12, "duzia": 12, "douzaine": 12, "dutzend": 12, "duzine": 12, "lakh": 1e5, "crore": 1e7,
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
    "a couple": 2, "a pair": 2, "both": 2, "twice": 2, "double": 2, "alone": 1, "once": 1, "a dozen": 12, "triple": 3, "thrice": 3, "trio": 3,
    "half a dozen": 6, "half a hundred": 50, "a gross": 144, "half an hour": 30, "quarter of an hour": 15, "three quarters": 0.75, "three-quarters": 0.75,
    "media docena": 6, "meia duzia": 6, "une demi-douzaine": 6, "ein halbes dutzend": 6, "halbes dutzend": 6, "mezza dozzina": 6, "yarim duzine": 6,
    "a hundred": 100, "a thousand": 1000, "a million": 1e6, "a billion": 1e9, "half": 0.5, "a week": 7, "fortnight": 14, "a quarter": 0.25, "single": 1,
    "top": 1, "just me": 1, "only me": 1, "myself": 1, "no": 0, "none": 0, "without": 0, "cent ": 100, "on ": 10, "full hd": 1080, "full-hd": 1080, "a third": 1 / 3, "half a year": 180, "half year": 180, "half a day": 12,
}  # fmt: skip
_SIZES = {"full hd": 1920, "full-hd": 1920, "1080p": 1920, "4k": 3840, "720p": 1280}
_A_UNIT = re.compile(
    r"\b(?:an?|per|every|each|one|eine[nr]?|une?|una|uno|um|uma|bir)[ -](?:minute|hour|second|day|week|month|year"
    r"|moment|tag|woche|stunde|minuto?|hora|heure|semaine|semana|dia|jour|saat|gun|hafta|ora|giorno)\b"
)
_DIGITS = re.compile(
    r"(?<![\w.])-?\d{1,3}(?:[,' .]\d{3}){1,9}(?:[.,]\d{1,30})?(?!\d)|(?<![\d.])-?\d{1,40}(?:[.,]\d{1,30})?"
)
_POWERS = re.compile(
    r"(?<![\d.])(-?\d{1,30}(?:\.\d{1,30})?)\s?(?:e|(?:x|×|\*|·)\s?10\s?\^?)\s?([+-]?\d{1,3})\b"
)
_GLUED = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "bn": 1e9, "mm": 1e6, "t": 1e12}
_MOST = 5000  # numbers read out of one text; nobody says more, and a dump of digits is no request


def numbers_in(folded: str) -> set[float]:
    """Every number the folded text states, in digits or words (several languages)."""
    found: set[float] = set()
    for match in _few(_DIGITS.finditer(folded)):
        found |= _readings(match.group(), folded[match.end() : match.end() + 12])
    for match in _few(
        re.finditer(r"(?<![\d.])(?<!\s-)\d{1,40}(?:\.\d{1,30})?|\d{1,40}", folded)
    ):  # 12x34, ids
        if not re.search(r"[\s(,:]-\d*$", folded[max(0, match.end() - 40) : match.end()]):
            found.add(float(match.group()))
    for match in _few(_POWERS.finditer(folded)):
        found.add(float(f"{match.group(1)}e{match.group(2)}"))
    for match in _few(
        re.finditer(r"(?<![\d.,])(\d{1,30}(?:[.,]\d{1,30})?)\s?(k|mm?|g|bn?|t)\b", folded)
    ):
        found.add(float(match.group(1).replace(",", ".")) * _GLUED[match.group(2)])
    words = re.findall(r"[^\W\d_]+", folded.replace("-", " "))
    found |= _worded(words) | _decimals(words) | _spelled(words) | set(_chinese(folded))
    spaced = f" {folded} "
    found |= {float(n) for phrase, n in _PHRASES.items() if f" {phrase}" in spaced}
    found |= {float(n) for phrase, n in _SIZES.items() if phrase in spaced}
    found |= {1.0} if _A_UNIT.search(folded) else set()
    found |= _halves(folded, words)
    return found | {-number for number in found if re.search(r"\bminus\b", folded)}


def ranges_in(folded: str) -> list[tuple[float, float]]:
    """Spans of whole numbers that the text names by their ends: "grades 9 to 12", "1-5"."""
    ends = r"(?<!\d)(\d{1,6})\s?(?:-|to|through|until|bis|a|al|ate|jusqu'a|thru|\.\.+|~|〜|到|至|から)\s?(\d{1,6})\b"
    spans = ((float(m.group(1)), float(m.group(2))) for m in _few(re.finditer(ends, folded)))
    return [(low, high) for low, high in spans if 0 < high - low <= 400][:50]


def _few(matches: Iterator[re.Match[str]]) -> Iterator[re.Match[str]]:
    return (match for match, _ in zip(matches, range(_MOST), strict=False))


def _readings(digits: str, after: str) -> set[float]:
    plain = digits.replace("'", "").replace(" ", "")
    # Both conventions: 1,000.5 and 1.000,5; what does not parse in one is the other.
    readings = (plain.replace(",", ""), plain.replace(".", "").replace(",", "."))
    numbers = {float(reading) for reading in readings if reading.count(".") <= 1}
    numbers |= {float(part) for part in digits.split() if re.fullmatch(r"-?\d+", part)}
    following = re.match(r"[\s-]*([^\W\d_]+)", after)
    scale = _SCALES.get(following.group(1)) if following else None
    scale = scale or (1e4 if after.lstrip()[:1] in "万萬만" and after.strip() else None)
    return numbers | ({number * scale for number in numbers} if scale else set())


def _worded(words: list[str]) -> set[float]:
    """Numbers in words: each part, and what each run of them says ("two hundred and six")."""
    found: set[float] = set()
    run: list[float | str] = []
    for word in [*words, ""]:
        value = word_value(word)
        if value is not None or (word in _SCALES and (run or word in _BARE_SCALES)):
            run.append(word if value is None else value)
            found |= set() if value is None else {value}
            if (
                word in _ORDINALS or len(run) > 12
            ):  # an ordinal ends its number: "the twenty-first one"
                found |= _said(run)
                run = []
        elif run and word not in ("and", "y", "e", "et", "und", "en", "и", "و"):
            found |= _said(run)
            run = []
    return found


_BARE_SCALES = {"hundred", "thousand", "cent", "mil", "hundredth", "thousandth", "сто"}


def word_value(word: str) -> float | None:
    """The number that one word says, or None."""
    for table in (_UNITS, _ORDINALS, _TENS):
        if word in table:
            return float(table[word])
    if word.endswith("ieth"):
        return next((float(n) for t, n in _TENS.items() if word == t[:-1] + "ieth"), None)
    return _joined(word)


def _joined(word: str) -> float | None:
    """German and Dutch tens in one word: einundzwanzig, vijfentwintig."""
    if not word.endswith("ig") or len(word) > 30:
        return None
    for link in ("und", "en"):
        for split in re.finditer(link, word):
            unit, ten = word[: split.start()], word[split.end() :]
            if unit in _UNITS and ten in _TENS:
                return float(_UNITS[unit] + _TENS[ten])
    return None


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
    if len(plain) == len(run) and len(plain) > 1 and 0 < plain[0] < 100:
        found.add(plain[0] * 100 + sum(plain[1:]))  # nineteen ninety-six, three forty-two
        if len(plain) > 2 and plain[0] % 10 == 0:
            found.add((plain[0] + plain[1]) * 100 + sum(plain[2:]))  # twenty twenty-five
    return found


def _decimals(words: list[str]) -> set[float]:
    """ "zero point one two", "sixty-five point four", "drei Komma fünf"."""
    found: set[float] = set()
    for place, word in enumerate(words):
        if word not in _POINTS or place == 0 or place + 1 >= len(words):
            continue
        tail = ""
        for digit in words[place + 1 : place + 9]:
            if _UNITS.get(digit, 10) > 9:
                break
            tail += str(_UNITS[digit])
        head = words[max(0, place - 6) : place]
        while head and word_value(head[0]) is None and head[0] not in _SCALES:
            head = head[1:]
        whole = _worded(head)
        if tail and whole:
            found |= {number + float(f"0.{tail}") for number in whole if number == int(number)}
    return {round(number, 8) for number in found}


_POINTS = {
    "point",
    "punto",
    "ponto",
    "komma",
    "virgule",
    "coma",
    "virgula",
    "virgola",
    "nokta",
    "virgul",
    "dot",
}


def _spelled(words: list[str]) -> set[float]:
    """Digits said one by one: "two oh two", "eins null eins sieben acht"."""
    return {float(digits) for digits in digits_said(words) if len(digits) < 16}


def digits_said(words: list[str]) -> list[str]:
    """Runs of two or more digits said one by one, as they would be written."""
    runs, run = list[str](), ""
    for word in [*words, ""]:
        digit = _UNITS.get(word, 10)
        if digit < 10:
            run += str(digit)
        else:
            if len(run) > 1:
                runs.append(run)
            run = ""
    return runs


def _halves(folded: str, words: list[str]) -> set[float]:
    """ "two and a half", "a minute and a half", "anderthalb", "zweieinhalb"."""
    found: set[float] = set()
    for match in re.finditer(
        r"\b(\w{1,20})(?:[ -](\w{1,20}))? (?:and a half|y medio|y media|e meia|e meio|et demie?|e mezzo)\b",
        folded,
    ):
        for word in match.groups():
            value = (
                float(word)
                if (word or "").isdecimal() and len(word) < 9
                else word_value(word or "")
            )
            found |= {value + 0.5} if value is not None else set()
            found |= {18.0} if word == "dozen" else set()
        found |= {1.5} if match.group(2) else set()
    found |= {1.5} if "anderthalb" in folded or "eineinhalb" in folded else set()
    return found | {
        _UNITS[w[:-7]] + 0.5 for w in words if w.endswith("einhalb") and w[:-7] in _UNITS
    }


_HAN = {char: number for number, char in enumerate("零一二三四五六七八九")} | {
    "两": 2,
    "兩": 2,
    "〇": 0,
}
_HAN_SCALES = {
    "十": 10,
    "百": 100,
    "千": 1000,
    "万": 10_000,
    "萬": 10_000,
    "亿": 10**8,
    "億": 10**8,
}
_NATIVE = {  # Japanese and Korean counting words
    "一つ": 1, "二つ": 2, "三つ": 3, "四つ": 4, "五つ": 5, "六つ": 6, "七つ": 7, "八つ": 8, "九つ": 9, "ひとつ": 1, "ふたつ": 2, "みっつ": 3, "よっつ": 4, "いつつ": 5,
    "하나": 1, "한 ": 1, "둘": 2, "두 ": 2, "셋": 3, "세 ": 3, "넷": 4, "네 ": 4, "다섯": 5, "여섯": 6, "일곱": 7, "여덟": 8, "아홉": 9, "열 ": 10, "스무": 20,
}  # fmt: skip
_NATIVE = {fold(word): number for word, number in _NATIVE.items()}


def _chinese(folded: str) -> Iterator[float]:
    """Numbers in Chinese characters (三百二十, 二〇二五) and native counting words."""
    if folded.isascii():
        return
    for match in re.finditer(rf"[{''.join(_HAN)}{''.join(_HAN_SCALES)}]{{1,20}}", folded):
        run = match.group()
        yield from (float(_HAN.get(char, _HAN_SCALES.get(char, 0))) for char in run)
        if all(char in _HAN for char in run):
            yield float("".join(str(_HAN[char]) for char in run))
            continue
        total, section, digit = 0, 0, 0
        for char in run:
            if char in _HAN:
                digit = _HAN[char]
            elif _HAN_SCALES[char] >= 10_000:
                total, section, digit = total + (section + digit or 1) * _HAN_SCALES[char], 0, 0
            else:
                section, digit = section + (digit or 1) * _HAN_SCALES[char], 0
        yield float(total + section + digit)
    yield from (float(number) for word, number in _NATIVE.items() if word in folded)
