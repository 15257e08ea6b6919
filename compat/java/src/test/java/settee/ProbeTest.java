package settee;
import org.junit.jupiter.api.Test;
class ProbeTest { @Test void t() {} }
