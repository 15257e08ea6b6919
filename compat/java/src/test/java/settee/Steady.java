package settee;

import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.UpsertOptions;
import java.io.IOException;
import java.io.OutputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** A steady client on the official Java SDK: see compat/steady/run.py for what such a client does and says. */
final class Steady {
  private static final int WORKERS = 4;
  private static final int KEYS = 50;
  private static final long PAUSE_MILLIS = 20;
  /** Stands for no document. */
  private static final int ABSENT = 0;

  private static volatile boolean over = false;

  private Steady() {}

  private static synchronized void say(JsonObject what) {
    System.out.println(what);
    System.out.flush();
  }

  /** What a worker knows of a key: what was acknowledged and when, and what may have been written since. */
  private static final class Known {
    int value = ABSENT;
    long since = 0;
    final Set<Integer> doubts = new HashSet<>();
  }

  /** Writes its own keys one after the other and reads each back; every other worker writes durably. */
  private static final class Worker extends Thread {
    private final Collection collection;
    private final String kind;
    private final DurabilityLevel level;
    private final List<String> keys = new ArrayList<>();
    private final Map<String, Known> known = new HashMap<>();
    int done = 0;

    Worker(Collection collection, int number) {
      this.collection = collection;
      this.kind = number % 2 == 1 ? "durable" : "plain";
      this.level = number % 2 == 1 ? DurabilityLevel.MAJORITY : DurabilityLevel.NONE;
      for (int key = 0; key < KEYS; key++) {
        keys.add("java-" + number + "-" + key);
        known.put(keys.get(key), new Known());
      }
    }

    @Override
    public void run() {
      while (!over) {
        String key = keys.get(done % KEYS);
        done++;
        write(key, done);
        read(key);
        Connection.pause(PAUSE_MILLIS);
      }
    }

    void readAll() {
      keys.forEach(this::read);
    }

    private void complain(String op, String key, long began, CouchbaseException error) {
      say(JsonObject.create().put("what", "error").put("kind", kind).put("op", op).put("key", key).put("began", began)
          .put("at", System.currentTimeMillis()).put("text", error.toString()));
    }

    private void write(String key, int number) {
      long began = System.currentTimeMillis();
      Known known = this.known.get(key);
      try {
        collection.upsert(key, number, UpsertOptions.upsertOptions().durability(level));
        known.value = number;
        known.since = System.currentTimeMillis();
        known.doubts.clear();
      } catch (CouchbaseException error) {
        known.doubts.add(number);
        complain("write", key, began, error);
      }
    }

    private void read(String key) {
      long began = System.currentTimeMillis();
      int found;
      try {
        found = collection.get(key).contentAs(Integer.class);
      } catch (DocumentNotFoundException absent) {
        found = ABSENT;
      } catch (CouchbaseException error) {
        complain("read", key, began, error);
        return;
      }
      Known known = this.known.get(key);
      if (found == known.value || known.doubts.contains(found)) {
        return;
      }
      long at = System.currentTimeMillis();
      say(JsonObject.create().put("what", "wrong").put("kind", kind).put("key", key).put("acknowledged", known.since)
          .put("expected", known.value).put("found", found).put("at", at));
      // Told once: from here on this is what it is.
      known.value = found;
      known.since = at;
    }
  }

  public static void main(String[] arguments) throws IOException, InterruptedException {
    Cluster cluster = Cluster.connect("couchbase://" + arguments[0], arguments[1], arguments[2]);
    Bucket bucket = cluster.bucket(arguments[3]);
    bucket.waitUntilReady(Duration.ofSeconds(20));
    List<Worker> workers = new ArrayList<>();
    for (int number = 0; number < WORKERS; number++) {
      workers.add(new Worker(bucket.defaultCollection(), number));
    }
    workers.forEach(Thread::start);
    say(JsonObject.create().put("what", "ready"));
    // Until the end of the input.
    System.in.transferTo(OutputStream.nullOutputStream());
    over = true;
    int operations = 0;
    for (Worker worker : workers) {
      worker.join();
      worker.readAll();
      operations += worker.done;
    }
    say(JsonObject.create().put("what", "done").put("operations", operations));
    cluster.disconnect();
  }
}
