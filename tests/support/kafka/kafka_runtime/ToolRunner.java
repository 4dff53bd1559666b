import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's command-line tools one after another inside one JVM: a start of a JVM costs seconds, a second tool in it
 * does not.
 *
 * <p>Protocol, big endian, over stdin and stdout. Request: argument count (one byte), the main class and the arguments (each a
 * length and UTF-8), the tool's stdin (a length and bytes). Answer: exit code (int), stdout, stderr (each a length and bytes).
 * The end of stdin ends the process.
 */
public final class ToolRunner {
    /** Thrown in place of ending the JVM. */
    private static final class ExitRequest extends Error {
        private ExitRequest() {
            super("exit", null, false, false);
        }
    }

    /** A stream that tools may keep for ever (Scala's Console does), whose destination changes from run to run. */
    private static final class Redirect extends OutputStream {
        private volatile ByteArrayOutputStream target = new ByteArrayOutputStream();

        @Override
        public void write(int value) {
            target.write(value);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) {
            target.write(bytes, offset, length);
        }
    }

    /** A stream that a tool cannot close (MetadataShell closes System.out): the next tool prints to it, too. */
    private static final class OpenPrintStream extends PrintStream {
        private OpenPrintStream(OutputStream target) {
            super(target, true);
        }

        @Override
        public void close() {
            flush();
        }
    }

    private static final Redirect STDOUT = new Redirect();
    private static final Redirect STDERR = new Redirect();
    private static final List<Runnable> SHUTDOWN_HOOKS = new ArrayList<>();
    private static volatile Integer exitCode;

    private ToolRunner() { }

    public static void main(String[] arguments) throws IOException {
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        PrintStream out = new OpenPrintStream(STDOUT);
        PrintStream err = new OpenPrintStream(STDERR);
        Exit.setExitProcedure((code, message) -> requestExit(code));
        Exit.setHaltProcedure((code, message) -> requestExit(code));
        Exit.setShutdownHookAdder((name, hook) -> SHUTDOWN_HOOKS.add(hook));
        for (int count = requests.read(); count >= 0; count = requests.read()) {
            String mainClass = new String(readBytes(requests), "UTF-8");
            String[] toolArguments = new String[count];
            for (int i = 0; i < count; i++) {
                toolArguments[i] = new String(readBytes(requests), "UTF-8");
            }
            System.setIn(new ByteArrayInputStream(readBytes(requests)));
            System.setOut(out);
            System.setErr(err);
            int code = run(mainClass, toolArguments);
            answers.writeInt(code);
            writeCaptured(answers, out, STDOUT);
            writeCaptured(answers, err, STDERR);
            answers.flush();
        }
    }

    private static void requestExit(int code) {
        if (exitCode == null) {  // a tool may catch Throwable and exit again
            exitCode = code;
        }
        throw new ExitRequest();
    }

    private static int run(String mainClass, String[] arguments) {
        exitCode = null;
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof ExitRequest)) {
                error.getCause().printStackTrace();
                exitCode = 1;
            }
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            exitCode = 1;
        }
        SHUTDOWN_HOOKS.forEach(Runnable::run);
        SHUTDOWN_HOOKS.clear();
        return exitCode == null ? 0 : exitCode;
    }

    private static byte[] readBytes(DataInputStream input) throws IOException {
        return input.readNBytes(input.readInt());
    }

    private static void writeCaptured(DataOutputStream output, PrintStream stream, Redirect redirect) throws IOException {
        stream.flush();
        byte[] captured = redirect.target.toByteArray();
        redirect.target = new ByteArrayOutputStream();
        output.writeInt(captured.length);
        output.write(captured);
    }
}
