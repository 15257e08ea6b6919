package settee;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.CouchbaseClient;
import com.couchbase.client.CouchbaseConnectionFactory;
import com.couchbase.client.CouchbaseConnectionFactoryBuilder;
import com.couchbase.client.protocol.views.DesignDocument;
import com.couchbase.client.protocol.views.InvalidViewException;
import com.couchbase.client.protocol.views.Paginator;
import com.couchbase.client.protocol.views.Query;
import com.couchbase.client.protocol.views.Stale;
import com.couchbase.client.protocol.views.View;
import com.couchbase.client.protocol.views.ViewDesign;
import com.couchbase.client.protocol.views.ViewResponse;
import com.couchbase.client.protocol.views.ViewRow;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.PersistTo;
import net.spy.memcached.ReplicateTo;
import net.spy.memcached.internal.OperationFuture;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Everything Couchdoop, JMeter and YCSB did with this client, on the bucket that needs no password, on one that
 * does, and on one of type memcached. The build runs the class twice: with the carrier bootstrap (11210) and with the HTTP one (8091).
 */
class OldClientTest {
  private static final String ADDRESS = System.getenv("SETTEE_ADDRESS");
  private static final boolean HTTP = Boolean.getBoolean("cbclient.disableCarrierBootstrap");
  private static final Map<Access, CouchbaseClient> CLIENTS = new HashMap<>();
  private static final Map<Access, CouchbaseConnectionFactory> FACTORIES = new HashMap<>();

  enum Access {
    OPEN("default", ""),
    GUARDED("guarded", System.getenv("SETTEE_LEGACY_PASSWORD")),
    /** Of type memcached: no vBuckets, keys are placed by ketama. */
    CACHE("cache", System.getenv("SETTEE_LEGACY_PASSWORD"));

    final String bucket;
    final String password;

    Access(String bucket, String password) {
      this.bucket = bucket;
      this.password = password;
    }

    CouchbaseClient client() {
      return CLIENTS.computeIfAbsent(this, access -> {
        CouchbaseConnectionFactory factory = factory(access, access.password);
        FACTORIES.put(access, factory);
        return connect(factory);
      });
    }
  }

  private static CouchbaseConnectionFactory factory(Access access, String password) {
    try {
      List<URI> seeds = List.of(URI.create("http://" + ADDRESS + ":8091/pools"));
      CouchbaseConnectionFactoryBuilder builder = new CouchbaseConnectionFactoryBuilder();
      builder.setOpTimeout(10_000);
      return builder.buildCouchbaseConnection(seeds, access.bucket, password);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static CouchbaseClient connect(CouchbaseConnectionFactory factory) {
    try {
      return new CouchbaseClient(factory);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @AfterAll
  static void close() {
    CLIENTS.values().forEach(client -> client.shutdown(5, TimeUnit.SECONDS));
  }

  private static String newKey() {
    return "old-" + UUID.randomUUID();
  }

  private static void succeeds(OperationFuture<Boolean> future) throws Exception {
    assertTrue(future.get(), () -> future.getStatus().getMessage());
  }

  @ParameterizedTest
  @EnumSource
  void bootstrapsTheWayItWasTold(Access access) throws Exception {
    access.client();
    Object provider = FACTORIES.get(access).getConfigurationProvider();
    Field field = provider.getClass().getDeclaredField("bootstrapProvider");
    field.setAccessible(true);
    assertEquals(HTTP ? "HTTP" : "CARRIER", field.get(provider).toString());
    if (access != Access.CACHE) {
      assertEquals(1024, access.client().getNumVBuckets());
    }
  }

  @ParameterizedTest
  @EnumSource
  void storesAndReads(Access access) throws Exception {
    CouchbaseClient client = access.client();
    String key = newKey();
    assertNull(client.get(key));
    succeeds(client.set(key, 0, "one"));
    assertEquals("one", client.get(key));
    OperationFuture<Boolean> again = client.add(key, 0, "two");
    assertFalse(again.get());
    assertTrue(again.getStatus().getMessage().contains("exists"), again.getStatus().getMessage());
    succeeds(client.replace(key, 0, "three"));
    assertEquals("three", client.get(key));
    succeeds(client.delete(key));
    OperationFuture<Boolean> gone = client.replace(key, 0, "four");
    assertFalse(gone.get());
    assertEquals("Not found", gone.getStatus().getMessage());
    assertFalse(client.delete(key).get());
  }

  @ParameterizedTest
  @EnumSource
  void comparesAndSwaps(Access access) throws Exception {
    CouchbaseClient client = access.client();
    String key = newKey();
    succeeds(client.set(key, 0, "one"));
    CASValue<Object> read = client.gets(key);
    assertEquals(CASResponse.OK, client.cas(key, read.getCas(), "two"));
    assertEquals(CASResponse.EXISTS, client.cas(key, read.getCas(), "three"));
    assertEquals(CASResponse.NOT_FOUND, client.cas(newKey(), read.getCas(), "four"));
    assertEquals("two", client.get(key));
  }

  @ParameterizedTest
  @EnumSource
  void appendsPrependsAndCounts(Access access) throws Exception {
    CouchbaseClient client = access.client();
    String key = newKey();
    assertFalse(client.append(0, key, "x").get());
    succeeds(client.set(key, 0, "middle"));
    succeeds(client.append(0, key, "-end"));
    succeeds(client.prepend(0, key, "start-"));
    assertEquals("start-middle-end", client.get(key));
    String counter = newKey();
    assertEquals(-1, client.incr(counter, 1));
    assertEquals(10, client.incr(counter, 1, 10));
    assertEquals(15, client.incr(counter, 5));
    assertEquals(0, client.decr(counter, 100));
  }

  @ParameterizedTest
  @EnumSource
  void expiresAndTouches(Access access) throws Exception {
    CouchbaseClient client = access.client();
    String key = newKey();
    succeeds(client.set(key + 1, 1, "short"));
    succeeds(client.set(key + 2, 1, "kept"));
    succeeds(client.touch(key + 2, 100));
    succeeds(client.set(key + 3, 0, "cut"));
    assertEquals("cut", client.getAndTouch(key + 3, 1).getValue());
    assertFalse(client.touch(key + 4, 1).get());
    Thread.sleep(2200);
    assertNull(client.get(key + 1));
    assertEquals("kept", client.get(key + 2));
    assertNull(client.get(key + 3));
  }

  @ParameterizedTest
  @EnumSource
  void readsInBulk(Access access) throws Exception {
    CouchbaseClient client = access.client();
    String prefix = newKey();
    List<OperationFuture<Boolean>> stored = new ArrayList<>();
    Map<String, Object> documents = new HashMap<>();
    for (int number = 0; number < 2000; number++) {
      String document = "{\"number\":" + number + ",\"text\":\"" + "lorem ipsum ".repeat(number % 100) + "\"}";
      documents.put(prefix + number, document);
      stored.add(client.set(prefix + number, 0, document));
    }
    for (OperationFuture<Boolean> future : stored) {
      succeeds(future);
    }
    List<String> keys = new ArrayList<>(documents.keySet());
    keys.add(newKey());
    assertEquals(documents, client.getBulk(keys));
  }

  @ParameterizedTest
  @EnumSource
  void locks(Access access) throws Exception {
    CouchbaseClient client = access.client();
    String key = newKey();
    succeeds(client.set(key, 0, "one"));
    CASValue<Object> locked = client.getAndLock(key, 15);
    assertEquals("one", locked.getValue());
    assertEquals("one", client.get(key));
    assertFalse(client.set(key, 0, "two").get());
    OperationFuture<CASValue<Object>> second = client.asyncGetAndLock(key, 15);
    assertTrue(second.get() == null || second.get().getCas() == -1, "locked twice");
    assertFalse(client.unlock(key, locked.getCas() + 1));
    assertTrue(client.unlock(key, locked.getCas()));
    succeeds(client.set(key, 0, "three"));
  }

  @ParameterizedTest
  @EnumSource(value = Access.class, names = {"OPEN", "GUARDED"})
  void observesPersistence(Access access) throws Exception {
    CouchbaseClient client = access.client();
    String key = newKey();
    succeeds(client.set(key, 0, "one", PersistTo.MASTER));
    succeeds(client.set(key, 0, "two", PersistTo.ONE, ReplicateTo.ZERO));
    succeeds(client.delete(key, PersistTo.MASTER));
    assertNull(client.get(key));
  }

  @ParameterizedTest
  @EnumSource
  void tellsAboutItself(Access access) throws Exception {
    CouchbaseClient client = access.client();
    assertEquals(1, client.getVersions().size());
    client.getVersions().values().forEach(version -> assertTrue(version.startsWith("7.6"), version));
    client.getStats().values().forEach(stats -> assertNotNull(stats.get("curr_items"), stats::toString));
    assertEquals(1, client.getAvailableServers().size());
  }

  /** The client asks until it hears something final, or for 75 seconds and then reports a timeout. */
  @ParameterizedTest
  @EnumSource(value = Access.class, names = {"OPEN", "GUARDED"})
  void hearsThatAViewIsMissing(Access access) {
    CouchbaseClient client = access.client();
    assertThrows(InvalidViewException.class, () -> client.getView("songs", "electronic"));
  }

  /** Rows with and without documents, pages, ranges, keys and reductions: what Couchdoop asked for. */
  @ParameterizedTest
  @EnumSource(value = Access.class, names = {"OPEN", "GUARDED"})
  void asksViews(Access access) throws Exception {
    CouchbaseClient client = access.client();
    String prefix = newKey();
    List<String> ids = new ArrayList<>();
    for (int n = 0; n < 30; n++) {
      ids.add(String.format("%s-%02d", prefix, n));
      succeeds(client.set(ids.get(n), 0, "{\"n\":" + n % 3 + "}"));
    }
    String map = "function (doc, meta) { if (meta.id.indexOf('" + prefix + "') == 0) emit(doc.n, meta.id); }";
    DesignDocument design = new DesignDocument(prefix);
    design.setView(new ViewDesign("rows", map));
    design.setView(new ViewDesign("count", map, "_count"));
    assertTrue(client.createDesignDoc(design));

    View rows = client.getView(prefix, "rows");
    ViewResponse all = client.query(rows, current().setIncludeDocs(true));
    assertEquals(30, all.size());
    assertEquals(30, all.getTotalRows());
    for (ViewRow row : all) {
      assertEquals("{\"n\":" + row.getKey() + "}", row.getDocument());
      assertEquals(row.getId(), row.getValue());
    }
    List<String> paged = new ArrayList<>();
    Paginator pages = client.paginatedQuery(rows, current(), 7);
    while (pages.hasNext()) {
      pages.next().forEach(row -> paged.add(row.getId()));
    }
    assertEquals(30, paged.size());
    ids.removeAll(paged);
    assertEquals(List.of(), ids);

    Query page = current().setRangeStart("1").setStartkeyDocID(prefix + "-04").setRangeEnd("1").setLimit(2);
    List<String> found = new ArrayList<>();
    client.query(rows, page).forEach(row -> found.add(row.getId()));
    assertEquals(List.of(prefix + "-04", prefix + "-07"), found);
    assertEquals(20, client.query(rows, current().setKeys("[2,0]")).size());
    View count = client.getView(prefix, "count");
    assertEquals("30", client.query(count, current().setReduce(true)).iterator().next().getValue());
    assertEquals(3, client.query(count, current().setReduce(true).setGroup(true)).size());

    succeeds(client.set(prefix + "-new", 0, "{\"n\":77}"));
    assertEquals(1, client.query(rows, current().setKey("77")).size());
    succeeds(client.delete(prefix + "-new"));
    assertEquals(0, client.query(rows, current().setKey("77")).size());
    assertThrows(InvalidViewException.class, () -> client.getView(prefix, "none"));
    assertTrue(client.deleteDesignDoc(prefix));
  }

  private static Query current() {
    return new Query().setStale(Stale.FALSE);
  }

  @ParameterizedTest
  @EnumSource
  void saysTooLarge(Access access) throws Exception {
    // The transcoder itself stops at 20 MiB, so a value just below has to pass whole.
    String key = newKey();
    byte[] value = new byte[19 * 1024 * 1024];
    new Random(1).nextBytes(value);
    succeeds(access.client().set(key, 0, value));
    assertEquals(value.length, ((byte[]) access.client().get(key)).length);
    succeeds(access.client().delete(key));
  }

  @ParameterizedTest
  @EnumSource(value = Access.class, names = "GUARDED")
  void keepsStrangersOut(Access access) {
    assertThrows(Exception.class, () -> {
      CouchbaseClient stranger = connect(factory(access, "wrong"));
      try {
        Object read = stranger.asyncGet("k").get(2, TimeUnit.SECONDS);
        throw new AssertionError("read " + read);
      } finally {
        stranger.shutdown();
      }
    });
  }
}
