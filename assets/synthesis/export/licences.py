"""Whether a licence is known to permit commercial use."""

from functools import cache

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

# Approved by the Open Source Initiative (its sixth criterion forbids to exclude commerce), the
# Creative Commons licences without NC, and public-domain dedications. By their current SPDX ids;
# `-only`, `-or-later` and `+` are versions of the same.
_IDS = """
0BSD AAL AFL-1.1 AFL-1.2 AFL-2.0 AFL-2.1 AFL-3.0 AGPL-3.0 Apache-1.1 Apache-2.0 APSL-2.0
Artistic-1.0 Artistic-2.0 BlueOak-1.0.0 BSD-1-Clause BSD-2-Clause BSD-2-Clause-Patent BSD-3-Clause
BSL-1.0 CAL-1.0 CC0-1.0 CC-BY-2.0 CC-BY-2.5 CC-BY-3.0 CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CDDL-1.0
CECILL-2.1 CPL-1.0 ECL-2.0 EFL-2.0 EPL-1.0 EPL-2.0 EUPL-1.1 EUPL-1.2 GPL-2.0 GPL-3.0 HPND ISC
LGPL-2.0 LGPL-2.1 LGPL-3.0 MIT MIT-0 MPL-1.1 MPL-2.0 MS-PL MS-RL MulanPSL-2.0 NCSA ODbL-1.0
OFL-1.1 OSL-3.0 PostgreSQL PSF-2.0 Python-2.0 UPL-1.0 Unicode-3.0 Unlicense Vim W3C Zlib ZPL-2.1"""
_COMMERCIAL = frozenset(name.lower() for name in _IDS.split())


@cache
def normalise_licence(licence: str | None) -> str | None:
    """The SPDX expression in its normal form; None for what is none."""
    try:
        return canonicalize_license_expression(licence or "")
    except InvalidLicenseExpression:
        return None


@cache
def permits_commercial_use(licence: str | None) -> bool:
    """Whether the licence is known to permit commercial use: of `A OR B` one of them, of `A AND B`
    both."""
    expression = normalise_licence(licence)
    if expression is None:
        return False
    words = expression.replace("(", " ( ").replace(")", " ) ").split()
    return _permits_either(words)


def _permits_either(words: list[str]) -> bool:
    permitted = _permits_both(words)
    while words and words[0] == "OR":
        words.pop(0)
        permitted = _permits_both(words) or permitted
    return permitted


def _permits_both(words: list[str]) -> bool:
    permitted = _permits_one(words)
    while words and words[0] == "AND":
        words.pop(0)
        permitted = _permits_one(words) and permitted
    return permitted


def _permits_one(words: list[str]) -> bool:
    word = words.pop(0)
    if word == "(":
        permitted = _permits_either(words)
        words.pop(0)
        return permitted
    if words and words[0] == "WITH":  # an exception only permits more
        del words[:2]
    name = word.removesuffix("+").removesuffix("-only").removesuffix("-or-later").lower()
    return name in _COMMERCIAL
