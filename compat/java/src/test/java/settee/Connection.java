package settee;

import com.couchbase.client.core.env.SecurityConfig;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.ClusterOptions;
import com.couchbase.client.java.Collection;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Assertions;

/** Clients for the tests; compat/run starts the server and says where it is. */
final class Connection {
  static final String ADDRESS = System.getenv("SETTEE_ADDRESS");
  static final String USERNAME = System.getenv("SETTEE_USERNAME");
  static final String PASSWORD = System.getenv("SETTEE_PASSWORD");
  static final Duration PATIENCE = Duration.ofSeconds(10);

  private static final Map<String, Cluster> CLUSTERS = new ConcurrentHashMap<>();

  private Connection() {}

  /** Every way to reach a bucket: scheme and bucket. */
  enum Way {
    PLAIN_PERSISTENT("couchbase", "main"),
    TLS_PERSISTENT("couchbases", "main"),
    PLAIN_EPHEMERAL("couchbase", "ephemeral");

    final String scheme;
    final String bucket;

    Way(String scheme, String bucket) {
      this.scheme = scheme;
      this.bucket = bucket;
    }

    Collection collection() {
      return bucket(scheme, bucket).defaultCollection();
    }
  }

  static Cluster open(String scheme, String username, String password) {
    ClusterOptions options = ClusterOptions.clusterOptions(username, password).environment(environment -> {
      environment.timeoutConfig(timeouts -> timeouts.kvTimeout(PATIENCE).kvDurableTimeout(PATIENCE));
      if (scheme.equals("couchbases")) {
        Path certificate = Path.of(System.getenv("SETTEE_CERTIFICATE"));
        environment.securityConfig(SecurityConfig.enableTls(true).trustCertificate(certificate));
      }
    });
    return Cluster.connect(scheme + "://" + ADDRESS, options);
  }

  /** The shared administrator's client; lives as long as the tests. */
  static Cluster cluster(String scheme) {
    return CLUSTERS.computeIfAbsent(scheme, each -> {
      Cluster cluster = open(each, USERNAME, PASSWORD);
      cluster.waitUntilReady(PATIENCE);
      return cluster;
    });
  }

  static Bucket bucket(String scheme, String name) {
    Bucket bucket = cluster(scheme).bucket(name);
    bucket.waitUntilReady(PATIENCE);
    return bucket;
  }

  static String newKey() {
    return "java-" + UUID.randomUUID();
  }

  static void within(Duration limit, String what, BooleanSupplier condition) {
    for (Instant until = Instant.now().plus(limit); Instant.now().isBefore(until); pause(100)) {
      if (condition.getAsBoolean()) {
        return;
      }
    }
    Assertions.fail(what + " did not happen within " + limit);
  }

  static void pause(long millis) {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }
}
