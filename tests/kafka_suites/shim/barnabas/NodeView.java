package barnabas;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.function.Predicate;
import java.util.function.Supplier;
import kafka.cluster.Partition;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeProducersOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.ClusterImage;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.HostedPartition;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;
import scala.Option;

/** One node, in the shape of Kafka's classes: each answers what can be known from outside and refuses the rest. */
final class NodeView {
    private static final long DESCRIBED_FOR_NS = 200_000_000;
    private static final String ADMIN_TIMEOUT_MS = "10000";
    private final Nodes cluster;
    private final JsonNode node;
    private final LogsView logs = new LogsView(this);
    final SecurityView security = new SecurityView(this);
    private final Map<String, String> properties = new HashMap<>();
    volatile boolean isRunning;
    private final Map<String, String> dynamic = new HashMap<>();
    private long describedAt = System.nanoTime() - DESCRIBED_FOR_NS;
    private Admin admin;

    NodeView(Nodes cluster, JsonNode node) {
        this.cluster = cluster;
        this.node = node;
        node.get("properties").fields().forEachRemaining(each -> properties.put(each.getKey(), each.getValue().asText()));
    }

    int id() {
        return node.get("id").asInt();
    }

    boolean isBroker() {
        return node.get("broker").asBoolean();
    }

    boolean isController() {
        return node.get("controller").asBoolean();
    }

    int port() {
        return node.get("port").asInt();
    }

    int controllerPort() {
        return node.get("controller_port").asInt();
    }

    /** The port of the listener without security. */
    int plaintextPort() {
        if (!node.has("ports")) {
            return port();
        }
        if (!node.get("ports").has("PLAINTEXT")) {
            throw new InsideTheJvm("the metadata cache, of a broker without a listener in plain text,");
        }
        return node.get("ports").get("PLAINTEXT").asInt();
    }

    boolean hasPlaintext() {
        return !node.has("ports") || node.get("ports").has("PLAINTEXT");
    }

    private String listenerBetweenBrokers() {
        return properties.getOrDefault("inter.broker.listener.name", properties.get("security.inter.broker.protocol"));
    }

    private String protocolBetweenBrokers() {
        String pairs = properties.getOrDefault("listener.security.protocol.map", "");
        return Arrays.stream(pairs.split("\\s*,\\s*"))
            .filter(each -> each.startsWith(listenerBetweenBrokers() + ":")).map(each -> each.split(":")[1])
            .findFirst().orElse(listenerBetweenBrokers());
    }

    /** The properties with which another node connects to this broker. */
    Map<String, String> securityBetweenBrokers() {
        String own = "listener.name." + listenerBetweenBrokers().toLowerCase(Locale.ROOT) + ".";
        boolean hasLogins = protocolBetweenBrokers().startsWith("SASL");
        Map<String, String> found = new HashMap<>(Map.of(
            "inter.broker.listener.name", listenerBetweenBrokers(),
            "listener.security.protocol.map", listenerBetweenBrokers() + ":" + protocolBetweenBrokers()
        ));
        properties.forEach((key, value) -> {
            if (key.startsWith("ssl.") || key.startsWith(own) || (hasLogins && key.startsWith("sasl."))) {
                found.put(key, value);
            }
        });
        return found;
    }

    /** A client with the login of the brokers between themselves. */
    synchronized Admin admin() {
        if (admin == null) {
            String mechanism = properties.getOrDefault("sasl.mechanism.inter.broker.protocol", "GSSAPI");
            Map<String, Object> settings = new HashMap<>(Map.of(
                "bootstrap.servers", "localhost:" + boundPort(new ListenerName(listenerBetweenBrokers())),
                "security.protocol", protocolBetweenBrokers(), "sasl.mechanism", mechanism,
                "default.api.timeout.ms", ADMIN_TIMEOUT_MS, "request.timeout.ms", ADMIN_TIMEOUT_MS
            ));
            String own = "listener.name." + listenerBetweenBrokers().toLowerCase(Locale.ROOT) + ".";
            Map<String, String> security = securityBetweenBrokers();
            security.forEach((key, value) -> {
                if (key.startsWith("ssl.") && !value.isEmpty()) {
                    settings.put(key, security.getOrDefault(own + key, value));
                } else if (key.startsWith(own + "ssl.") && !value.isEmpty()) {
                    settings.put(key.substring(own.length()), value);
                }
            });
            String login = properties.get(own + mechanism.toLowerCase(Locale.ROOT) + ".sasl.jaas.config");
            if (login != null) {
                settings.put("sasl.jaas.config", login);
            }
            admin = Admin.create(settings);
        }
        return admin;
    }

    synchronized void close() {
        if (admin != null) {
            admin.close(Duration.ZERO);
            admin = null;
        }
    }

    String metricsPage() throws IOException {
        int port = Integer.parseInt(properties.getOrDefault("barnabas.metrics.port", "-1"));
        if (port < 0) {
            throw new InsideTheJvm("a number of a broker without a page of metrics");
        }
        try (InputStream page = URI.create("http://localhost:" + port + "/metrics").toURL().openStream()) {
            return new String(page.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    String logDirectories() {
        return properties.getOrDefault("log.dirs", properties.get("log.dir"));
    }

    /** The producers of a partition, as this broker describes them. */
    Map<Long, ProducerStateEntry> producers(TopicPartition partition) throws Exception {
        DescribeProducersOptions here = new DescribeProducersOptions().brokerId(id());
        Map<Long, ProducerStateEntry> found = new HashMap<>();
        for (ProducerState each : admin().describeProducers(List.of(partition), here).partitionResult(partition).get().activeProducers()) {
            found.put(each.producerId(), new ProducerStateEntry(
                each.producerId(), (short) each.producerEpoch(), each.coordinatorEpoch().orElse(-1), each.lastTimestamp(),
                each.currentTransactionStartOffset()
            ));
        }
        return found;
    }

    /** The settings of the logs of a topic, as this broker describes them. */
    LogConfig logConfig(String topic) throws Exception {
        Properties own = settings(topic, each -> each.source() == ConfigSource.DYNAMIC_TOPIC_CONFIG);
        Properties all = settings(topic, each -> true);
        // Why: tests compare the values of Kafka's log with those of the broker, which have types.
        config().extractLogConfigMap().forEach((key, typed) -> all.replace(key, HarnessCluster.text(typed), typed));
        return new LogConfig(all, own.stringPropertyNames());
    }

    private Properties settings(String topic, Predicate<ConfigEntry> wanted) throws Exception {
        return settings(new ConfigResource(ConfigResource.Type.TOPIC, topic), wanted);
    }

    private Properties settings(ConfigResource resource, Predicate<ConfigEntry> wanted) throws Exception {
        Properties found = new Properties();
        admin().describeConfigs(List.of(resource)).all().get().get(resource).entries().stream().filter(wanted)
            .forEach(each -> found.put(each.name(), each.value()));
        return found;
    }

    /** The properties at start, and over them what the broker says was set since. */
    private synchronized Map<String, String> currentProperties() {
        if (isBroker() && isRunning && System.nanoTime() - describedAt > DESCRIBED_FOR_NS) {
            dynamic.clear();
            try {
                settings(new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(id())), NodeView::isDynamic)
                    .forEach((key, value) -> dynamic.put((String) key, (String) value));
            } catch (Exception error) {
                // A test may have taken away the rights or the login: then the properties at start are all that is known.
            }
            describedAt = System.nanoTime();
        }
        Map<String, String> found = new HashMap<>(properties);
        found.putAll(dynamic);
        return found;
    }

    KafkaConfig config() {
        return new KafkaConfig(currentProperties(), false);
    }

    private static boolean isDynamic(ConfigEntry entry) {
        boolean isSet = entry.source() == ConfigSource.DYNAMIC_BROKER_CONFIG
            || entry.source() == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG;
        return isSet && !entry.isSensitive() && entry.value() != null;
    }

    KafkaBroker broker() {
        return view(BrokerServer.class, this::brokerAnswer);
    }

    ControllerServer controller() {
        return view(ControllerServer.class, this::controllerAnswer);
    }

    private Object controllerAnswer(InvocationOnMock call) {
        switch (call.getMethod().getName()) {
            case "raftManager":
                return view(KafkaRaftManager.class, raft -> only("raftLog", raft, this::raftLog));
            case "controller":
                return view(Controller.class, this::topicsAnswer);
            default:
                return common(call);
        }
    }

    private Object topicsAnswer(InvocationOnMock call) throws Exception {
        switch (call.getMethod().getName()) {
            case "findAllTopicIds":
                return CompletableFuture.completedFuture(cluster.topicIds(null));
            case "findTopicIds":
                Map<String, ResultOrError<Uuid>> found = new HashMap<>();
                cluster.topicIds(call.getArgument(1)).forEach((name, id) -> found.put(name, new ResultOrError<>(id)));
                return CompletableFuture.completedFuture(found);
            case "incrementalAlterConfigs":
                return alter(call.getArgument(1));
            default:
                return refused(call);
        }
    }

    private CompletableFuture<Map<ConfigResource, ApiError>> alter(
        Map<ConfigResource, Map<String, Map.Entry<AlterConfigOp.OpType, String>>> changes
    ) {
        Map<ConfigResource, Collection<AlterConfigOp>> asked = new HashMap<>();
        changes.forEach((resource, entries) -> asked.put(resource, entries.entrySet().stream()
            .map(each -> new AlterConfigOp(new ConfigEntry(each.getKey(), each.getValue().getValue()), each.getValue().getKey()))
            .toList()));
        Map<ConfigResource, ApiError> found = new HashMap<>();
        try (Admin controller = Admin.create(Map.of("bootstrap.controllers", "localhost:" + controllerPort()))) {
            controller.incrementalAlterConfigs(asked).values().forEach((resource, result) ->
                found.put(resource, result.toCompletionStage().toCompletableFuture()
                    .handle((done, error) -> error == null ? ApiError.NONE : ApiError.fromThrowable(error)).join()));
        }
        return CompletableFuture.completedFuture(found);
    }

    /** Tests compare the end of a controller's log with the offset that a broker has applied: both are answered with 0. */
    private RaftLog raftLog() {
        BarnabasInstance.awaitPushes();
        return view(RaftLog.class, log -> only("endOffset", log, () -> new LogOffsetMetadata(0)));
    }

    private MetadataLoader loader() {
        return view(MetadataLoader.class, loader -> only("lastAppliedOffset", loader, () -> 0L));
    }

    private Object brokerAnswer(InvocationOnMock call) throws Exception {
        switch (call.getMethod().getName()) {
            case "shutdown":
                cluster.shutdownBroker(id());
                return null;
            case "startup":
                cluster.startBroker(id());
                return null;
            case "awaitShutdown":
                return null;
            case "isShutdown":
                return !isRunning;
            case "brokerState":
                return isRunning ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
            case "boundPort":
                return boundPort(call.getArgument(0));
            case "metadataCache":
                return metadataCache();
            case "logManager":
                return logs.manager();
            case "tokenCache":
                return security.tokens();
            case "credentialProvider":
                return security.credentials();
            case "metrics":
                return security.metrics();
            case "authorizerPlugin":
                return security.authorizer();
            case "dataPlaneRequestProcessor":
                return view(KafkaApis.class, this::apisAnswer);
            case "groupCoordinator":
                return view(GroupCoordinator.class, this::coordinatorAnswer);
            case "replicaManager":
                return view(ReplicaManager.class, this::replicasAnswer);
            case "sharedServer":
                return view(SharedServer.class, shared -> only("loader", shared, this::loader));
            default:
                return common(call);
        }
    }

    private Object apisAnswer(InvocationOnMock call) {
        switch (call.getMethod().getName()) {
            case "clusterId":
                return cluster.clusterId();
            case "authorizerPlugin":
                return security.authorizer();
            default:
                return only("metadataCache", call, this::metadataCache);
        }
    }

    private Object common(InvocationOnMock call) {
        switch (call.getMethod().getName()) {
            case "config":
                return config();
            case "clusterId":
                return cluster.clusterId();
            case "socketServer":
                return view(SocketServer.class, this::socketAnswer);
            default:
                return refused(call);
        }
    }

    private Object socketAnswer(InvocationOnMock call) {
        return only("boundPort", call, () -> boundPort(call.getArgument(0)));
    }

    private KRaftMetadataCache metadataCache() {
        return view(KRaftMetadataCache.class, this::metadataAnswer);
    }

    private Object metadataAnswer(InvocationOnMock call) throws Exception {
        if (call.getMethod().getName().equals("hasAliveBroker")) {
            return cluster.isRunning(call.getArgument(0));
        }
        if (call.getMethod().getName().equals("currentImage")) {
            ClusterImage known = clusterImage();
            return view(MetadataImage.class, image -> only("cluster", image, () -> known));
        }
        if (call.getMethod().getName().equals("getAliveBrokerNodes")) {
            return cluster.aliveNodes(this);
        }
        if (call.getMethod().getName().equals("getTopicId")) {
            return cluster.topicIds(List.of(call.<String>getArgument(0))).getOrDefault(call.getArgument(0), Uuid.ZERO_UUID);
        }
        if (call.getMethod().getName().equals("topicConfig")) {
            return settings(call.<String>getArgument(0), each -> each.source() == ConfigSource.DYNAMIC_TOPIC_CONFIG);
        }
        boolean namesTopic = call.getArguments().length > 0 && call.getArgument(0) instanceof String;
        Map<Integer, LeaderAndIsr> known = namesTopic ? cluster.leaders(this, call.getArgument(0)) : Map.of();
        switch (namesTopic ? call.getMethod().getName() : "") {
            case "numPartitions":
                return known.isEmpty() ? Optional.empty() : Optional.of(known.size());
            case "contains":
                return !known.isEmpty();
            case "getLeaderAndIsr":
                return Optional.ofNullable(known.get(call.<Integer>getArgument(1)));
            case "getPartitionLeaderEndpoint":
                return leaderNode(known.get(call.<Integer>getArgument(1)));
            default:
                return refused(call);
        }
    }

    /** The registered brokers, and whether each is fenced. */
    private ClusterImage clusterImage() throws Exception {
        Map<Integer, BrokerRegistration> found = new HashMap<>();
        DescribeClusterOptions all = new DescribeClusterOptions().includeFencedBrokers(true);
        for (Node each : admin().describeCluster(all).nodes().get()) {
            found.put(each.id(), new BrokerRegistration.Builder().setId(each.id()).setFenced(each.isFenced()).build());
        }
        return new ClusterImage(found, Map.of());
    }

    private Optional<Node> leaderNode(LeaderAndIsr known) throws Exception {
        if (known == null) {
            return Optional.empty();
        }
        Optional<Node> alive = cluster.aliveNodes(this).stream().filter(each -> each.id() == known.leader()).findFirst();
        return Optional.of(alive.orElse(Node.noNode()));
    }

    private Object replicasAnswer(InvocationOnMock call) throws Exception {
        if (call.getMethod().getName().equals("localLog")) {
            return logs.log(call.getArgument(0), false);
        }
        if (call.getMethod().getName().equals("getPartition")) {
            boolean isHosted = logs.log(call.getArgument(0), false).isDefined();
            return isHosted ? new HostedPartition.Online<>(view(Partition.class, NodeView::refused)) : new HostedPartition.None<>();
        }
        if (!call.getMethod().getName().equals("onlinePartition")) {
            return refused(call);
        }
        TopicPartition wanted = call.getArgument(0);
        LeaderAndIsr known = isRunning ? cluster.leaders(this, wanted.topic()).get(wanted.partition()) : null;
        boolean isHere = known != null && known.isr().contains(id());
        return isHere ? Option.apply(view(Partition.class, asked -> partitionAnswer(asked, known))) : Option.empty();
    }

    private Object partitionAnswer(InvocationOnMock call, LeaderAndIsr known) {
        boolean isLeader = known.leader() == id();
        switch (call.getMethod().getName()) {
            case "getLeaderEpoch":
                return known.leaderEpoch();
            case "isLeader":
                return isLeader;
            case "leaderLogIfLocal":
                return isLeader ? Option.apply(view(UnifiedLog.class, NodeView::refused)) : Option.empty();
            default:
                return refused(call);
        }
    }

    private Object coordinatorAnswer(InvocationOnMock call) {
        return only("groupMetadataTopicConfigs", call, () -> {
            Properties found = new Properties();
            found.put("cleanup.policy", "compact");
            found.put("compression.type", "producer");
            found.put("segment.bytes", properties.getOrDefault("offsets.topic.segment.bytes", "104857600"));
            return found;
        });
    }

    static Object only(String method, InvocationOnMock call, Supplier<?> answer) {
        return call.getMethod().getName().equals(method) ? answer.get() : refused(call);
    }

    private int boundPort(ListenerName listener) {
        if (node.has("ports")) {
            return node.get("ports").get(listener.value()).asInt();
        }
        return listener.value().equals(properties.get("controller.listener.names")) ? controllerPort() : port();
    }

    static Object refused(InvocationOnMock call) {
        String type = call.getMethod().getDeclaringClass().getSimpleName();
        throw new InsideTheJvm(type + "." + call.getMethod().getName());
    }

    /** An object of a class of Kafka's whose every method is answered here; Object's own methods stay. */
    static <T> T view(Class<T> type, Answer<?> answer) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call -> {
            String name = call.getMethod().getName();
            boolean isObjects = name.equals("toString") || name.equals("hashCode") || name.equals("equals");
            return isObjects ? Mockito.RETURNS_DEFAULTS.answer(call) : answer.answer(call);
        }));
    }
}
