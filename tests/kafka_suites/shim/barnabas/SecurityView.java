package barnabas;

import java.io.IOException;
import java.lang.reflect.Field;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.UserScramCredentialsDescription;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.security.authenticator.CredentialCache;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.server.authorizer.Authorizer;
import org.mockito.invocation.InvocationOnMock;
import scala.Option;

/** The ACLs, logins and counts of logins of one broker, as its answers and its page of metrics show them. */
final class SecurityView {
    private static final String GROUP = "socket-server-metrics";
    private static final Pattern LINE = Pattern.compile(
        "^kafka_server_socket_server_metrics_(\\w+)\\{([^}]*)} (\\S+)", Pattern.MULTILINE
    );
    private final NodeView node;

    SecurityView(NodeView node) {
        this.node = node;
    }

    Option<Plugin<Authorizer>> authorizer() {
        Authorizer authorizer = NodeView.view(Authorizer.class, this::authorizerAnswer);
        return Option.apply(Plugin.wrapInstance(authorizer, null, "authorizer.class.name"));
    }

    private Object authorizerAnswer(InvocationOnMock call) throws Exception {
        return call.getMethod().getName().equals("acls") ? acls(call.getArgument(0)) : NodeView.refused(call);
    }

    private Collection<AclBinding> acls(AclBindingFilter filter) throws Exception {
        return node.admin().describeAcls(filter).values().get();
    }

    DelegationTokenCache tokens() {
        return NodeView.view(DelegationTokenCache.class, call ->
            call.getMethod().getName().equals("tokens") ? tokensDescribed() : NodeView.refused(call));
    }

    private List<TokenInformation> tokensDescribed() throws Exception {
        return node.admin().describeDelegationToken().delegationTokens().get().stream().map(DelegationToken::tokenInfo).toList();
    }

    CredentialProvider credentials() throws ReflectiveOperationException {
        CredentialProvider provider = NodeView.view(CredentialProvider.class, NodeView::refused);
        CredentialCache cache = NodeView.view(CredentialCache.class, call ->
            NodeView.only("cache", call, () -> credentials(call.<String>getArgument(0))));
        Field field = CredentialProvider.class.getField("credentialCache"); // tests read the field
        field.setAccessible(true);
        field.set(provider, cache);
        return provider;
    }

    private CredentialCache.Cache<?> credentials(String mechanism) {
        return NodeView.view(CredentialCache.Cache.class, call ->
            call.getMethod().getName().equals("get") ? credential(mechanism, call.getArgument(0)) : NodeView.refused(call));
    }

    /** A credential with the iterations that the broker knows; null if the user has none. */
    private ScramCredential credential(String mechanism, String user) throws Exception {
        UserScramCredentialsDescription found;
        try {
            found = node.admin().describeUserScramCredentials(List.of(user)).description(user).get();
        } catch (ExecutionException error) {
            return null;
        }
        return found.credentialInfos().stream().filter(each -> each.mechanism().mechanismName().equals(mechanism))
            .map(each -> new ScramCredential(new byte[0], new byte[0], new byte[0], each.iterations())).findFirst().orElse(null);
    }

    /** The metrics of the network threads. */
    Metrics metrics() {
        return NodeView.view(Metrics.class, call ->
            call.getMethod().getName().equals("metrics") ? networkMetrics() : NodeView.refused(call));
    }

    private Map<MetricName, KafkaMetric> networkMetrics() throws IOException {
        Map<MetricName, KafkaMetric> found = new HashMap<>();
        Matcher line = LINE.matcher(node.metricsPage());
        while (line.find()) {
            MetricName name = new MetricName(line.group(1).replace('_', '-'), GROUP, "", Map.of("labels", line.group(2)));
            Gauge<Double> value = constant(Double.parseDouble(line.group(3)));
            found.put(name, new KafkaMetric(this, name, value, new MetricConfig(), Time.SYSTEM));
        }
        return found;
    }

    private static Gauge<Double> constant(double value) {
        return (config, now) -> value;
    }

    /** Connections that the broker closed because their login expired. */
    double expiredConnections() {
        try {
            return networkMetrics().values().stream()
                .filter(each -> each.metricName().name().equals("expired-connections-killed-count"))
                .mapToDouble(each -> (Double) each.metricValue()).sum();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
