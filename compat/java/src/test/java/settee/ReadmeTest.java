package settee;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.couchbase.client.java.json.JsonObject;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The README's program in Java runs as it stands. */
class ReadmeTest {
  @Test
  void theProgramRuns(@TempDir Path folder) throws Exception {
    Path file = folder.resolve("Greeting.java");
    Files.writeString(file, output("python3", "-m", "settee.readme", "java"));
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    output(java, "-cp", System.getProperty("java.class.path"), file.toString());
    JsonObject greeting =
        Connection.bucket("couchbase", "main").defaultCollection().get("greeting").contentAsObject();
    assertEquals(JsonObject.create().put("hello", "world"), greeting);
  }

  private static String output(String... command) throws IOException, InterruptedException {
    Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    String text = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), text);
    return text;
  }
}
