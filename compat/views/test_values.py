"""The model's order of strings and its numbers are those of Node.js, which has ICU."""

import json
import random
import subprocess
import unittest

import functions
import values

SCRIPT = """
const [pairs, numbers, texts] = JSON.parse(require('fs').readFileSync(0));
const collator = new Intl.Collator('und');
console.log(JSON.stringify([
  pairs.map(([left, right]) => collator.compare(left, right)), numbers.map((number) => JSON.stringify(number)),
  texts.map((text) => JSON.stringify(JSON.parse(text))),
]));
"""


class Values(unittest.TestCase):
    def test_strings_numbers_and_texts_are_those_of_javascript(self):
        rng = random.Random(5)
        pairs = [[functions.random_string(rng), functions.random_string(rng)] for _ in range(20_000)]
        numbers = [rng.random() * 10 ** rng.randrange(-12, 25) for _ in range(2_000)]
        numbers += [float(rng.randrange(10 ** rng.randrange(1, 22))) for _ in range(2_000)]
        texts = [functions.stored_text(rng, functions.random_object(rng)) for _ in range(2_000)]
        given = json.dumps([pairs, numbers, texts])
        told = subprocess.run(["node", "-e", SCRIPT], input=given, capture_output=True, text=True, check=True).stdout
        orders, number_texts, normal = json.loads(told)
        for (left, right), order in zip(pairs, orders):
            left, right = values.collation(left), values.collation(right)
            self.assertEqual((left > right) - (left < right), order)
        for number, text in zip(numbers, number_texts):
            self.assertEqual(values.number_text(number), text)
        for text, expected in zip(texts, normal):
            self.assertEqual(values.text_of(values.parse(text)), expected)


if __name__ == "__main__":
    unittest.main()
