"""A node that suites in other languages kill: `python3 -m settee.killable ADDRESS NAME`.

Starts a node with a bucket `main` (its data under `target/compat/NAME`) and says `ready`. Each line read is an order:
`kill` is kill -9 and a start on the same data, answered with `up`. The end of the input stops the node, which has to
end cleanly for this process to do so.
"""

import sys

from .node import Node, scratch


def main():
    address, name = sys.argv[1:]
    with Node(address, scratch(name)) as node:
        node.initialise()
        node.rest.create_bucket("main")
        print("ready", flush=True)
        for line in sys.stdin:
            if line.strip() != "kill":
                sys.exit(f"not an order: {line!r}")
            node.assert_alive()
            node.kill()
            node.start()
            print("up", flush=True)


if __name__ == "__main__":
    main()
