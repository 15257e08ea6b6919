"""What every suite under compat/ shares: a real `settee serve` process, its REST interface, and a raw client.

Python's standard library only, so that nothing has to be installed before a server can be started.

    node.py   one server process: start, stop, kill -9, restart, log
    on_order.py  the same for tests in other languages, as a process that takes orders
    pressure.py  watches how hard pressed a bucket is
    validated.py  a load beside a test that notices whatever is lost
    rest.py   the management interface: requests with credentials, initialisation, buckets
    kv.py     the memcached binary protocol, byte by byte, without any kindness towards the server
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
"""The repository."""
