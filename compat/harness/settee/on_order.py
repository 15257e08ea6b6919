"""A node of its own for tests in other languages: `python3 -m settee.on_order ADDRESS NAME [OPTION...]`.

Starts a node with a bucket `main` (its data under `target/compat/NAME`), with OPTIONs of `settee serve`, and says `ready`.
Each line read is an order:

    kill       kill -9 and a start on the same data; answered with `up`
    pressure   answered with the highest `ep_pressure_step` seen since the last start

The end of the input stops the node, which has to end cleanly for this process to do so.
"""

import sys

from .node import Node, scratch
from .pressure import PressureWatch

# The least a bucket can have: soon full.
QUOTA_MB = 100


def main():
    address, name, *options = sys.argv[1:]
    with Node(address, scratch(name), options) as node:
        node.initialise()
        node.rest.create_bucket("main", quota_mb=QUOTA_MB)
        with PressureWatch(node, "main") as watch:
            print("ready", flush=True)
            for order in map(str.strip, sys.stdin):
                if order == "kill":
                    node.assert_alive()
                    node.kill()
                    node.start()
                    watch.begin()
                    print("up", flush=True)
                elif order == "pressure":
                    print(watch.highest, flush=True)
                else:
                    sys.exit(f"not an order: {order!r}")


if __name__ == "__main__":
    main()
