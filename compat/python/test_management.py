"""What an administrator does through the SDK: buckets, users, groups, and asking how the cluster is."""

import time
import uuid
from datetime import timedelta

import pytest
from conftest import connect
from couchbase.diagnostics import ClusterState, PingState, ServiceType
from couchbase.exceptions import (
    AuthenticationException,
    BucketAlreadyExistsException,
    BucketDoesNotExistException,
    BucketNotFlushableException,
    CouchbaseException,
    DocumentNotFoundException,
    GroupNotFoundException,
    UserNotFoundException,
)
from couchbase.management.buckets import (
    BucketSettings,
    BucketType,
    ConflictResolutionType,
    CreateBucketSettings,
    EvictionPolicyType,
)
from couchbase.management.users import Group, Role, User
from couchbase.options import GetOptions


@pytest.fixture
def name():
    return "b" + uuid.uuid4().hex[:10]


def eventually(action, seconds=10):
    """The action's result, once it no longer raises."""
    until = time.monotonic() + seconds
    while True:
        try:
            return action()
        except CouchbaseException:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@pytest.mark.parametrize("transport", ["plain", "secure"])
def test_life_of_a_bucket(request, transport, name, key):
    cluster = request.getfixturevalue(transport)
    manager = cluster.buckets()
    manager.create_bucket(
        CreateBucketSettings(
            name=name,
            bucket_type=BucketType.COUCHBASE,
            ram_quota_mb=100,
            num_replicas=0,
            flush_enabled=True,
            eviction_policy=EvictionPolicyType.VALUE_ONLY,
            conflict_resolution_type=ConflictResolutionType.SEQUENCE_NUMBER,
            max_expiry=timedelta(days=1),
        )
    )
    try:
        with pytest.raises(BucketAlreadyExistsException):
            manager.create_bucket(CreateBucketSettings(name=name, ram_quota_mb=100))
        found = manager.get_bucket(name)
        assert found.bucket_type == BucketType.COUCHBASE
        assert found.ram_quota_mb == 100 and found.num_replicas == 0 and found.flush_enabled
        assert found.max_expiry == timedelta(days=1)
        assert name in {bucket.name for bucket in manager.get_all_buckets()}

        collection = eventually(lambda: cluster.bucket(name).default_collection())
        eventually(lambda: collection.upsert(key, 1))
        manager.flush_bucket(name)
        with pytest.raises(DocumentNotFoundException):
            collection.get(key, GetOptions(timeout=timedelta(seconds=5)))
        collection.insert(key, 2)

        manager.update_bucket(BucketSettings(name=name, ram_quota_mb=128, flush_enabled=False, num_replicas=0))
        changed = manager.get_bucket(name)
        assert changed.ram_quota_mb == 128 and not changed.flush_enabled
        with pytest.raises(BucketNotFlushableException):
            manager.flush_bucket(name)
        assert collection.get(key).content_as[int] == 2
    finally:
        manager.drop_bucket(name)
    with pytest.raises(BucketDoesNotExistException):
        manager.get_bucket(name)
    with pytest.raises(BucketDoesNotExistException):
        manager.drop_bucket(name)


def test_kinds_of_buckets(plain, name):
    manager = plain.buckets()
    manager.create_bucket(
        CreateBucketSettings(
            name=name,
            bucket_type=BucketType.EPHEMERAL,
            ram_quota_mb=100,
            num_replicas=0,
            eviction_policy=EvictionPolicyType.NOT_RECENTLY_USED,
            conflict_resolution_type=ConflictResolutionType.TIMESTAMP,
        )
    )
    found = manager.get_bucket(name)
    assert found.bucket_type == BucketType.EPHEMERAL
    assert found.eviction_policy == EvictionPolicyType.NOT_RECENTLY_USED
    manager.drop_bucket(name)


def test_impossible_buckets(plain, name):
    for settings in [
        CreateBucketSettings(name="no/slashes", ram_quota_mb=100),
        CreateBucketSettings(name=name, ram_quota_mb=1),
        CreateBucketSettings(name=name, ram_quota_mb=10_000_000),
    ]:
        with pytest.raises(CouchbaseException):
            plain.buckets().create_bucket(settings)


def test_users_and_what_they_may(plain, key):
    users = plain.users()
    reader = "reader" + key[-8:]
    users.upsert_user(User(reader, "A reader", roles={Role("data_reader", bucket="main")}, password="first-pass"))
    try:
        found = users.get_user(reader)
        assert found.user.display_name == "A reader"
        assert {(r.name, r.bucket) for r in found.user.roles} == {("data_reader", "main")}
        assert reader in {each.user.username for each in users.get_all_users()}

        plain.bucket("main").default_collection().upsert(key, {"secret": False})
        client = connect(username=reader, password="first-pass")
        try:
            collection = client.bucket("main").default_collection()
            assert collection.get(key).content_as[dict] == {"secret": False}
            with pytest.raises(CouchbaseException):
                collection.upsert(key, {"secret": True})
            with pytest.raises(CouchbaseException):
                client.buckets().drop_bucket("main")
            client.users().change_password("second-pass")
        finally:
            client.close()
        connect(username=reader, password="second-pass").close()
        with pytest.raises(AuthenticationException):
            connect(username=reader, password="first-pass")
    finally:
        users.drop_user(reader)
    with pytest.raises(UserNotFoundException):
        users.get_user(reader)
    with pytest.raises(CouchbaseException) as unknown:
        users.drop_user(reader)
    assert unknown.value.error_code == 603, "user not found"


def test_groups(plain, key):
    users = plain.users()
    group, member = "group" + key[-8:], "member" + key[-8:]
    users.upsert_group(Group(group, "Writers", roles={Role("data_writer", bucket="main")}))
    users.upsert_user(User(member, "A member", groups={group}, password="member-pass"))
    try:
        assert users.get_group(group).description == "Writers"
        assert group in {each.name for each in users.get_all_groups()}
        found = users.get_user(member)
        assert found.user.groups == {group}
        assert "data_writer" in {each.role.name for each in found.effective_roles}
        client = connect(username=member, password="member-pass")
        try:
            client.bucket("main").default_collection().upsert(key, 1)
        finally:
            client.close()
    finally:
        users.drop_user(member)
        users.drop_group(group)
    with pytest.raises(GroupNotFoundException):
        users.get_group(group)
    with pytest.raises(CouchbaseException) as unknown:
        users.drop_group(group)
    assert unknown.value.error_code == 604, "group not found"


def test_roles_are_listed(plain):
    roles = {each.role.name for each in plain.users().get_roles()}
    assert {"admin", "ro_admin", "bucket_admin", "data_reader", "data_writer"} <= roles


def test_strangers_stay_out():
    for username, password in [("Administrator", "wrong"), ("nobody", "settee-compat")]:
        with pytest.raises(AuthenticationException):
            connect(username=username, password=password)


@pytest.mark.parametrize("scheme", ["couchbase", "couchbases"])
def test_ping_and_diagnostics(scheme):
    # A client of its own: the shared one still remembers buckets that are gone.
    cluster = connect(scheme)
    bucket = cluster.bucket("main")
    report = bucket.ping()
    states = [endpoint.state for endpoint in report.endpoints[ServiceType.KeyValue]]
    assert states and all(state == PingState.OK for state in states)
    management = cluster.ping().endpoints.get(ServiceType.Management, [])
    assert all(endpoint.state == PingState.OK for endpoint in management)
    assert cluster.diagnostics().state == ClusterState.Online
    cluster.close()


def test_cluster_info(plain):
    info = plain.cluster_info()
    assert info.server_version_short == 7.6
    assert len(info.nodes) == 1
