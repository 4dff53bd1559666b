package barnabas;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;

/** The program nodes.py, which runs the processes of one cluster; the system property barnabas.nodes is its command. */
final class NodesProgram {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Process process;
    private final Writer requests;
    private final BufferedReader answers;

    NodesProgram(Path directory) throws IOException {
        String[] command = (System.getProperty("barnabas.nodes") + "\n" + directory).split("\n");
        ProcessBuilder builder = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
        String kerberos = System.getProperty("java.security.krb5.conf"); // of the test's own KDC
        if (kerberos != null) {
            builder.environment().put("KRB5_CONFIG", kerberos);
        }
        process = builder.start();
        requests = process.outputWriter(StandardCharsets.UTF_8);
        answers = process.inputReader(StandardCharsets.UTF_8);
    }

    synchronized JsonNode ask(Map<String, ?> request) {
        try {
            requests.write(JSON.writeValueAsString(request) + "\n");
            requests.flush();
            String line = answers.readLine();
            if (line == null) {
                throw new IllegalStateException("nodes.py has ended");
            }
            JsonNode answer = JSON.readTree(line);
            if (answer.has("error")) {
                throw new RuntimeException(answer.get("error").asText());
            }
            return answer;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    void end() {
        try {
            requests.close();
            process.waitFor();
        } catch (IOException error) {
            process.destroy();
        } catch (InterruptedException error) {
            process.destroy();
            Thread.currentThread().interrupt();
        }
    }
}
