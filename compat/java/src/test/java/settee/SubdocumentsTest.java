package settee;

import static com.couchbase.client.java.kv.GetOptions.getOptions;
import static com.couchbase.client.java.kv.LookupInOptions.lookupInOptions;
import static com.couchbase.client.java.kv.MutateInOptions.mutateInOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static settee.Connection.newKey;

import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.subdoc.DeltaInvalidException;
import com.couchbase.client.core.error.subdoc.PathExistsException;
import com.couchbase.client.core.error.subdoc.PathInvalidException;
import com.couchbase.client.core.error.subdoc.PathMismatchException;
import com.couchbase.client.core.error.subdoc.PathNotFoundException;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.GetResult;
import com.couchbase.client.java.kv.LookupInMacro;
import com.couchbase.client.java.kv.LookupInReplicaResult;
import com.couchbase.client.java.kv.LookupInResult;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutateInMacro;
import com.couchbase.client.java.kv.MutateInResult;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.kv.StoreSemantics;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import settee.Connection.Way;

/** Parts of documents, extended attributes, and reads that the SDK makes of them. */
class SubdocumentsTest {
  private static final JsonObject SONG =
      JsonObject.create().put("title", "Águas de Março").put("year", 1972).put("by", JsonArray.from("Elis", "Tom"));

  private static String song(Collection collection) {
    String key = newKey();
    collection.upsert(key, SONG);
    return key;
  }

  private static LookupInResult look(Collection collection, String key, LookupInSpec... specs) {
    return collection.lookupIn(key, Arrays.asList(specs));
  }

  private static <T> T attribute(Collection collection, String key, String path, Class<T> type) {
    return look(collection, key, LookupInSpec.get(path).xattr()).contentAs(0, type);
  }

  @ParameterizedTest
  @EnumSource
  void looksUp(Way way) {
    Collection collection = way.collection();
    String key = song(collection);
    LookupInResult read = look(
        collection,
        key,
        LookupInSpec.get("by[-1]"),
        LookupInSpec.exists("year"),
        LookupInSpec.count("by"),
        LookupInSpec.get(""),
        LookupInSpec.exists("none"),
        LookupInSpec.get("year.x"),
        LookupInSpec.get("by["));
    assertEquals("Tom", read.contentAs(0, String.class));
    assertTrue(read.exists(1));
    assertEquals(2, read.contentAs(2, Integer.class));
    assertEquals(SONG, read.contentAsObject(3));
    assertFalse(read.exists(4));
    assertThrows(PathMismatchException.class, () -> read.contentAs(5, String.class));
    assertThrows(PathInvalidException.class, () -> read.contentAs(6, String.class));
    assertEquals(collection.get(key).cas(), read.cas());
    assertThrows(DocumentNotFoundException.class, () -> look(collection, key + "-none", LookupInSpec.get("a")));
  }

  @ParameterizedTest
  @EnumSource
  void mutates(Way way) {
    Collection collection = way.collection();
    String key = song(collection);
    MutateInResult done = collection.mutateIn(
        key,
        List.of(
            MutateInSpec.insert("label.name", "Philips").createPath(),
            MutateInSpec.upsert("year", 1974),
            MutateInSpec.replace("title", "Waters of March"),
            MutateInSpec.remove("by[0]"),
            MutateInSpec.arrayAppend("by", List.of("and", "others")),
            MutateInSpec.arrayPrepend("by", List.of("first")),
            MutateInSpec.arrayInsert("by[1]", List.of("second")),
            MutateInSpec.arrayAddUnique("by", "last"),
            MutateInSpec.increment("plays", 43),
            MutateInSpec.decrement("plays", 1)));
    assertEquals(42, done.contentAs(9, Integer.class));
    GetResult read = collection.get(key);
    JsonObject expected = JsonObject.create()
        .put("title", "Waters of March")
        .put("year", 1974)
        .put("by", JsonArray.from("first", "second", "Tom", "and", "others", "last"))
        .put("label", JsonObject.create().put("name", "Philips"))
        .put("plays", 42);
    assertEquals(expected, read.contentAsObject());
    assertEquals(read.cas(), done.cas());
    assertTrue(done.mutationToken().isPresent());
  }

  @ParameterizedTest
  @EnumSource
  void undoesEverythingWhenOneFails(Way way) {
    Collection collection = way.collection();
    String key = song(collection);
    Map<MutateInSpec, Class<? extends Exception>> failures = Map.of(
        MutateInSpec.insert("title", 1), PathExistsException.class,
        MutateInSpec.upsert("a.b", 1), PathNotFoundException.class,
        MutateInSpec.arrayAppend("title", List.of(1)), PathMismatchException.class,
        MutateInSpec.arrayAddUnique("by", "Tom"), PathExistsException.class,
        MutateInSpec.increment("title", 1), PathMismatchException.class,
        MutateInSpec.increment("year", 0), DeltaInvalidException.class);
    failures.forEach((spec, error) -> assertThrows(
        error, () -> collection.mutateIn(key, List.of(MutateInSpec.upsert("year", 0), spec))));
    assertEquals(SONG, collection.get(key).contentAsObject());
  }

  @ParameterizedTest
  @EnumSource
  void createsDocuments(Way way) {
    Collection collection = way.collection();
    String key = newKey();
    List<MutateInSpec> specs = List.of(MutateInSpec.upsert("a.b", 1).createPath());
    assertThrows(DocumentNotFoundException.class, () -> collection.mutateIn(key, specs));
    collection.mutateIn(key, specs, mutateInOptions().storeSemantics(StoreSemantics.INSERT));
    assertThrows(
        DocumentExistsException.class,
        () -> collection.mutateIn(key, specs, mutateInOptions().storeSemantics(StoreSemantics.INSERT)));
    long cas = collection.mutateIn(key, specs, mutateInOptions().storeSemantics(StoreSemantics.UPSERT)).cas();
    assertEquals(1, collection.get(key).contentAsObject().getObject("a").getInt("b"));
    collection.mutateIn(key, specs, mutateInOptions().cas(cas));
    assertThrows(CasMismatchException.class, () -> collection.mutateIn(key, specs, mutateInOptions().cas(cas)));
  }

  @ParameterizedTest
  @EnumSource
  void readsWithExpiryAndProjection(Way way) {
    Collection collection = way.collection();
    String key = newKey();
    collection.upsert(key, SONG, upsertOptions().expiry(Duration.ofHours(1)));
    GetResult read = collection.get(key, getOptions().withExpiry(true).project("title", "by[0]", "none"));
    JsonObject expected = JsonObject.create().put("title", "Águas de Março").put("by", JsonArray.from("Elis"));
    assertEquals(expected, read.contentAsObject());
    Instant expiry = read.expiryTime().orElseThrow();
    assertTrue(Duration.between(Instant.now(), expiry).minusHours(1).abs().getSeconds() < 10);
    List<MutateInSpec> specs = List.of(MutateInSpec.upsert("year", 1));
    collection.mutateIn(key, specs, mutateInOptions().preserveExpiry(true));
    assertEquals(expiry, collection.get(key, getOptions().withExpiry(true)).expiryTime().orElseThrow());
    collection.mutateIn(key, specs);
    assertTrue(collection.get(key, getOptions().withExpiry(true)).expiryTime().isEmpty());
  }

  @ParameterizedTest
  @EnumSource
  void keepsExtendedAttributes(Way way) {
    Collection collection = way.collection();
    String key = song(collection);
    MutateInResult done = collection.mutateIn(
        key,
        List.of(
            MutateInSpec.upsert("user.deep", 1).xattr().createPath(),
            MutateInSpec.upsert("_system", "kept").xattr(),
            MutateInSpec.upsert("macros.cas", MutateInMacro.CAS).xattr().createPath(),
            MutateInSpec.upsert("macros.seqno", MutateInMacro.SEQ_NO).xattr(),
            MutateInSpec.upsert("macros.crc", MutateInMacro.VALUE_CRC_32C).xattr(),
            MutateInSpec.upsert("year", 1973)));
    JsonObject macros = attribute(collection, key, "macros", JsonObject.class);
    JsonObject about = look(collection, key, LookupInSpec.get(LookupInMacro.DOCUMENT).xattr()).contentAsObject(0);
    assertEquals(String.format("0x%016x", done.cas()), about.getString("CAS"));
    assertEquals(String.format("0x%016x", Long.reverseBytes(done.cas())), macros.getString("cas"));
    assertEquals(about.getString("seqno"), macros.getString("seqno"));
    assertEquals(about.getString("value_crc32c"), macros.getString("crc"));
    assertEquals(1, attribute(collection, key, "user.deep", Integer.class));
    assertEquals(
        JsonArray.from("user", "_system", "macros"), attribute(collection, key, "$XTOC", JsonArray.class));
    assertEquals(1973, collection.get(key).contentAsObject().getInt("year"));

    collection.remove(key);
    List<LookupInSpec> specs = List.of(LookupInSpec.get("_system").xattr(), LookupInSpec.exists("user").xattr());
    assertThrows(DocumentNotFoundException.class, () -> collection.lookupIn(key, specs));
    LookupInResult tombstone = collection.lookupIn(key, specs, lookupInOptions().accessDeleted(true));
    assertEquals("kept", tombstone.contentAs(0, String.class));
    assertFalse(tombstone.exists(1));
    assertTrue(tombstone.isDeleted());
  }

  @ParameterizedTest
  @EnumSource
  void findsTheActiveAmongReplicas(Way way) {
    Collection collection = way.collection();
    String key = song(collection);
    LookupInReplicaResult read = collection.lookupInAnyReplica(key, List.of(LookupInSpec.get("year")));
    assertEquals(1972, read.contentAs(0, Integer.class));
    assertFalse(read.isReplica());
    assertEquals(1, collection.lookupInAllReplicas(key, List.of(LookupInSpec.get("year"))).count());
  }
}
