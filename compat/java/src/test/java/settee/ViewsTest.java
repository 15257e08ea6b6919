package settee;

import static com.couchbase.client.java.view.ViewOptions.viewOptions;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static settee.Connection.newKey;

import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.ViewNotFoundException;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.manager.view.DesignDocument;
import com.couchbase.client.java.manager.view.View;
import com.couchbase.client.java.manager.view.ViewIndexManager;
import com.couchbase.client.java.view.DesignDocumentNamespace;
import com.couchbase.client.java.view.ViewOptions;
import com.couchbase.client.java.view.ViewResult;
import com.couchbase.client.java.view.ViewScanConsistency;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Views, as the SDK makes and asks them. */
class ViewsTest {
  private static final int COUNT = 60;

  private static ViewOptions current() {
    return viewOptions()
        .namespace(DesignDocumentNamespace.PRODUCTION)
        .scanConsistency(ViewScanConsistency.REQUEST_PLUS)
        .timeout(Duration.ofSeconds(20));
  }

  /** Makes documents whose ids begin with the prefix, and a published design document of that name. */
  private static ViewIndexManager fill(Bucket bucket, String prefix) {
    for (int n = 0; n < COUNT; n++) {
      JsonObject song = JsonObject.create().put("n", n).put("artist", "Ä" + n % 4);
      bucket.defaultCollection().upsert(String.format("%s-%02d", prefix, n), song);
    }
    String map = "function (doc, meta) { if (meta.id.indexOf('" + prefix + "') == 0) emit(doc.artist, doc.n); }";
    ViewIndexManager manager = bucket.viewIndexes();
    DesignDocument design = new DesignDocument(prefix, Map.of("rows", new View(map), "sum", new View(map, "_sum")));
    manager.upsertDesignDocument(design, DesignDocumentNamespace.DEVELOPMENT);
    manager.publishDesignDocument(prefix);
    return manager;
  }

  @ParameterizedTest
  @ValueSource(strings = {"couchbase", "couchbases"})
  void viewsTellRowsRangesAndReductions(String scheme) {
    Bucket bucket = Connection.bucket(scheme, "main");
    String prefix = newKey();
    ViewIndexManager manager = fill(bucket, prefix);

    ViewResult all = bucket.viewQuery(prefix, "rows", current());
    assertEquals(COUNT, all.metaData().totalRows());
    assertEquals(COUNT, all.rows().size());
    assertEquals(prefix + "-00", all.rows().get(0).id().orElseThrow());
    assertEquals("Ä0", all.rows().get(0).keyAs(String.class).orElseThrow());
    ViewOptions range = current().startKey("Ä1").endKey("Ä3").inclusiveEnd(false);
    assertEquals(COUNT / 2, bucket.viewQuery(prefix, "rows", range).rows().size());
    ViewOptions keys = current().keys(JsonArray.from("Ä3", "Ä0", "B"));
    assertEquals("Ä3", bucket.viewQuery(prefix, "rows", keys).rows().get(0).keyAs(String.class).orElseThrow());
    List<Integer> values =
        bucket.viewQuery(prefix, "rows", current().key("Ä2").skip(1).limit(2)).rows().stream()
            .map(row -> row.valueAs(Integer.class).orElseThrow())
            .toList();
    assertEquals(List.of(6, 10), values);

    ViewResult sum = bucket.viewQuery(prefix, "sum", current().reduce(true));
    assertEquals(COUNT * (COUNT - 1) / 2, sum.rows().get(0).valueAs(Integer.class).orElseThrow());
    assertEquals(0, sum.metaData().totalRows());
    assertEquals(4, bucket.viewQuery(prefix, "sum", current().reduce(true).group(true)).rows().size());

    for (int n = 0; n < 10; n++) {
      bucket.defaultCollection().upsert(prefix + "-new", JsonObject.create().put("n", n).put("artist", "new " + n));
      assertEquals(1, bucket.viewQuery(prefix, "rows", current().key("new " + n)).rows().size());
    }

    assertThrows(ViewNotFoundException.class, () -> bucket.viewQuery(prefix, "none", current()));
    assertThrows(ViewNotFoundException.class, () -> bucket.viewQuery("none", "rows", current()));
    DesignDocument broken = new DesignDocument(prefix + "x", Map.of("v", new View("function (")));
    CouchbaseException refused = assertThrows(CouchbaseException.class,
        () -> manager.upsertDesignDocument(broken, DesignDocumentNamespace.PRODUCTION));
    assertTrue(refused.toString().contains("invalid_design_document"), refused::toString);
    manager.dropDesignDocument(prefix, DesignDocumentNamespace.DEVELOPMENT);
    manager.dropDesignDocument(prefix, DesignDocumentNamespace.PRODUCTION);
  }
}
