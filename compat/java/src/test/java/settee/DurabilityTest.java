package settee;

import static com.couchbase.client.java.kv.InsertOptions.insertOptions;
import static com.couchbase.client.java.kv.RemoveOptions.removeOptions;
import static com.couchbase.client.java.kv.ReplaceOptions.replaceOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static settee.Connection.newKey;

import com.couchbase.client.core.error.DurabilityImpossibleException;
import com.couchbase.client.core.error.DurabilityLevelNotAvailableException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.kv.PersistTo;
import com.couchbase.client.java.kv.ReplicateTo;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** Durable writes: on one node without replicas they work, and where they cannot, the error says why. */
class DurabilityTest {
  private static Collection collection(String scheme, String bucket) {
    return Connection.bucket(scheme, bucket).defaultCollection();
  }

  @ParameterizedTest
  @CsvSource({
    "couchbase,MAJORITY", "couchbase,MAJORITY_AND_PERSIST_TO_ACTIVE", "couchbase,PERSIST_TO_MAJORITY",
    "couchbases,MAJORITY", "couchbases,MAJORITY_AND_PERSIST_TO_ACTIVE", "couchbases,PERSIST_TO_MAJORITY",
  })
  void worksWithoutReplicas(String scheme, DurabilityLevel level) {
    Collection collection = collection(scheme, "main");
    String key = newKey();
    collection.insert(key, 1, insertOptions().durability(level));
    long cas = collection.upsert(key, 2, upsertOptions().durability(level)).cas();
    collection.replace(key, 3, replaceOptions().durability(level).cas(cas));
    assertEquals(3, collection.get(key).contentAs(Integer.class));
    collection.remove(key, removeOptions().durability(level));
    assertFalse(collection.exists(key).exists());
  }

  @ParameterizedTest
  @EnumSource(value = DurabilityLevel.class, mode = EnumSource.Mode.EXCLUDE, names = "NONE")
  void isImpossibleWithAbsentReplicas(DurabilityLevel level) {
    assertThrows(
        DurabilityImpossibleException.class,
        () -> collection("couchbase", "replicated").upsert(newKey(), 1, upsertOptions().durability(level)));
  }

  @ParameterizedTest
  @EnumSource(value = DurabilityLevel.class, mode = EnumSource.Mode.EXCLUDE, names = {"NONE", "MAJORITY"})
  void memoryCannotPersist(DurabilityLevel level) {
    assertThrows(
        DurabilityLevelNotAvailableException.class,
        () -> collection("couchbase", "ephemeral").upsert(newKey(), 1, upsertOptions().durability(level)));
  }

  @Test
  void observesPersistence() {
    Collection collection = collection("couchbase", "main");
    String key = newKey();
    collection.upsert(key, 1, upsertOptions().durability(PersistTo.ACTIVE, ReplicateTo.NONE));
    collection.upsert(key, 2, upsertOptions().durability(PersistTo.ONE, ReplicateTo.NONE));
    collection.remove(key, removeOptions().durability(PersistTo.ACTIVE, ReplicateTo.NONE));
    assertFalse(collection.exists(key).exists());
  }
}
