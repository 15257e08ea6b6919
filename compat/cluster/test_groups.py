"""A cluster is formed as couchbase-cli and the older set-up forms it: nodes are renamed before they belong to one, join of their
own accord, are added into server groups and moved between them; every copy of a document is in another group."""

import json

import pytest
from conftest import VBUCKETS
from pymemcache.client.base import Client
from settee.cluster import PASSWORD, USERNAME
from settee.rest import Rest

MEMBERS = 1
BUCKET = "racks"
COUNT = 500
GROUPS = "/pools/default/serverGroups"


def nobody(node):
    """The REST interface of a node before anybody has a login there."""
    return Rest(node.address, node.ports["mgmt"])


def name_of(node):
    """Another name of the machine, which resolves wherever there is a resolver: of an address' four numbers, the last two as one."""
    first, second, third, fourth = map(int, node.address.split("."))
    return f"{first}.{second}.{third * 256 + fourth}"


def groups(cluster):
    """Each group's nodes, by its name."""
    told = cluster.rest.get(GROUPS).json["groups"]
    return {group["name"]: sorted(node["otpNode"] for node in group["nodes"]) for group in told}


def move(cluster, wanted, uri=None):
    """As `couchbase-cli group-manage --move-servers` does it: all groups are written back, under the revision that was read."""
    told = cluster.rest.get(GROUPS).json
    body = {
        "groups": [
            {**group, "nodes": [{"otpNode": node} for node in wanted[group["name"]]]} for group in told["groups"]
        ]
    }
    headers = {"Content-Type": "application/json"}
    return cluster.rest.request("PUT", uri or told["uri"], body=json.dumps(body), headers=headers)


@pytest.fixture(scope="module")
def bucket(cluster):
    cluster.rest.create_bucket(
        BUCKET, replicas=1, numVBuckets=VBUCKETS, legacyMemcachedPort=1, legacyPasswordless=1
    )
    client = Client((cluster[0].address, 11211), timeout=10, connect_timeout=5, default_noreply=False)
    for number in range(COUNT):
        assert client.set(f"doc-{number}", str(number))
    client.close()


def test_a_node_is_renamed_before_it_belongs_to_a_cluster(cluster):
    node = cluster[1]
    named = name_of(node)
    alone = nobody(node)
    alone.ok("POST", "/node/controller/rename", {"hostname": named})
    told = alone.get("/nodes/self").json
    assert (told["otpNode"], told["configuredHostname"]) == (f"ns_1@{named}", f"{named}:8091")
    assert alone.request("POST", "/node/controller/rename", {"hostname": "no host"}).status == 400


def test_it_joins_of_its_own_accord_under_its_name(cluster, bucket):
    node = cluster[1]
    # As the set-up of older releases sends it, and as that of newer ones.
    login = {"user": USERNAME, "password": PASSWORD}
    older = {"clusterMemberHostIp": cluster[0].address, "clusterMemberPort": 8091, **login}
    newer = {"hostname": f"{cluster[0].address}:8091", "services": "kv", **login}
    refused = nobody(node).request("POST", "/node/controller/doJoinCluster", newer | {"password": "wrong"})
    assert (refused.status, refused.json) == (400, ["Invalid credentials. Verify username and password."])
    assert len(cluster.members()) == 1
    nobody(node).ok("POST", "/node/controller/doJoinCluster", older)
    assert cluster.members()[name_of(node)]["clusterMembership"] == "inactiveAdded"
    again = node.rest.request("POST", "/node/controller/doJoinCluster", newer)
    assert again.status == 400 and "already provisioned" in again.text, again.text
    cluster.rebalance()
    cluster.wait_healthy(BUCKET)
    # It has the cluster's logins.
    assert sorted(node["otpNode"] for node in node.rest.get("/pools/default").json["nodes"]) == sorted(cluster.names())
    assert {host for chain in cluster.map(BUCKET) for host in chain} == {cluster[0].address, name_of(node)}


def test_a_node_is_added_into_a_group(cluster, bucket):
    cluster.rest.ok("POST", GROUPS, {"name": "Group 2"})
    cluster.add(cluster[2], group="Group 2")
    assert groups(cluster)["Group 2"] == [cluster[2].name]
    assert cluster.members()[cluster[2].address]["serverGroup"] == "Group 2"
    cluster.rebalance()
    cluster.wait_healthy(BUCKET)
    check_spread(cluster, cluster.nodes[:3])


def test_nodes_are_moved_between_groups(cluster, bucket):
    """Into one that is not there before, until one is empty, and goes."""
    cluster.rest.ok("POST", GROUPS, {"name": "Group 3"})
    cluster.add(cluster[3], group="Group 3")
    first, second, third, fourth = cluster[0].name, f"ns_1@{name_of(cluster[1])}", cluster[2].name, cluster[3].name
    wanted = {"Group 1": [first, third], "Group 2": [], "Group 3": [second, fourth]}
    stale = cluster.rest.get(GROUPS).json["uri"]
    moved = move(cluster, wanted)
    assert moved.status == 200, moved.text
    assert groups(cluster) == {name: sorted(nodes) for name, nodes in wanted.items()}
    # Somebody who has not seen that is told so.
    assert move(cluster, wanted, uri=stale).status == 409
    of_group = {group["name"]: group["uri"] for group in cluster.rest.get(GROUPS).json["groups"]}
    assert cluster.rest.request("DELETE", of_group["Group 1"]).status == 400
    cluster.rest.ok("DELETE", of_group["Group 2"])
    assert set(groups(cluster)) == {"Group 1", "Group 3"}
    assert in_one_group(cluster), "then the rebalance has nothing to do"
    cluster.rebalance()
    cluster.wait_healthy(BUCKET)
    check_spread(cluster, cluster.nodes)


def in_one_group(cluster):
    """The copies of vBuckets that would all be lost with one group."""
    of_host = {member: node["serverGroup"] for member, node in cluster.members().items()}
    return [chain for chain in cluster.map(BUCKET) if len({of_host.get(host) for host in chain}) < 2]


def check_spread(cluster, nodes):
    """Every document is twice there, in two groups, and every node has its share."""
    of_host, chains = cluster.members(), cluster.map(BUCKET)
    assert in_one_group(cluster) == []
    assert all(len(chain) == 2 and None not in chain for chain in chains)
    assert {chain[0] for chain in chains} == set(of_host)
    assert len(of_host) == len(nodes)
    client = Client((nodes[0].address, 11211), timeout=10, connect_timeout=5)
    found = client.get_many([f"doc-{number}" for number in range(COUNT)])
    client.close()
    assert found == {f"doc-{number}": str(number).encode() for number in range(COUNT)}
