"""The programs of the README and of docs/connect.md, as tests run them: `python3 -m settee.readme LANGUAGE` prints one.

Nothing is changed but address, user, password and bucket, which belong to the suite's server.
"""

import os
import re
import sys

from settee import ROOT

PAGES = ["README.md", "docs/connect.md"]


def program(language):
    """The only block of code in this language."""
    pages = "\n".join((ROOT / page).read_text() for page in PAGES)
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", pages, re.M | re.S)
    (block,) = blocks
    own = {
        "127.0.0.1": os.environ["SETTEE_ADDRESS"],
        "admin": os.environ["SETTEE_USERNAME"],
        "PASSWORD": os.environ["SETTEE_PASSWORD"],
        "songs": "main",
    }
    for written, instead in own.items():
        block, count = re.subn(rf"(?<=[\"'/]){re.escape(written)}(?=[\"'])", instead, block)
        if count != 1:
            raise ValueError(f"the {language} program has {written} {count} times")
    return block


if __name__ == "__main__":
    sys.stdout.write(program(sys.argv[1]))
