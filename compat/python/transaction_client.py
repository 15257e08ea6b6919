"""A client that is going to be killed in the middle of a transaction. See test_transactions.py."""

import sys
import time
from datetime import timedelta

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import Durability, ServerDurability
from couchbase.exceptions import CouchbaseException
from couchbase.options import ClusterOptions, TransactionConfig


def connect(address, username, password, **config):
    """A client whose transactions are on disk when they are acknowledged, unless told otherwise."""
    config = {
        "durability": ServerDurability(Durability.PERSIST_TO_MAJORITY),
        # Half of it and two seconds later others may consider this client dead.
        "cleanup_window": timedelta(seconds=2),
        **config,
    }
    options = ClusterOptions(
        PasswordAuthenticator(username, password), transaction_config=TransactionConfig(**config)
    )
    cluster = Cluster.connect(f"couchbase://{address}", options)
    cluster.wait_until_ready(timedelta(seconds=10))
    return cluster


def transfer(cluster, collection, source, target, amount=1):
    """Moves money between two accounts."""

    def logic(attempt):
        giver, taker = attempt.get(collection, source), attempt.get(collection, target)
        attempt.replace(giver, {"balance": giver.content_as[dict]["balance"] - amount})
        attempt.replace(taker, {"balance": taker.content_as[dict]["balance"] + amount})

    return cluster.transactions.run(logic)


def stage(cluster, collection, prefix):
    """Stages a change of every kind and then does nothing any more."""

    def logic(attempt):
        attempt.replace(attempt.get(collection, f"{prefix}-replaced"), {"n": 2})
        attempt.remove(attempt.get(collection, f"{prefix}-removed"))
        attempt.insert(collection, f"{prefix}-inserted", {"n": 2})
        print("staged", flush=True)
        time.sleep(3600)

    cluster.transactions.run(logic)


def commit(cluster, collection, prefix, documents=300):
    """Changes many documents in one transaction."""

    def logic(attempt):
        for number in range(documents):
            attempt.replace(attempt.get(collection, f"{prefix}-{number}"), {"n": 2})
        print("staged", flush=True)

    cluster.transactions.run(logic)
    time.sleep(3600)


def transfers(cluster, collection, prefix, accounts=4):
    """Transfers without end; failures are the test's affair."""
    print("staged", flush=True)
    for count in range(1 << 30):
        source, target = count % accounts, (count * 7 + 1) % accounts
        if source != target:
            try:
                transfer(cluster, collection, f"{prefix}-{source}", f"{prefix}-{target}")
            except CouchbaseException as error:
                print(error, file=sys.stderr, flush=True)


def main():
    mode, address, username, password, bucket, prefix, seconds = sys.argv[1:]
    cluster = connect(address, username, password, timeout=timedelta(seconds=float(seconds)))
    work = {"stage": stage, "commit": commit, "transfers": transfers}[mode]
    work(cluster, cluster.bucket(bucket).default_collection(), prefix)


if __name__ == "__main__":
    main()
