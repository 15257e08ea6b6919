"""JavaScript's values, their JSON text, and the order of keys: all of it apart from the server's own code.

A value is None, a bool, a float (or an int that came from this module), a str, a list, a dict in the order of its members, or
UNDEFINED. Strings are compared by a small table of the Unicode Collation Algorithm's weights, which has the characters of
`ALPHABET` and no others. Their order was checked against `Intl.Collator` of Node.js (ICU 78).
"""

import json
import math
import string


class Undefined:
    """What JavaScript has where nothing is."""

    def __repr__(self):
        return "undefined"

    def __bool__(self):
        return False


UNDEFINED = Undefined()

# Primary weights in their order. Characters of one entry differ at the third level (capitals).
_PRIMARY = [*" _-.@😀", *string.digits, *(letter + letter.upper() for letter in string.ascii_lowercase), "法"]
_ACCENTS = {"\u0301": 1, "\u0308": 2}
_COMPOSED = {"á": "a\u0301", "Á": "A\u0301", "ä": "a\u0308", "é": "e\u0301", "ö": "o\u0308"}
_IGNORED = "\u0000"
_WEIGHTS = {
    character: (primary, 1, tertiary)
    for primary, characters in enumerate(_PRIMARY, 1)
    for tertiary, character in enumerate(characters, 1)
}
ALPHABET = [*" _-.@😀129aAbBzZ法", *_COMPOSED, "a\u0301", "o\u0308", "a" + _IGNORED]


def collation(text):
    """What strings compare by: the first level of all characters, then the second, then the third."""
    elements = []
    for character in "".join(_COMPOSED.get(character, character) for character in text):
        if character in _ACCENTS:
            elements.append((0, 1 + _ACCENTS[character], 1))
        elif character != _IGNORED:
            elements.append(_WEIGHTS[character])
    return tuple(tuple(element[level] for element in elements if element[level]) for level in range(3))


def order(value):
    """What keys compare by: a list of tokens. The end of a container is below everything."""
    tokens = []
    _append_order(value, tokens)
    return tokens


def _append_order(value, tokens):
    if value is None:
        tokens.append((1,))
    elif value is False:
        tokens.append((2,))
    elif value is True:
        tokens.append((3,))
    elif isinstance(value, (int, float)):
        tokens.append((4, float(value)))
    elif isinstance(value, str):
        tokens.append((5, collation(value)))
    elif isinstance(value, list):
        tokens.append((6,))
        for element in value:
            _append_order(element, tokens)
        tokens.append((0,))
    else:
        tokens.append((7,))
        for name, member in value.items():
            tokens.append((5, collation(name)))
            _append_order(member, tokens)
        tokens.append((0,))


def _is_index(name):
    return name.isascii() and name.isdigit() and str(int(name)) == name and int(name) < 2**32 - 1


def ordered(members):
    """An object's members as JavaScript has them: numbers first, in their order, then the others as they came."""
    numbers = sorted((name for name in members if _is_index(name)), key=int)
    return {name: members[name] for name in [*numbers, *(name for name in members if not _is_index(name))]}


def parse(text):
    """`JSON.parse`. Of members with one name the last one counts, at the place of the first."""
    return json.loads(
        text, parse_int=float, object_pairs_hook=lambda pairs: ordered(dict(pairs)), parse_constant=_no_constant
    )


def _no_constant(name):
    raise ValueError(name)


def number_text(number):
    """As JavaScript writes a number."""
    number = float(number)
    if not math.isfinite(number):
        return "null"
    if number == 0:
        return "0"
    digits, exponent = _shortest(abs(number))
    sign = "-" if number < 0 else ""
    point = exponent + 1
    if 0 < point <= 21:
        text = digits.ljust(point, "0")
        text = text if len(text) == point else f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        text = digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}"
        text += f"e{'+' if exponent > 0 else '-'}{abs(exponent)}"
    return sign + text


def _shortest(number):
    """The fewest digits that name a number, without zeros at their end, and the power of ten of the first of them."""
    text = repr(number)
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    power = int(exponent or 0) + len(whole) - 1
    while digits.startswith("0") and len(digits) > 1:
        digits, power = digits[1:], power - 1
    return digits.rstrip("0") or "0", power


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def string_text(text):
    return '"' + "".join(_character(character) for character in text) + '"'


def _character(character):
    if character in _ESCAPES:
        return _ESCAPES[character]
    if ord(character) < 0x20 or 0xD800 <= ord(character) <= 0xDFFF:
        return f"\\u{ord(character):04x}"
    return character


def text_of(value):
    """`JSON.stringify`; UNDEFINED where that gives nothing."""
    if value is UNDEFINED:
        return UNDEFINED
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, (int, float)):
        return number_text(value)
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, list):
        return "[" + ",".join("null" if element is UNDEFINED else text_of(element) for element in value) + "]"
    members = ((name, member) for name, member in ordered(value).items() if member is not UNDEFINED)
    return "{" + ",".join(f"{string_text(name)}:{text_of(member)}" for name, member in members) + "}"


def code_units(text):
    """A string as JavaScript compares and measures it."""
    return text.encode("utf-16-be", "surrogatepass")


def is_true(value):
    """What JavaScript takes for true."""
    if isinstance(value, (list, dict)):
        return True
    return bool(value) and value == value


def type_name(value):
    if value is UNDEFINED:
        return "undefined"
    if value is True or value is False:
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else "object"
