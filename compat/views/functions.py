"""Random documents, map functions and reductions: each as JavaScript for the server, and as Python that says what it means.

An expression is (JavaScript, evaluation). Names in the evaluation's scope are `doc`, `meta`, and the variables of loops. A function
whose evaluation raises `Thrown` leaves its document out, for that view.
"""

import math

from values import ALPHABET, UNDEFINED, code_units, is_true, parse, string_text, text_of, type_name

NAMES = ["a", "b", "n", "s", "t", "o"]
INNER = ["x", "y"]


class Thrown(Exception):
    """The function ended with an exception."""


# Documents


def random_string(random, most=3):
    return "".join(random.choice(ALPHABET) for _ in range(random.randrange(most + 1)))


def random_number(random):
    # Sums of these are exact, whatever their order.
    return float(random.choice([random.randrange(-3, 4), random.randrange(-40, 400) / 4, random.randrange(10**6)]))


def random_scalar(random):
    kind = random.randrange(8)
    if kind < 3:
        return random_number(random)
    if kind < 6:
        return random_string(random)
    return random.choice([None, True, False])


def random_value(random, depth=2):
    if depth == 0 or random.random() < 0.6:
        return random_scalar(random)
    if random.random() < 0.6:
        return [random_value(random, depth - 1) for _ in range(random.randrange(4))]
    return {random_string(random, 2): random_value(random, depth - 1) for _ in range(random.randrange(3))}


def random_object(random):
    members = {}
    for name in random.sample(NAMES, random.randrange(len(NAMES) + 1)):
        if name == "t" and random.random() < 0.8:
            members[name] = [random_value(random, 1) for _ in range(random.randrange(5))]
        elif name == "o" and random.random() < 0.8:
            members[name] = {inner: random_value(random, 1) for inner in INNER if random.random() < 0.7}
        elif name == "n" and random.random() < 0.8:
            members[name] = random_number(random)
        else:
            members[name] = random_value(random)
    if random.random() < 0.1:
        members[random.choice(["2", "10", "x y", '"', "\\", "é", "__proto__"])] = random_scalar(random)
    return members


def stored_text(random, value):
    """A JSON text that means the value, as some writer could have written it."""
    if isinstance(value, dict):
        members = []
        for name, member in value.items():
            if random.random() < 0.02:
                members.append((name, random_scalar(random)))
            members.append((name, member))
        blank = random.choice(["", "", " "])
        return "{" + f",{blank}".join(
            f"{written_string(random, name)}{blank}:{blank}{stored_text(random, member)}" for name, member in members
        ) + "}"
    if isinstance(value, list):
        blank = random.choice(["", "\n", "\t "])
        return f"[{blank}" + f"{blank},".join(stored_text(random, element) for element in value) + f"{blank}]"
    if isinstance(value, str):
        return written_string(random, value)
    if isinstance(value, float) and random.random() < 0.2:
        return random.choice([repr(value), f"{value:e}", f"{value:.3E}" if value * 4 == int(value * 4) and abs(value) < 100 else repr(value)])
    return text_of(value)


def written_string(random, text):
    if random.random() < 0.8:
        return string_text(text)
    units = code_units(text)
    return '"' + "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2)) + '"'


# Expressions


def member(value, name):
    """`value.name`. Nothing here has a name of JavaScript's own."""
    if value is None or value is UNDEFINED:
        raise Thrown(f"cannot read property '{name}'")
    return value.get(name, UNDEFINED) if isinstance(value, dict) else UNDEFINED


def element(value, at):
    """`value[at]`."""
    if value is None or value is UNDEFINED:
        raise Thrown(f"cannot read property '{at}'")
    if isinstance(value, list):
        return value[at] if at < len(value) else UNDEFINED
    if isinstance(value, str):
        units = code_units(value)
        unit = units[2 * at : 2 * at + 2]
        return unit.decode("utf-16-be", "surrogatepass") if unit else UNDEFINED
    return value.get(str(at), UNDEFINED) if isinstance(value, dict) else UNDEFINED


def constant(value):
    return text_of(value), lambda scope: value


def read_member(random, names):
    doc = names["doc"]
    name = random.choice(NAMES)
    written = random.choice([f"{doc}.{name}", f"{doc}.{name}", f'{doc}["{name}"]'])
    return written, lambda scope: member(scope["doc"], name)


def read_inner(random, names):
    doc, inner = names["doc"], random.choice(INNER)
    if random.random() < 0.3:
        return f"{doc}.o.{inner}", lambda scope: member(member(scope["doc"], "o"), inner)

    def read(scope):
        outer = member(scope["doc"], "o")
        return member(outer if is_true(outer) else {}, inner)

    return f"({doc}.o || {{}}).{inner}", read


def read_element(random, names):
    doc, at = names["doc"], random.randrange(3)

    def read(scope):
        outer = member(scope["doc"], "t")
        return element(outer if is_true(outer) else [], at)

    return f"({doc}.t || [])[{at}]", read


def of_meta(random, names):
    name = random.choice(["id", "id", "id", "type", "flags", "expiration", "vb"])
    return f"{names['meta']}.{name}", lambda scope: scope["meta"][name]


def scalar(random, names):
    if "x" in names and random.random() < 0.5:
        return names["x"], lambda scope: scope["x"]
    makers = [read_member, read_member, read_member, read_inner, read_element]
    if names["meta"]:
        makers += [of_meta, of_meta]
    if random.random() < 0.15:
        return constant(random_scalar(random))
    return random.choice(makers)(random, names)


def expression(random, names, depth=2):
    if depth == 0 or random.random() < 0.4:
        return scalar(random, names)
    return random.choice([array, array, object_of, typed, stringified, chosen, either, doubled])(random, names, depth - 1)


def array(random, names, depth):
    parts = [expression(random, names, depth) for _ in range(random.randrange(1, 4))]
    return "[" + ", ".join(text for text, _ in parts) + "]", lambda scope: [value(scope) for _, value in parts]


def object_of(random, names, depth):
    (left, first), (right, second) = (expression(random, names, depth) for _ in range(2))
    one, two = random.choice([("a", "b"), ("z", "a"), ("a", "1")])
    return f'{{"{one}": {left}, "{two}": {right}}}', lambda scope: {one: first(scope), two: second(scope)}


def typed(random, names, depth):
    text, value = expression(random, names, depth)
    return f"typeof {bracketed(text)}", lambda scope: type_name(value(scope))


def stringified(random, names, depth):
    # The text has characters that the order of strings here does not know, so keys have its length instead.
    text, value = expression(random, names, depth)

    def measure(scope):
        written = text_of(value(scope))
        return UNDEFINED if written is UNDEFINED else float(len(code_units(written)) // 2)

    return f"(JSON.stringify({text}) || {{}}).length", measure


def chosen(random, names, depth):
    (condition, holds), (left, first), (right, second) = (expression(random, names, depth) for _ in range(3))
    return f"({condition} ? {left} : {right})", lambda scope: first(scope) if is_true(holds(scope)) else second(scope)


def either(random, names, depth):
    (left, first), (right, second) = (expression(random, names, depth) for _ in range(2))
    if random.random() < 0.5:
        return f"({left} || {right})", lambda scope: kept if is_true(kept := first(scope)) else second(scope)
    return f"({left} && {right})", lambda scope: second(scope) if is_true(kept := first(scope)) else kept


def doubled(random, names, depth):
    text, value = scalar(random, names)

    def evaluate(scope):
        number = value(scope)
        return float(number) * 2 if type_name(number) == "number" else 0.0

    return f'(typeof {bracketed(text)} == "number" ? {bracketed(text)} * 2 : 0)', evaluate


def bracketed(text):
    return f"({text})"


# Statements: (JavaScript, what is done with a scope and a list of rows)


def emit(rows, key, value):
    """Both go through JSON at once: what the function changes later does not show."""
    key_text, value_text = (("null" if text is UNDEFINED else text) for text in (text_of(key), text_of(value)))
    if "\\ud" in key_text:
        raise Thrown("half of a surrogate pair in a key")
    rows.append((parse(key_text), key_text, value_text))


def emitted(random, names):
    key, key_value = expression(random, names)
    shape = random.random()
    if shape < 0.1:
        return f"emit({key});", lambda scope, rows: emit(rows, key_value(scope), UNDEFINED)
    if shape < 0.3:
        return f"emit({key}, {names['doc']});", lambda scope, rows: emit(rows, key_value(scope), scope["doc"])
    if shape < 0.5:
        value, value_of = doubled(random, names, 0)
    else:
        value, value_of = expression(random, names)
    return f"emit({key}, {value});", lambda scope, rows: emit(rows, key_value(scope), value_of(scope))


def conditional(random, names, depth):
    (condition, holds), (then, do) = expression(random, names, 1), statement(random, names, depth)
    return f"if ({condition}) {{ {then} }}", lambda scope, rows: do(scope, rows) if is_true(holds(scope)) else None


def over_elements(random, names, depth):
    doc = names["doc"]
    element_name, at = f"x{depth}", f"i{depth}"
    body, do = statement(random, {**names, "x": element_name}, depth)

    def run(scope, rows):
        elements = member(scope["doc"], "t")
        for found in elements if isinstance(elements, list) else []:
            do({**scope, "x": found}, rows)

    if random.random() < 0.5:
        return f"if (Array.isArray({doc}.t)) {doc}.t.forEach(function ({element_name}) {{ {body} }});", run
    # The variable of the loop is declared nowhere, as in many functions that people have.
    # Where the body gives `t` another value, the elements are still those of before.
    begin, elements = ("", f"{doc}.t")
    if f"{doc}.t = " in body:
        begin, elements = f"var l{depth} = {doc}.t;", f"l{depth}"
    loop = f"for ({at} = 0; {at} < {elements}.length; {at}++) {{ var {element_name} = {elements}[{at}]; {body} }}"
    return f"if (Array.isArray({doc}.t)) {{ {begin} {loop} }}", run


def over_members(random, names, depth):
    doc = names["doc"]

    def run(scope, rows):
        value = scope["doc"]
        if isinstance(value, dict):
            for name, found in value.items():
                emit(rows, float(len(code_units(name)) // 2), found)

    body = f"emit(k.length, {doc}[k])"
    return f"if ({doc} && typeof {doc} == 'object' && !Array.isArray({doc})) for (var k in {doc}) {body};", run


def changed(random, names, depth):
    doc, name = names["doc"], random.choice(NAMES)
    value, value_of = scalar(random, names)
    body, do = statement(random, names, depth)

    def run(scope, rows):
        if isinstance(scope["doc"], dict):
            scope["doc"][name] = value_of(scope)
        do(scope, rows)

    guard = f"{doc} && typeof {doc} == 'object' && !Array.isArray({doc})"
    return f"if ({guard}) {doc}.{name} = {value}; {body}", run


def thrown(random, names, depth):
    (condition, holds), (body, do) = expression(random, names, 0), statement(random, names, depth)

    def run(scope, rows):
        do(scope, rows)
        if is_true(holds(scope)):
            raise Thrown("no")

    return f'{body} if ({condition}) throw "no";', run


def twice(random, names, depth):
    (first, do), (second, then) = (statement(random, names, depth) for _ in range(2))

    def run(scope, rows):
        do(scope, rows)
        then(scope, rows)

    return f"{first} {second}", run


def statement(random, names, depth=2):
    if depth == 0 or random.random() < 0.45:
        return emitted(random, names)
    shapes = [conditional, conditional, over_elements, over_elements, twice, over_members]
    if random.random() < 0.3:
        shapes += [changed, thrown]
    return random.choice(shapes)(random, names, depth - 1)


class Map:
    """A map function."""

    def __init__(self, random):
        doc, meta = random.choice([("doc", "meta"), ("doc", "meta"), ("d", "m"), ("doc", None), ("$", "_")])
        body, self.run = statement(random, {"doc": doc, "meta": meta})
        parameters = f"{doc}, {meta}" if meta else doc
        shape = random.choice(["function ({0}) {{ {1} }}", "function ({0}) {{\n  {1}\n}}", "({0}) => {{ {1} }}"])
        self.text = shape.format(parameters, body)

    def rows(self, doc, meta):
        """(key, its text, the value's text) of each row. The document is changed where the function does that."""
        rows = []
        try:
            self.run({"doc": doc, "meta": meta}, rows)
        except Thrown:
            return []
        return rows


# Reductions: (source, what it makes of rows (key, key text, value text)); UNDEFINED where a group has no row


def _numbers(rows):
    values = (parse(value) for _, _, value in rows)
    return [value for value in values if type_name(value) == "number"]


def c_number(number):
    """As C's `%.15g` writes it."""
    return f"{number + 0.0:.15g}"


def _sum(rows):
    numbers = _numbers(rows)
    return c_number(math.fsum(numbers)) if numbers else UNDEFINED


def _stats(rows):
    numbers = _numbers(rows)
    if not numbers:
        return UNDEFINED
    # Squares of an expiry are beyond what a double counts exactly, so the order of additions must not matter.
    told = [("sum", math.fsum(numbers)), ("count", len(numbers)), ("min", min(numbers)), ("max", max(numbers))]
    told.append(("sumsqr", math.fsum(number * number for number in numbers)))
    return "{" + ",".join(f'"{name}":{c_number(float(number))}' for name, number in told) + "}"


def _greatest(rows):
    longest = max(len(code_units(value)) // 2 for _, _, value in rows)
    return f'{{"n":{len(rows)},"m":{longest}}}'


REDUCTIONS = [
    ("_count", lambda rows: str(len(rows))),
    ("_sum", _sum),
    ("_stats", _stats),
    ("function (keys, values, rereduce) { return rereduce ? sum(values) : values.length }", lambda rows: str(len(rows))),
    (
        "function (k, v, r) { return r ? sum(v) : k.filter(function (x) { return typeof x == 'string' }).length }",
        lambda rows: str(sum(isinstance(key, str) for key, _, _ in rows)),
    ),
    (
        "function (k, values, again) { var o = {n: 0, m: 0}; values.forEach(function (v) { o.n += again ? v.n : 1;"
        " o.m = Math.max(o.m, again ? v.m : JSON.stringify(v).length) }); return o }",
        _greatest,
    ),
]

__all__ = ["Map", "REDUCTIONS", "random_object", "random_string", "random_value", "stored_text"]
