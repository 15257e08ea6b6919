package settee;

import static com.couchbase.client.java.diagnostics.PingOptions.pingOptions;
import static com.couchbase.client.java.kv.GetOptions.getOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static com.couchbase.client.java.manager.collection.CreateCollectionSettings.createCollectionSettings;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static settee.Connection.newKey;

import com.couchbase.client.core.diagnostics.ClusterState;
import com.couchbase.client.core.diagnostics.PingState;
import com.couchbase.client.core.error.BucketExistsException;
import com.couchbase.client.core.error.BucketNotFlushableException;
import com.couchbase.client.core.error.BucketNotFoundException;
import com.couchbase.client.core.error.CollectionExistsException;
import com.couchbase.client.core.error.CollectionNotFoundException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.GroupNotFoundException;
import com.couchbase.client.core.error.ScopeExistsException;
import com.couchbase.client.core.error.ScopeNotFoundException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.core.error.UserNotFoundException;
import com.couchbase.client.core.service.ServiceType;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.manager.bucket.BucketManager;
import com.couchbase.client.java.manager.bucket.BucketSettings;
import com.couchbase.client.java.manager.collection.CollectionManager;
import com.couchbase.client.java.manager.collection.CollectionSpec;
import com.couchbase.client.java.manager.user.Group;
import com.couchbase.client.java.manager.user.Role;
import com.couchbase.client.java.manager.user.User;
import com.couchbase.client.java.manager.user.UserManager;
import java.time.Duration;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Collections, buckets, users and groups, and asking how the cluster is. */
class ManagementTest {
  private static final Duration SHORT = Duration.ofMillis(700);

  @ParameterizedTest
  @ValueSource(strings = {"couchbase", "couchbases"})
  void managesCollections(String scheme) {
    Bucket bucket = Connection.bucket(scheme, "main");
    CollectionManager manager = bucket.collections();
    String scope = newKey();
    String key = newKey();
    manager.createScope(scope);
    assertThrows(ScopeExistsException.class, () -> manager.createScope(scope));
    manager.createCollection(scope, "songs");
    manager.createCollection(scope, "brief", createCollectionSettings().maxExpiry(Duration.ofSeconds(1)));
    assertThrows(CollectionExistsException.class, () -> manager.createCollection(scope, "songs"));
    assertThrows(ScopeNotFoundException.class, () -> manager.createCollection("nowhere", "songs"));
    assertThrows(CollectionNotFoundException.class, () -> manager.dropCollection(scope, "missing"));
    Set<String> found = manager.getAllScopes().stream()
        .filter(each -> each.name().equals(scope))
        .flatMap(each -> each.collections().stream())
        .map(CollectionSpec::name)
        .collect(Collectors.toSet());
    assertEquals(Set.of("songs", "brief"), found);

    Collection songs = bucket.scope(scope).collection("songs");
    Collection brief = bucket.scope(scope).collection("brief");
    songs.upsert(key, "song");
    brief.upsert(key, "brief");
    bucket.defaultCollection().upsert(key, "default");
    assertEquals("song", songs.get(key).contentAs(String.class));
    songs.upsert("k".repeat(246), 1);
    Connection.within(Duration.ofSeconds(5), "expiry", () -> !brief.exists(key).exists());
    manager.dropCollection(scope, "songs");
    assertThrows(TimeoutException.class, () -> songs.get(key, getOptions().timeout(SHORT)));
    manager.dropScope(scope);
    assertThrows(ScopeNotFoundException.class, () -> manager.dropScope(scope));
    assertEquals("default", bucket.defaultCollection().get(key).contentAs(String.class));
  }

  @Test
  void managesBuckets() {
    Cluster cluster = Connection.cluster("couchbase");
    BucketManager manager = cluster.buckets();
    String name = newKey();
    String key = newKey();
    manager.createBucket(BucketSettings.create(name).ramQuotaMB(100).numReplicas(0).flushEnabled(true));
    assertThrows(
        BucketExistsException.class, () -> manager.createBucket(BucketSettings.create(name).ramQuotaMB(100)));
    assertEquals(100, manager.getBucket(name).ramQuotaMB());
    assertTrue(manager.getAllBuckets().containsKey(name));
    Bucket bucket = cluster.bucket(name);
    bucket.waitUntilReady(Connection.PATIENCE);
    bucket.defaultCollection().upsert(key, 1);
    manager.flushBucket(name);
    assertThrows(DocumentNotFoundException.class, () -> bucket.defaultCollection().get(key));
    manager.updateBucket(BucketSettings.create(name).ramQuotaMB(128).numReplicas(0).flushEnabled(false));
    BucketSettings changed = manager.getBucket(name);
    assertEquals(128, changed.ramQuotaMB());
    assertFalse(changed.flushEnabled());
    assertThrows(BucketNotFlushableException.class, () -> manager.flushBucket(name));
    manager.dropBucket(name);
    assertThrows(BucketNotFoundException.class, () -> manager.getBucket(name));
    assertThrows(BucketNotFoundException.class, () -> manager.dropBucket(name));
  }

  @Test
  void managesUsersAndGroups() {
    UserManager users = Connection.cluster("couchbase").users();
    String name = newKey();
    String group = newKey();
    String key = newKey();
    Connection.bucket("couchbase", "main").defaultCollection().upsert(key, 1);
    users.upsertGroup(new Group(group).description("Readers").roles(new Role("data_reader", "main")));
    users.upsertUser(new User(name).displayName("A reader").password("reader-pass").groups(group));
    assertEquals("A reader", users.getUser(
        com.couchbase.client.java.manager.user.AuthDomain.LOCAL, name).user().displayName());
    assertEquals("Readers", users.getGroup(group).description());
    assertTrue(users.getRoles().size() >= 5);
    try (Cluster client = Connection.open("couchbase", name, "reader-pass")) {
      Collection collection = client.bucket("main").defaultCollection();
      assertEquals(1, collection.get(key).contentAs(Integer.class));
      assertThrows(CouchbaseException.class, () -> collection.upsert(key, 2, upsertOptions().timeout(SHORT)));
    }
    users.dropUser(name);
    users.dropGroup(group);
    assertThrows(UserNotFoundException.class, () -> users.dropUser(name));
    assertThrows(GroupNotFoundException.class, () -> users.getGroup(group));
  }

  @Test
  void strangersStayOut() {
    try (Cluster stranger = Connection.open("couchbase", "nobody", "wrong")) {
      assertThrows(
          CouchbaseException.class,
          () -> stranger.bucket("main").defaultCollection().get("k", getOptions().timeout(Duration.ofSeconds(1))));
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"couchbase", "couchbases"})
  void pings(String scheme) {
    var report = Connection.bucket(scheme, "main")
        .ping(pingOptions().serviceTypes(Set.of(ServiceType.KV, ServiceType.MANAGER)));
    assertFalse(report.endpoints().get(ServiceType.KV).isEmpty());
    report.endpoints().values().forEach(
        each -> each.forEach(endpoint -> assertEquals(PingState.OK, endpoint.state(), endpoint::toString)));
    assertEquals(ClusterState.ONLINE, Connection.cluster(scheme).diagnostics().state());
  }
}
