package settee;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** A server that a test presses while the one of the suite goes on; see compat/harness/settee/on_order.py. */
final class OwnNode implements AutoCloseable {
  private final Process process;
  private final BufferedWriter orders;
  private final BufferedReader answers;

  /** Starts a node with a bucket main. */
  OwnNode(String address, String name, String... options) throws IOException {
    List<String> command = new ArrayList<>(List.of("python3", "-m", "settee.on_order", address, name));
    command.addAll(List.of(options));
    process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    orders = process.outputWriter();
    answers = process.inputReader();
    assertEquals("ready", answers.readLine());
  }

  /** Gives an order and has the answer. */
  String tell(String order) throws IOException {
    orders.write(order + "\n");
    orders.flush();
    return answers.readLine();
  }

  @Override
  public void close() throws IOException, InterruptedException {
    orders.close();
    assertEquals(0, process.waitFor(), "the node ends well");
  }
}
