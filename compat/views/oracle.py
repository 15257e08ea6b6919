"""What a view has to answer: every document mapped, every row sorted, every row looked at for each query."""

from collections import Counter
from dataclasses import dataclass

from values import order, text_of


@dataclass
class Row:
    key: object
    key_text: str
    value_text: str
    docid: str

    def __post_init__(self):
        self.place = order(self.key)
        self.docid_bytes = self.docid.encode()
        self.sorted_by = (self.place, self.docid_bytes)


@dataclass
class Question:
    """Parameters by their names, as Python's values of JSON; those that are not there are not sent."""

    parameters: dict

    def __getattr__(self, name):
        return self.parameters.get(name)

    @property
    def start(self):
        return self.parameters.get("key", self.parameters.get("startkey", ()))

    @property
    def end(self):
        return self.parameters.get("key", self.parameters.get("endkey", ()))


def refusals(question, has_reduction):
    """The reasons of which one has to be told; none where the question has an answer."""
    reduces = has_reduction and question.reduce is not False
    found = []
    grouped = question.group is not None or question.group_level is not None
    if question.group is not None and question.group_level is not None:
        found.append("Query parameter `group_level` is not compatible with `group` ")
    if question.keys is not None and question.start != ():
        found.append("Query parameter `start_key` is not compatible with multi-get")
    if question.keys is not None and question.end != ():
        found.append("Query parameter `end_key` is not compatible with multi-get")
    if not reduces and grouped:
        found.append("Invalid URL parameter 'group' or  'group_level' for non-reduce view.")
    if not has_reduction and question.reduce is True:
        found.append("Invalid URL parameter `reduce` for map view.")
    if reduces and question.include_docs:
        found.append("Query parameter `include_docs` is invalid for reduce views.")
    if reduces and question.keys is not None and question.group is not True:
        found.append("Multi-key fetchs for reduce view must include `group=true`")
    if question.start != () and question.end != ():
        start, end = order(question.start), order(question.end)
        if (start < end) if question.descending else (start > end):
            right = "false" if question.descending else "true"
            found.append(
                "No rows can match your key range, reverse your start_key and end_key or set descending=" + right
            )
    return [reason.strip() for reason in found]


def _begins(row, question):
    """Whether the row is at or behind the start."""
    if question.start == ():
        return True
    start = order(question.start)
    if row.place == start:
        if question.startkey_docid is None:
            return True
        docid = question.startkey_docid.encode()
        return row.docid_bytes <= docid if question.descending else row.docid_bytes >= docid
    return row.place < start if question.descending else row.place > start


def _goes_on(row, question):
    """Whether the row is before the end."""
    if question.end == ():
        return True
    end, is_inclusive = order(question.end), question.inclusive_end is not False
    if row.place == end:
        if question.endkey_docid is None:
            return is_inclusive
        docid = question.endkey_docid.encode()
        if row.docid_bytes == docid:
            return is_inclusive
        return row.docid_bytes > docid if question.descending else row.docid_bytes < docid
    return row.place > end if question.descending else row.place < end


def ranges(rows, question):
    """The rows of each range, in the order of the answer."""
    rows = sorted(rows, key=lambda row: row.sorted_by, reverse=bool(question.descending))
    if question.keys is not None:
        return [[row for row in rows if row.place == order(key)] for key in question.keys]
    return [[row for row in rows if _begins(row, question) and _goes_on(row, question)]]


def _cut(row, level):
    return row.key[:level] if isinstance(row.key, list) else row.key


def groups(rows, question):
    """(keys that it may be told by, its rows) of each group."""
    level = question.group_level or None
    if question.group is True:
        decides = shown = lambda row: row.key
    elif level:
        decides = shown = lambda row: _cut(row, level)
    else:
        decides = shown = lambda _: None
    found = []
    for row in rows:
        # A group's key is an array that was cut, and is no group of a shorter array.
        place = order(decides(row))
        if not found or found[-1][0] != place:
            found.append((place, set(), []))
        found[-1][1].add(row.key_text if question.group is True else text_of(shown(row)))
        found[-1][2].append(row)
    return [(keys, members) for _, keys, members in found]


def check(rows, reduction, question, answer):
    """What is wrong with the lines of an answer, or None. `reduction` makes a text of rows, or is None."""
    found = ranges(rows, question)
    reduces = reduction is not None and question.reduce is not False
    skip, limit = question.skip or 0, question.limit
    if reduces:
        expected = []
        for of_range in found:
            for keys, members in groups(of_range, question):
                value = reduction([(row.key, row.key_text, row.value_text) for row in members])
                if isinstance(value, str):
                    expected.append({f'{{"key":{key},"value":{value}}}' for key in keys})
        expected = expected[skip:] if limit is None else expected[skip : skip + limit]
        if len(expected) != len(answer):
            return f"{len(answer)} groups instead of {len(expected)}: {_shown(expected)}"
        for at, (lines, line) in enumerate(zip(expected, answer)):
            if line not in lines:
                return f"group {at} is {line} instead of {' or '.join(sorted(lines))}"
        return None
    expected = [(at, row) for at, of_range in enumerate(found) for row in of_range]
    end = len(expected) if limit is None else min(len(expected), skip + limit)
    if max(end - skip, 0) != len(answer):
        return f"{len(answer)} rows instead of {max(end - skip, 0)}: {_shown([_line(row) for _, row in expected[skip:end]])}"
    # Rows of one document with one key come in any order, also where the answer ends among them.
    runs = {}
    for place, (at, row) in enumerate(expected):
        run = runs.setdefault((at, str(row.sorted_by)), [Counter(), [], []])
        run[0][_line(row)] += 1
        run[1].append(place)
        if skip <= place < end:
            run[2].append(answer[place - skip])
    for has, places, lines in runs.values():
        if Counter(lines) - has:
            return f"rows {places[0] - skip}… are {lines} instead of {list(has)}"
    return None


def difference(rows, lines):
    """Rows of a whole view that it lacks, and that it has beyond what it should."""
    expected, found = Counter(_line(row) for row in rows), Counter(lines)
    return f"lacks {_shown(list((expected - found).elements()))}\n  has too many {_shown(list((found - expected).elements()))}"


def _line(row):
    return f'{{"id":{text_of(row.docid)},"key":{row.key_text},"value":{row.value_text}}}'


def _shown(lines, most=12):
    return "\n    ".join(["", *map(str, lines[:most]), *(["…"] if len(lines) > most else [])])
