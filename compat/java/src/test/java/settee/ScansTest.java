package settee;

import static com.couchbase.client.java.kv.ScanOptions.scanOptions;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static settee.Connection.newKey;

import com.couchbase.client.core.error.FeatureNotAvailableException;
import com.couchbase.client.core.msg.kv.MutationToken;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.MutationState;
import com.couchbase.client.java.kv.ScanOptions;
import com.couchbase.client.java.kv.ScanTerm;
import com.couchbase.client.java.kv.ScanType;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Range scans of a collection: over every vBucket. */
class ScansTest {
  private static final List<String> IDS =
      IntStream.range(0, 200).mapToObj(number -> String.format("song-%03d", number)).toList();

  private static List<String> ids(Collection collection, ScanType kind, ScanOptions options) {
    return collection.scan(kind, options).map(result -> result.id()).sorted().toList();
  }

  private static ScanOptions idsOnly() {
    return scanOptions().idsOnly(true);
  }

  @ParameterizedTest
  @ValueSource(strings = {"couchbase", "couchbases"})
  void scansACollection(String scheme) {
    Bucket bucket = Connection.bucket(scheme, "main");
    String name = newKey();
    bucket.collections().createCollection("_default", name);
    Collection songs = bucket.scope("_default").collection(name);
    List<MutationToken> tokens = new ArrayList<>();
    songs.upsert("other", JsonObject.create());
    for (String id : IDS) {
      songs.upsert(id, JsonObject.create().put("id", id)).mutationToken().ifPresent(tokens::add);
    }
    List<String> all = Stream.concat(Stream.of("other"), IDS.stream()).toList();
    List<String> found = new ArrayList<>();
    MutationState state = MutationState.from(tokens.toArray(MutationToken[]::new));
    songs.scan(ScanType.rangeScan(null, null), scanOptions().consistentWith(state)).forEach(result -> {
      found.add(result.id());
      assertNotEquals(0, result.cas());
      if (!result.id().equals("other")) {
        assertEquals(result.id(), result.contentAsObject().getString("id"));
      }
    });
    assertEquals(all, found.stream().sorted().toList());

    assertEquals(IDS.subList(100, 200), ids(songs, ScanType.prefixScan("song-1"), idsOnly()));
    ScanType range = ScanType.rangeScan(ScanTerm.inclusive(IDS.get(10)), ScanTerm.inclusive(IDS.get(20)));
    assertEquals(IDS.subList(10, 21), ids(songs, range, scanOptions()));
    ScanType within = ScanType.rangeScan(ScanTerm.exclusive(IDS.get(10)), ScanTerm.exclusive(IDS.get(20)));
    assertEquals(IDS.subList(11, 20), ids(songs, within, idsOnly()));
    assertEquals(List.of(), ids(songs, ScanType.prefixScan("nothing"), scanOptions()));
    ScanOptions small = scanOptions().batchItemLimit(1).batchByteLimit(0);
    assertEquals(IDS, ids(songs, ScanType.prefixScan("song-"), small));

    assertEquals(30, ids(songs, ScanType.samplingScan(30, 7), idsOnly()).size());
    assertEquals(all, ids(songs, ScanType.samplingScan(1000, 7), scanOptions()));
    bucket.collections().dropCollection("_default", name);
  }

  @Test
  void anEphemeralBucketHasNone() {
    Collection ephemeral = Connection.bucket("couchbase", "ephemeral").defaultCollection();
    ScanType everything = ScanType.rangeScan(null, null);
    assertThrows(FeatureNotAvailableException.class, () -> ephemeral.scan(everything).toList());
  }
}
