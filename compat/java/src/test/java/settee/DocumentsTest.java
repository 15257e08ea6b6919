package settee;

import static com.couchbase.client.java.kv.DecrementOptions.decrementOptions;
import static com.couchbase.client.java.kv.GetOptions.getOptions;
import static com.couchbase.client.java.kv.IncrementOptions.incrementOptions;
import static com.couchbase.client.java.kv.RemoveOptions.removeOptions;
import static com.couchbase.client.java.kv.ReplaceOptions.replaceOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static settee.Connection.newKey;

import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.DocumentNotLockedException;
import com.couchbase.client.core.error.InvalidArgumentException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.core.error.ValueTooLargeException;
import com.couchbase.client.core.msg.kv.MutationToken;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.ReactiveCollection;
import com.couchbase.client.java.codec.RawBinaryTranscoder;
import com.couchbase.client.java.codec.RawJsonTranscoder;
import com.couchbase.client.java.codec.RawStringTranscoder;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.GetResult;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import reactor.core.publisher.Flux;
import settee.Connection.Way;

/** Every key-value call of the SDK, over plain and TLS, on a persistent and a memory-only bucket. */
class DocumentsTest {
  private static final int LIMIT = 20 * 1024 * 1024;
  private static final Duration SHORT = Duration.ofMillis(800);
  private static final Duration LONG = Duration.ofSeconds(30);

  private static void goneWithin(Collection collection, String key, int seconds) {
    Connection.within(Duration.ofSeconds(seconds), "the end of " + key, () -> !collection.exists(key).exists());
  }

  @ParameterizedTest
  @EnumSource
  void storesAndReads(Way way) {
    Collection collection = way.collection();
    String key = newKey();
    assertThrows(DocumentNotFoundException.class, () -> collection.get(key));
    assertThrows(DocumentNotFoundException.class, () -> collection.replace(key, 1));
    JsonObject song = JsonObject.create().put("title", "Águas de Março").put("year", 1972);
    long first = collection.insert(key, song).cas();
    assertThrows(DocumentExistsException.class, () -> collection.insert(key, song));
    GetResult read = collection.get(key);
    assertEquals(song, read.contentAsObject());
    assertEquals(first, read.cas());
    long second = collection.upsert(key, JsonArray.from(1, 2.5, null, true)).cas();
    assertThrows(CasMismatchException.class, () -> collection.replace(key, 1, replaceOptions().cas(first)));
    long third = collection.replace(key, "three", replaceOptions().cas(second)).cas();
    assertEquals("three", collection.get(key).contentAs(String.class));
    assertThrows(CasMismatchException.class, () -> collection.remove(key, removeOptions().cas(first)));
    assertTrue(collection.exists(key).exists());
    collection.remove(key, removeOptions().cas(third));
    assertThrows(DocumentNotFoundException.class, () -> collection.remove(key));
    assertFalse(collection.exists(key).exists());
  }

  @ParameterizedTest
  @EnumSource
  void expires(Way way) {
    Collection collection = way.collection();
    String key = newKey();
    collection.upsert(key + 1, 1, upsertOptions().expiry(Duration.ofSeconds(1)));
    collection.upsert(key + 2, 1, upsertOptions().expiry(Instant.now().plusSeconds(2)));
    collection.upsert(key + 3, 1, upsertOptions().expiry(Duration.ofSeconds(2)));
    collection.upsert(key + 3, 2, upsertOptions().preserveExpiry(true));
    collection.replace(key + 3, 3, replaceOptions().preserveExpiry(true));
    collection.upsert(key + 4, 1);
    collection.touch(key + 4, Duration.ofSeconds(100));
    assertEquals(1, collection.getAndTouch(key + 4, Duration.ofSeconds(1)).contentAs(Integer.class));
    collection.upsert(key + 5, 1, upsertOptions().expiry(Duration.ofSeconds(1)));
    collection.upsert(key + 5, 2);
    collection.upsert(key + 6, 1, upsertOptions().expiry(Duration.ofDays(40)));
    for (int number = 1; number <= 4; number++) {
      goneWithin(collection, key + number, 5);
    }
    assertEquals(2, collection.get(key + 5).contentAs(Integer.class));
    assertEquals(1, collection.get(key + 6).contentAs(Integer.class));
    assertThrows(DocumentNotFoundException.class, () -> collection.touch(key + 7, SHORT.plusSeconds(1)));
    assertThrows(DocumentNotFoundException.class, () -> collection.getAndTouch(key + 7, SHORT.plusSeconds(1)));
  }

  @ParameterizedTest
  @EnumSource
  void counts(Way way) {
    Collection collection = way.collection();
    String key = newKey();
    assertThrows(DocumentNotFoundException.class, () -> collection.binary().increment(key));
    assertEquals(10, collection.binary().increment(key, incrementOptions().initial(10)).content());
    assertEquals(42, collection.binary().increment(key, incrementOptions().delta(32)).content());
    assertEquals(40, collection.binary().decrement(key, decrementOptions().delta(2)).content());
    assertEquals(0, collection.binary().decrement(key, decrementOptions().delta(100)).content());
    collection.upsert(key, "words");
    assertThrows(CouchbaseException.class, () -> collection.binary().increment(key));
  }

  @ParameterizedTest
  @EnumSource
  void appendsAndPrepends(Way way) {
    Collection collection = way.collection();
    String key = newKey();
    byte[] bytes = "middle".getBytes(StandardCharsets.UTF_8);
    assertThrows(CouchbaseException.class, () -> collection.binary().append(key, bytes));
    collection.upsert(key, bytes, upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE));
    collection.binary().append(key, "-end".getBytes(StandardCharsets.UTF_8));
    collection.binary().prepend(key, "start-".getBytes(StandardCharsets.UTF_8));
    byte[] read = collection.get(key, getOptions().transcoder(RawBinaryTranscoder.INSTANCE)).contentAsBytes();
    assertEquals("start-middle-end", new String(read, StandardCharsets.UTF_8));
  }

  @ParameterizedTest
  @EnumSource
  void locks(Way way) {
    Collection collection = way.collection();
    String key = newKey();
    collection.upsert(key, 1);
    long cas = collection.getAndLock(key, Duration.ofSeconds(15)).cas();
    assertEquals(1, collection.get(key).contentAs(Integer.class));
    assertThrows(TimeoutException.class, () -> collection.upsert(key, 2, upsertOptions().timeout(SHORT)));
    assertThrows(CouchbaseException.class, () -> collection.unlock(key, cas + 1));
    collection.unlock(key, cas);
    assertThrows(DocumentNotLockedException.class, () -> collection.unlock(key, cas));
    long again = collection.getAndLock(key, Duration.ofSeconds(15)).cas();
    collection.replace(key, 3, replaceOptions().cas(again));
    collection.getAndLock(key, Duration.ofSeconds(1));
    // Retried by the SDK until the lock has run out.
    collection.upsert(key, 4);
    assertThrows(DocumentNotFoundException.class, () -> collection.getAndLock(newKey(), Duration.ofSeconds(1)));
  }

  @ParameterizedTest
  @EnumSource
  void transcodes(Way way) {
    Collection collection = way.collection();
    String key = newKey();
    byte[] bytes = new byte[256];
    for (int number = 0; number < bytes.length; number++) {
      bytes[number] = (byte) number;
    }
    collection.upsert(key, bytes, upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE));
    assertArrayEquals(
        bytes, collection.get(key, getOptions().transcoder(RawBinaryTranscoder.INSTANCE)).contentAsBytes());
    String text = "naïve ☃ 🎵";
    collection.upsert(key, text, upsertOptions().transcoder(RawStringTranscoder.INSTANCE));
    assertEquals(
        text, collection.get(key, getOptions().transcoder(RawStringTranscoder.INSTANCE)).contentAs(String.class));
    String json = "{\"raw\":  [1, 2.5e3]}";
    collection.upsert(key, json, upsertOptions().transcoder(RawJsonTranscoder.INSTANCE));
    assertEquals(
        json, collection.get(key, getOptions().transcoder(RawJsonTranscoder.INSTANCE)).contentAs(String.class));
  }

  @ParameterizedTest
  @EnumSource
  void givesMutationTokens(Way way) {
    Collection collection = way.collection();
    String key = newKey();
    MutationToken first = collection.upsert(key, 1).mutationToken().orElseThrow();
    MutationToken second = collection.remove(key).mutationToken().orElseThrow();
    assertEquals(first.partitionUUID(), second.partitionUUID());
    assertTrue(second.sequenceNumber() > first.sequenceNumber());
  }

  @ParameterizedTest
  @EnumSource
  void takesKeysOfAllSorts(Way way) {
    Collection collection = way.collection();
    // The SDK counts the collection prefix, so its longest key has 249 bytes.
    for (String key : new String[] {newKey() + " space", newKey() + "/☃/ключ/鍵", newKey() + "x".repeat(208)}) {
      collection.upsert(key, key);
      assertEquals(key, collection.get(key).contentAs(String.class));
      collection.remove(key);
    }
    assertThrows(InvalidArgumentException.class, () -> collection.upsert("k".repeat(251), 1));
  }

  @ParameterizedTest
  @EnumSource
  void takesLargeValues(Way way) {
    Collection collection = way.collection();
    String key = newKey();
    byte[] random = new byte[LIMIT + 1];
    new Random(1).nextBytes(random);
    byte[] compressible = "all work and no play ".repeat(100_000).getBytes(StandardCharsets.UTF_8);
    for (byte[] value : new byte[][] {{}, Arrays.copyOf(random, LIMIT), compressible}) {
      collection.upsert(key, value, upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE).timeout(LONG));
      GetResult read = collection.get(key, getOptions().transcoder(RawBinaryTranscoder.INSTANCE).timeout(LONG));
      assertTrue(Arrays.equals(value, read.contentAsBytes()), value.length + " bytes");
    }
    assertThrows(
        ValueTooLargeException.class,
        () -> collection.upsert(
            key, random, upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE).timeout(LONG)));
    collection.remove(key);
  }

  @ParameterizedTest
  @EnumSource
  void doesThousandsAtOnce(Way way) {
    ReactiveCollection collection = way.collection().reactive();
    String key = newKey();
    Long stored = Flux.range(0, 5000)
        .flatMap(number -> collection.upsert(key + number, number, upsertOptions().timeout(LONG)), 2000)
        .count()
        .block();
    assertEquals(5000, stored);
    Boolean same = Flux.range(0, 5000)
        .flatMap(
            number -> collection.get(key + number, getOptions().timeout(LONG))
                .map(read -> read.contentAs(Integer.class).equals(number)),
            2000)
        .all(each -> each)
        .block();
    assertTrue(same);
  }

  @ParameterizedTest
  @EnumSource
  void readsAnyCopy(Way way) {
    String key = newKey();
    way.collection().upsert(key, 1);
    assertFalse(way.collection().getAnyReplica(key).isReplica());
    assertEquals(1, way.collection().getAllReplicas(key).count());
    Collection replicated = Connection.bucket(way.scheme, "replicated").defaultCollection();
    replicated.upsert(key, 1);
    assertFalse(replicated.getAnyReplica(key).isReplica());
  }
}
