package barnabas;

import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;

/** The logins that a test gives its brokers by the JVM's JAAS configuration, as properties of a broker. */
final class Logins {
    private static final Map<String, List<String>> MECHANISMS = Map.of(
        "PlainLoginModule", List.of("plain"),
        "ScramLoginModule", List.of("scram-sha-256", "scram-sha-512"),
        "OAuthBearerLoginModule", List.of("oauthbearer"),
        "Krb5LoginModule", List.of("gssapi")
    );

    private Logins() { }

    static void addTo(Map<String, String> properties) {
        String protocols = properties.getOrDefault("listener.security.protocol.map", "");
        for (String pair : protocols.split("\\s*,\\s*")) {
            String listener = pair.split(":")[0].toLowerCase(Locale.ROOT);
            if (pair.contains(":SASL")) {
                for (AppConfigurationEntry entry : entries(listener)) {
                    add(properties, listener, entry);
                }
            }
        }
    }

    private static List<AppConfigurationEntry> entries(String listener) {
        Configuration all = Configuration.getConfiguration();
        AppConfigurationEntry[] own = all.getAppConfigurationEntry(listener + ".KafkaServer");
        AppConfigurationEntry[] found = own == null ? all.getAppConfigurationEntry("KafkaServer") : own;
        return found == null ? List.of() : Arrays.asList(found);
    }

    private static void add(Map<String, String> properties, String listener, AppConfigurationEntry entry) {
        String name = entry.getLoginModuleName();
        String options = entry.getOptions().entrySet().stream()
            .map(each -> " " + each.getKey() + "=\"" + each.getValue() + "\"").collect(Collectors.joining());
        for (String mechanism : MECHANISMS.getOrDefault(name.substring(name.lastIndexOf('.') + 1), List.of())) {
            String key = "listener.name." + listener + "." + mechanism + ".sasl.jaas.config";
            properties.putIfAbsent(key, name + " required" + options + ";");
        }
    }
}
