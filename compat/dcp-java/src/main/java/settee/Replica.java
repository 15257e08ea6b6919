package settee;

import com.couchbase.client.dcp.highlevel.CollectionCreated;
import com.couchbase.client.dcp.highlevel.CollectionDropped;
import com.couchbase.client.dcp.highlevel.DatabaseChangeListener;
import com.couchbase.client.dcp.highlevel.Deletion;
import com.couchbase.client.dcp.highlevel.DocumentChange;
import com.couchbase.client.dcp.highlevel.Mutation;
import com.couchbase.client.dcp.highlevel.Rollback;
import com.couchbase.client.dcp.highlevel.SeqnoAdvanced;
import com.couchbase.client.dcp.highlevel.SnapshotDetails;
import com.couchbase.client.dcp.highlevel.SnapshotMarker;
import com.couchbase.client.dcp.highlevel.StreamFailure;
import com.couchbase.client.dcp.highlevel.StreamOffset;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.BiConsumer;

/**
 * What a stream told: every change by vBucket and seqno, so that a rollback can take back what never was. Notes as
 * problems whatever a server may not do.
 *
 * <p>A rollback goes to the end of a snapshot, which may be further back than the server asks: inside a snapshot older
 * versions of keys that come again later in it are missing.
 */
final class Replica implements DatabaseChangeListener {
  /** One change, as a line of text: kind, scope and collection, key, CAS, revision, flags, expiry, value, xattrs. */
  private record Change(String kind, long collection, String name, String key, String rest) {
    String line() {
      return String.join("\t", kind, Long.toString(collection), name, key, rest);
    }

    long cas() {
      return Long.parseUnsignedLong(rest.split("\t", 2)[0]);
    }

    boolean isOf(Change other) {
      return collection == other.collection && key.equals(other.key);
    }

    static Change parse(String line) {
      String[] parts = line.split("\t", 5);
      return new Change(parts[0], Long.parseLong(parts[1]), parts[2], parts[3], parts[4]);
    }
  }

  private record Undone(int vbucket, long seqno, Change change) {}

  private static final String DROPPED = "dropped";

  /** How a stream is opened again: vBucket and seqno. */
  private final BiConsumer<Integer, Long> resume;
  private final Map<Integer, TreeMap<Long, Change>> history = new TreeMap<>();
  private final Map<Integer, StreamOffset> offsets = new TreeMap<>();
  private final Map<Integer, Long> inSnapshot = new HashMap<>();
  /** Where vBuckets without an offset are, because they were rolled back and nothing has come since. */
  private final Map<Integer, Long> backAt = new HashMap<>();
  /** Ends of snapshots that were received whole. */
  private final Map<Integer, TreeSet<Long>> ends = new HashMap<>();
  private final Map<Integer, Set<String>> keysInSnapshot = new HashMap<>();
  private final Set<Long> created = new HashSet<>();
  private final List<String> problems = new ArrayList<>();
  /** Changes that were handed over and then taken back. */
  private final List<Undone> undone = new ArrayList<>();

  Replica(BiConsumer<Integer, Long> resume) {
    this.resume = resume;
  }

  @Override
  public synchronized void onMutation(Mutation mutation) {
    String value = Base64.getEncoder().encodeToString(mutation.getContent());
    take("mutation", mutation, mutation.getFlagsAsInt() + "\t" + mutation.getExpiry() + "\t" + value);
  }

  @Override
  public synchronized void onDeletion(Deletion deletion) {
    take(deletion.isDueToExpiration() ? "expiration" : "deletion", deletion, "0\t0\t");
  }

  private void take(String kind, DocumentChange change, String rest) {
    int vbucket = change.getVbucket();
    long seqno = change.getOffset().getSeqno();
    String key = Base64.getEncoder().encodeToString(change.getKey().getBytes(StandardCharsets.UTF_8));
    String name = change.getCollection().scope().name() + "." + change.getCollection().name();
    SnapshotMarker snapshot = change.getOffset().getSnapshot();
    long before = inSnapshot.getOrDefault(vbucket, 0L);
    if (seqno <= before || seqno < snapshot.getStartSeqno() || seqno > snapshot.getEndSeqno()) {
      problems.add("vBucket " + vbucket + ": seqno " + seqno + " after " + before + " in " + snapshot);
    }
    inSnapshot.put(vbucket, seqno);
    if (!keysInSnapshot.computeIfAbsent(vbucket, each -> new HashSet<>()).add(name + "/" + key)) {
      problems.add("vBucket " + vbucket + ": " + change.getQualifiedKey() + " twice in one snapshot");
    }
    String facts = Long.toUnsignedString(change.getCas()) + "\t" + change.getRevision() + "\t" + rest + "\t"
        + new TreeMap<>(change.getXattrs());
    history.computeIfAbsent(vbucket, each -> new TreeMap<>())
        .put(seqno, new Change(kind, change.getCollection().id(), name, key, facts));
    advance(vbucket, change.getOffset());
  }

  private void advance(int vbucket, StreamOffset offset) {
    offsets.put(vbucket, offset);
    if (offset.getSeqno() == offset.getSnapshot().getEndSeqno()) {
      ends.computeIfAbsent(vbucket, each -> new TreeSet<>()).add(offset.getSeqno());
    }
  }

  @Override
  public synchronized void onSeqnoAdvanced(SeqnoAdvanced advanced) {
    advance(advanced.getVbucket(), advanced.getOffset());
  }

  @Override
  public synchronized void onCollectionCreated(CollectionCreated event) {
    created.add(event.getCollectionId());
  }

  @Override
  public synchronized void onCollectionDropped(CollectionDropped event) {
    history.computeIfAbsent(event.getVbucket(), each -> new TreeMap<>())
        .put(event.getSeqno(), new Change(DROPPED, event.getCollectionId(), "", "", ""));
  }

  @Override
  public synchronized void onSnapshot(SnapshotDetails snapshot) {
    // After a reconnection the client may hand over again what it has handed over.
    keysInSnapshot.put(snapshot.getVbucket(), new HashSet<>());
    inSnapshot.remove(snapshot.getVbucket());
  }

  @Override
  public synchronized void onRollback(Rollback rollback) {
    int vbucket = rollback.getVbucket();
    Long end = ends.computeIfAbsent(vbucket, each -> new TreeSet<>()).floor(rollback.getSeqno());
    long seqno = end == null ? 0 : end;
    Map<Long, Change> beyond =
        history.computeIfAbsent(vbucket, each -> new TreeMap<>()).tailMap(seqno, false);
    beyond.forEach((at, change) -> undone.add(new Undone(vbucket, at, change)));
    beyond.clear();
    ends.get(vbucket).tailSet(seqno, false).clear();
    offsets.remove(vbucket);
    backAt.put(vbucket, seqno);
    keysInSnapshot.remove(vbucket);
    resume.accept(vbucket, seqno);
  }

  @Override
  public synchronized void onFailure(StreamFailure failure) {
    problems.add("vBucket " + failure.getVbucket() + ": " + failure.getCause());
  }

  synchronized Map<Integer, StreamOffset> offsets() {
    return new TreeMap<>(offsets);
  }

  synchronized List<String> problems() {
    return List.copyOf(problems);
  }

  /** A vBucket that has not got as far as it should; null when there is none. */
  synchronized String firstBehind(Map<Integer, Long> targets) {
    for (Map.Entry<Integer, Long> target : targets.entrySet()) {
      StreamOffset offset = offsets.get(target.getKey());
      long seqno = offset == null ? backAt.getOrDefault(target.getKey(), 0L) : offset.getSeqno();
      if (seqno < target.getValue()) {
        return "vBucket " + target.getKey() + " is at " + seqno + ", not at " + target.getValue();
      }
    }
    return null;
  }

  /** Whether something was taken back and has neither come again nor been replaced, nor gone with its collection. */
  private boolean isLost(Undone gone) {
    if (gone.change().kind().equals(DROPPED)) {
      return false;
    }
    return history.getOrDefault(gone.vbucket(), new TreeMap<>()).tailMap(gone.seqno(), true).values().stream()
        .noneMatch(change -> change.kind().equals(DROPPED)
            ? change.collection() == gone.change().collection()
            : change.isOf(gone.change()) && change.cas() >= gone.change().cas());
  }

  synchronized String summary() {
    List<Undone> lost = undone.stream().filter(this::isLost).toList();
    lost.stream().limit(5).forEach(gone -> System.err.println("lost: " + gone));
    return "undone " + undone.size() + ", lost " + lost.size() + ", created " + created.size() + ", problems " + problems;
  }

  /** vBucket, seqno and change of the newest version of every key whose collection is still there. */
  synchronized void dump(Path file) throws IOException {
    List<String> lines = new ArrayList<>();
    history.forEach((vbucket, changes) -> {
      Map<String, String> newest = new TreeMap<>();
      changes.forEach((seqno, change) -> {
        String prefix = change.collection() + "/";
        if (change.kind().equals(DROPPED)) {
          newest.keySet().removeIf(key -> key.startsWith(prefix));
        } else {
          newest.put(prefix + change.key(), vbucket + "\t" + seqno + "\t" + change.line());
        }
      });
      lines.addAll(newest.values());
    });
    Files.write(file, lines);
  }

  synchronized void save(Path file) throws IOException {
    List<String> lines = new ArrayList<>();
    offsets.forEach((vbucket, offset) -> {
      SnapshotMarker snapshot = offset.getSnapshot();
      lines.add("offset\t" + vbucket + "\t" + offset.getVbuuid() + "\t" + offset.getSeqno() + "\t"
          + snapshot.getStartSeqno() + "\t" + snapshot.getEndSeqno() + "\t" + offset.getCollectionsManifestUid());
    });
    history.forEach((vbucket, changes) -> changes.forEach(
        (seqno, change) -> lines.add("change\t" + vbucket + "\t" + seqno + "\t" + change.line())));
    Files.write(file, lines);
  }

  synchronized void load(Path file) throws IOException {
    for (String line : Files.readAllLines(file)) {
      String[] parts = line.split("\t", 4);
      int vbucket = Integer.parseInt(parts[1]);
      long number = Long.parseLong(parts[2]);
      if (parts[0].equals("offset")) {
        String[] more = parts[3].split("\t");
        SnapshotMarker snapshot = new SnapshotMarker(Long.parseLong(more[1]), Long.parseLong(more[2]));
        offsets.put(vbucket,
            new StreamOffset(number, Long.parseLong(more[0]), snapshot, Long.parseLong(more[3])));
      } else {
        history.computeIfAbsent(vbucket, each -> new TreeMap<>()).put(number, Change.parse(parts[3]));
      }
    }
  }
}
