package settee;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.codec.RawBinaryTranscoder;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.UpsertOptions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ThreadLocalRandom;
import org.junit.jupiter.api.Test;

/** More writes than the disk takes, from a client as it comes: the server holds them back so far that it never notices. */
final class PacedTest {
  /** Of the server that is pressed; the one of the suite goes on. */
  private static final String ADDRESS = "127.0.31.19";

  private static final Duration LOAD = Duration.ofSeconds(12);
  private static final int WRITERS = 24;
  private static final int VALUE_BYTES = 10_000;
  private static final int OLD = 2000;
  /** The pressure from which on mutations are held to what the disk takes. */
  private static final int PACING = 3;

  @Test
  void anOverloadedDiskIsNoError() throws Exception {
    try (OwnNode node = new OwnNode(ADDRESS, "java-paced", "--disk-bytes-per-sec", "4000000")) {
      Cluster cluster = Cluster.connect("couchbase://" + ADDRESS, Connection.USERNAME, Connection.PASSWORD);
      try {
        Bucket bucket = cluster.bucket("main");
        bucket.waitUntilReady(Connection.PATIENCE);
        press(bucket.defaultCollection());
      } finally {
        cluster.disconnect();
      }
      assertTrue(Integer.parseInt(node.tell("pressure")) >= PACING, "the disk kept up: nothing was tested");
    }
  }

  private static void press(Collection collection) throws InterruptedException {
    String key = Connection.newKey();
    for (int number = 0; number < OLD; number++) {
      collection.upsert(key + "-old-" + number, JsonObject.create().put("n", number));
    }
    Queue<CouchbaseException> failures = new ConcurrentLinkedQueue<>();
    Instant until = Instant.now().plus(LOAD);
    List<Thread> writers = new ArrayList<>();
    for (int number = 0; number < WRITERS; number++) {
      String prefix = key + "-" + number + "-";
      Thread writer = new Thread(() -> write(collection, prefix, until, failures));
      writer.start();
      writers.add(writer);
    }
    for (int number = 0; number < OLD && Instant.now().isBefore(until); number++) {
      String name = key + "-old-" + number;
      assertEquals(number, collection.get(name).contentAsObject().getInt("n"));
      collection.remove(name);
      Connection.pause(5);
    }
    for (Thread writer : writers) {
      writer.join();
    }
    assertEquals(List.of(), List.copyOf(failures));
  }

  private static void write(Collection collection, String prefix, Instant until, Queue<CouchbaseException> failures) {
    UpsertOptions raw = UpsertOptions.upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE);
    byte[] value = new byte[VALUE_BYTES];
    for (int count = 0; Instant.now().isBefore(until); count++) {
      ThreadLocalRandom.current().nextBytes(value);
      try {
        collection.upsert(prefix + count, value, raw);
      } catch (CouchbaseException failure) {
        failures.add(failure);
      }
    }
  }
}
