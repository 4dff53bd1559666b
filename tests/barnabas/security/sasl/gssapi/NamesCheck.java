import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/**
 * Kafka's own names of users for Kerberos principals, to compare with.
 *
 * <p>A line of stdin has the default realm, the principal and the rules, with tabs between. A line of stdout has the
 * user after an equals sign, or the class of the error.
 */
public final class NamesCheck {
    private NamesCheck() { }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> parts = Arrays.asList(line.split("\t", -1));
            try {
                KerberosShortNamer namer = KerberosShortNamer.fromUnparsedRules(parts.get(0), parts.subList(2, parts.size()));
                String user = namer.shortName(KerberosName.parse(parts.get(1)));
                out.append('=').append(user);
            } catch (Exception error) {
                out.append(error.getClass().getSimpleName());
            }
            out.append('\n');
        }
        System.out.write(out.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }
}
