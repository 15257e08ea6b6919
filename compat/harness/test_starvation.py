"""Whether starvation is told from a pause."""

import os
import unittest

import starvation
from starvation import Watch, cause


class Starvation(unittest.TestCase):
    def test_whose_threads_waited_is_said(self):
        self.assertIn("the client was starved", cause(2500, 2000, 0))
        self.assertIn("the client was starved", cause(2500, 2000, 2400))
        self.assertIn("a server was starved", cause(2500, 100, 2000))
        self.assertIn("a pause of the server", cause(2500, 100, 100))
        self.assertIn("not known", cause(2500, None, 100))

    def test_the_time_between_the_looks_around_is_what_counts(self):
        watch = Watch(dict)
        for at, waited in ((1000, 10), (2000, 20), (3000, 1020), (4000, 1030)):
            watch.note(at, {"client": (7, {"1": waited, "2": 5})})
        self.assertEqual(watch.longest("client", 2100, 2900), 1000)
        self.assertEqual(watch.longest("client", 1100, 1900), 10)
        self.assertIsNone(watch.longest("client", 500, 900), "nobody had looked before")
        self.assertIsNone(watch.longest("client", 3900, 4100), "nobody has looked since")
        self.assertIsNone(watch.longest("other", 2100, 2900))

    def test_a_process_that_was_started_anew_is_another(self):
        watch = Watch(dict)
        watch.note(1000, {"node": (7, {"7": 10})})
        watch.note(2000, {"node": (8, {"8": 900})})
        self.assertIsNone(watch.longest("node", 1100, 1900))

    def test_the_kernel_is_asked(self):
        self.assertIn(str(os.getpid()), starvation.waited_ms(os.getpid()))
        self.assertEqual(starvation.waited_ms(0), {})


if __name__ == "__main__":
    unittest.main()
