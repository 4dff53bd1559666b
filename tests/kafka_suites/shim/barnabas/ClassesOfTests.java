package barnabas;

import java.util.Map;

/** Classes of tests for the broker that settings of Barnabas can replace. */
final class ClassesOfTests {
    private static final String BUILDER = "principal.builder.class";
    private static final String AUTHORIZER = "authorizer.class.name";
    private static final String BROKERS = "RULE:^O=A server,CN=.*$/server/,RULE:^O=A .*,CN=super-user$/server/,";
    private static final Map<String, String> RULES_OF = Map.of(
        "kafka.api.SslEndToEndAuthorizationTest$TestPrincipalBuilder", BROKERS + "DEFAULT",
        "kafka.api.SslAdminIntegrationTest$TestPrincipalBuilder",
        BROKERS + "RULE:^O=A .*,CN=client$/client/,RULE:^.*$/ANONYMOUS/"
    );
    private static final Map<String, String> AUTHORIZERS = Map.of( // it can wait, which a test does
        "kafka.api.SslAdminIntegrationTest$TestableStandardAuthorizer",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    );

    private ClassesOfTests() { }

    static void replaceIn(Map<String, String> properties) {
        properties.computeIfPresent(AUTHORIZER, (key, name) -> AUTHORIZERS.getOrDefault(name, name));
        String rules = RULES_OF.get(properties.getOrDefault(BUILDER, ""));
        if (rules != null) {
            properties.remove(BUILDER);
            properties.put("ssl.principal.mapping.rules", rules);
            properties.remove("connections.max.reauth.ms"); // Kafka ignores it without SASL, Barnabas refuses it
        }
    }
}
