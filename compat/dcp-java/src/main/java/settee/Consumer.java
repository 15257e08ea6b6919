package settee;

import com.couchbase.client.dcp.Client;
import com.couchbase.client.dcp.StreamFrom;
import com.couchbase.client.dcp.StreamTo;
import com.couchbase.client.dcp.config.CompressionMode;
import com.couchbase.client.dcp.highlevel.FlowControlMode;
import com.couchbase.client.dcp.highlevel.StreamOffset;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import reactor.util.retry.Retry;

/**
 * A consumer as connectors are: streams a bucket, keeps what it got together with where it was, and goes on from there.
 * Options are arguments ({@code name=value}), commands come line by line on standard input, each answered by one line:
 *
 * <pre>
 *   await FILE   until every vBucket in the file (lines "vBucket seqno") has got that far
 *   save         writes what was received and the offsets to the state file
 *   dump FILE    the newest change of every key
 *   end          disconnects and exits
 * </pre>
 */
public final class Consumer {
  private static final long PATIENCE_MILLIS = 90_000;
  /** The client's own limits are 1 s for a handshake and 5 s for all failover logs: a JVM beside three others misses them. */
  private static final Duration START_LIMIT = Duration.ofSeconds(60);

  private final Map<String, String> options;
  private final PrintStream answers = System.out;
  private final Replica replica = new Replica(this::resume);
  private final Client client;

  private Consumer(Map<String, String> options) {
    this.options = options;
    this.client = build();
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, String> options = new HashMap<>();
    for (String argument : arguments) {
      String[] parts = argument.split("=", 2);
      options.put(parts[0], parts[1]);
    }
    new Consumer(options).run();
    System.exit(0);
  }

  private Client build() {
    Client.Builder builder = Client.builder()
        .seedNodes(options.get("address"))
        .bucket(options.get("bucket"))
        .credentials(options.get("username"), options.get("password"))
        .userAgent("settee-compat", "0")
        .socketConnectTimeout(START_LIMIT.toMillis())
        .bootstrapTimeout(START_LIMIT)
        .flowControl(Integer.parseInt(options.getOrDefault("flow", "65536")))
        .noValue(options.containsKey("keys"))
        .xattrs(options.containsKey("xattrs"))
        .collectionsAware(options.containsKey("collections"));
    if (options.containsKey("mitigate")) {
      builder.mitigateRollbacks(Long.parseLong(options.get("mitigate")), TimeUnit.MILLISECONDS);
    }
    if (options.containsKey("compression")) {
      builder.compression(CompressionMode.valueOf(options.get("compression")));
    }
    if (options.containsKey("names")) {
      builder.collectionNames(options.get("names").split(","));
    }
    if (options.containsKey("ids")) {
      builder.collectionIds(Arrays.stream(options.get("ids").split(",")).mapToLong(Long::parseLong).toArray());
    }
    if (options.containsKey("scope")) {
      builder.scopeName(options.get("scope"));
    }
    return builder.build();
  }

  private void run() throws Exception {
    client.listener(replica, FlowControlMode.AUTOMATIC);
    client.connect().block();
    Path state = Path.of(options.get("state"));
    if (Files.exists(state)) {
      replica.load(state);
      Map<Integer, StreamOffset> offsets = new TreeMap<>(replica.offsets());
      for (int vbucket = 0; vbucket < client.numPartitions(); vbucket++) {
        offsets.putIfAbsent(vbucket, StreamOffset.ZERO);
      }
      client.resumeStreaming(offsets).block();
    } else {
      StreamFrom from = StreamFrom.valueOf(options.getOrDefault("from", "BEGINNING"));
      client.initializeState(from, StreamTo.INFINITY).block();
      client.startStreaming().block();
    }
    answers.println("streaming");
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String[] words = line.split(" ", 2);
      switch (words[0]) {
        case "await" -> answers.println(await(Path.of(words[1])));
        case "save" -> {
          replica.save(state);
          answers.println("saved");
        }
        case "dump" -> {
          replica.dump(Path.of(words[1]));
          answers.println(replica.summary());
        }
        case "end" -> {
          client.disconnect().block();
          answers.println("ended");
          return;
        }
        default -> answers.println("what is " + line + "?");
      }
    }
  }

  private void resume(int vbucket, long seqno) {
    client.rollbackAndRestartStream(vbucket, seqno)
        .retryWhen(Retry.backoff(Long.MAX_VALUE, Duration.ofMillis(10)).maxBackoff(Duration.ofSeconds(1)))
        .subscribe();
  }

  private String await(Path wanted) throws IOException, InterruptedException {
    Map<Integer, Long> targets = new TreeMap<>();
    for (String line : Files.readAllLines(wanted)) {
      String[] words = line.split(" ");
      targets.put(Integer.parseInt(words[0]), Long.parseLong(words[1]));
    }
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MILLIS);
    while (true) {
      String late = replica.firstBehind(targets);
      if (late == null || !replica.problems().isEmpty() || System.nanoTime() > until) {
        return late == null ? "reached" : "late: " + late + " " + replica.problems();
      }
      Thread.sleep(20);
    }
  }
}
