package barnabas;

import static org.apache.kafka.test.TestUtils.waitForCondition;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import kafka.raft.KafkaRaftManager;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.IntegrationTestUtils;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.fault.FaultHandlerException;

/** A cluster of Barnabas, as a test of Kafka's sees a cluster. What only a look into the JVM shows is refused. */
public final class BarnabasInstance implements ClusterInstance, Nodes {
    private static final long WAIT_MS = 60_000;
    private static final long PUSH_MS = 300;
    private final ClusterConfig config;
    private final boolean isCombined;
    private final String clusterId;
    private final Map<Integer, NodeView> brokers = new TreeMap<>();
    private final Map<Integer, NodeView> controllers = new TreeMap<>();
    private Path directory;
    private NodesProgram program;
    private boolean isStarted;
    private boolean isStopped;

    public BarnabasInstance(ClusterConfig config, boolean isCombined) {
        this(config, isCombined, Uuid.randomUuid().toString());
    }

    public BarnabasInstance(ClusterConfig config, boolean isCombined, String clusterId) {
        this.config = config;
        this.isCombined = isCombined;
        this.clusterId = clusterId;
    }

    /** Chooses ports and formats directories. */
    public void format() throws IOException {
        if (program != null) {
            return;
        }
        directory = Files.createTempDirectory("barnabas-suite-");
        new BootstrapDirectory(directory.toString()).writeBinaryFile(bootstrap());
        program = new NodesProgram(directory.resolve("nodes"));
        for (JsonNode node : program.ask(Map.of("do", "plan", "cluster", wanted())).get("nodes")) {
            NodeView view = new NodeView(this, node);
            if (view.isBroker()) {
                brokers.put(view.id(), view);
            }
            if (view.isController()) {
                controllers.put(view.id(), view);
            }
        }
    }

    /** The feature levels that the test asks for; levels that are not released yet become the newest released one. */
    private BootstrapMetadata bootstrap() {
        MetadataVersion wished = config.metadataVersion();
        MetadataVersion released = MetadataVersion.latestProduction();
        MetadataVersion version = wished.compareTo(released) > 0 ? released : wished;
        Map<String, Short> levels = new TreeMap<>();
        for (Feature feature : Feature.PRODUCTION_FEATURES) {
            short level = config.features().getOrDefault(feature, feature.defaultLevel(version));
            levels.put(feature.featureName(), (short) Math.min(level, feature.latestProduction()));
        }
        levels.put(MetadataVersion.FEATURE_NAME, version.featureLevel());
        return BootstrapMetadata.fromVersions(version, levels, "test");
    }

    private Map<String, Object> wanted() {
        Map<String, Object> wanted = new HashMap<>();
        wanted.put("cluster_id", clusterId);
        wanted.put("brokers", config.numBrokers());
        wanted.put("controllers", config.numControllers());
        wanted.put("disks", config.numDisksPerBroker());
        wanted.put("combined", isCombined);
        wanted.put("standalone", config.standalone());
        wanted.put("broker_listener", config.brokerListenerName().value());
        wanted.put("broker_protocol", config.brokerSecurityProtocol().name);
        wanted.put("controller_listener", config.controllerListenerName().value());
        wanted.put("controller_protocol", config.controllerSecurityProtocol().name);
        wanted.put("properties", config.serverProperties());
        wanted.put("properties_of", config.perServerOverrideProperties());
        wanted.put("bootstrap", directory.toString());
        return wanted;
    }

    @Override
    public void start() {
        try {
            format();
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
        if (!isStarted) {
            isStarted = true;
            program.ask(Map.of("do", "start"));
            brokers.values().forEach(broker -> broker.isRunning = true);
        }
    }

    @Override
    public void stop() {
        if (isStopped) {
            return;
        }
        isStopped = true;
        brokers.values().forEach(NodeView::close);
        if (program != null) {
            program.end();
        }
        brokers.values().forEach(broker -> broker.isRunning = false);
        try {
            if (directory != null && System.getProperty("barnabas.keep") == null) {
                Utils.delete(directory.toFile());
            }
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    @Override
    public void shutdownBroker(int id) {
        broker(id).isRunning = false;
        program.ask(Map.of("do", "stop_broker", "id", id));
    }

    @Override
    public void startBroker(int id) {
        broker(id).isRunning = true;
        program.ask(Map.of("do", "start_broker", "id", id));
    }

    private NodeView broker(int id) {
        return Optional.ofNullable(brokers.get(id)).orElseThrow(() -> new IllegalArgumentException("Unknown brokerId " + id));
    }

    @Override
    public boolean started() {
        return isStarted;
    }

    @Override
    public boolean stopped() {
        return isStopped;
    }

    @Override
    public Type type() {
        return isCombined ? Type.CO_KRAFT : Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public String clusterId() {
        return clusterId;
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        Map<Integer, KafkaBroker> found = new LinkedHashMap<>();
        brokers.forEach((id, node) -> found.put(id, node.broker()));
        return found;
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        Map<Integer, ControllerServer> found = new LinkedHashMap<>();
        controllers.forEach((id, node) -> found.put(id, node.controller()));
        return found;
    }

    /** Of all nodes: each answers which controller is active, and in which epoch. */
    public Map<Integer, Object> raftManagers() {
        KafkaRaftManager<?> manager = NodeView.view(KafkaRaftManager.class, raft -> NodeView.only("client", raft, this::raftClient));
        Map<Integer, Object> found = new TreeMap<>();
        brokers.keySet().forEach(id -> found.put(id, manager));
        controllers.keySet().forEach(id -> found.put(id, manager));
        return found;
    }

    private KafkaRaftClient<?> raftClient() {
        return NodeView.view(KafkaRaftClient.class, client -> NodeView.only("leaderAndEpoch", client, this::leaderAndEpoch));
    }

    private LeaderAndEpoch leaderAndEpoch() {
        try (Admin admin = admin()) {
            QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
            return new LeaderAndEpoch(OptionalInt.of(quorum.leaderId()), (int) quorum.leaderEpoch());
        } catch (InterruptedException | ExecutionException error) {
            throw new RuntimeException(error);
        }
    }

    @Override
    public Set<Integer> brokerIds() {
        return new TreeSet<>(brokers.keySet());
    }

    @Override
    public Set<Integer> controllerIds() {
        return new TreeSet<>(controllers.keySet());
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public String bootstrapServers() {
        return brokers.values().stream().map(node -> "localhost:" + node.port()).collect(Collectors.joining(","));
    }

    @Override
    public String bootstrapControllers() {
        return controllers.values().stream().map(node -> "localhost:" + node.controllerPort()).collect(Collectors.joining(","));
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return brokers.values().stream().map(NodeView::port).toList();
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        return controllers.values().stream().map(NodeView::controllerPort).toList();
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        String protocols = config.serverProperties().getOrDefault("group.coordinator.rebalance.protocols", "consumer");
        short level = bootstrap().featureLevel(Feature.GROUP_VERSION.featureName());
        boolean hasConsumer = level > 0 && List.of(protocols.split("\\s*,\\s*")).contains("consumer");
        return hasConsumer ? Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER) : Set.of(GroupProtocol.CLASSIC);
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    @Override
    public void waitForReadyBrokers() throws InterruptedException {
        int expected = (int) brokers.values().stream().filter(broker -> broker.isRunning).count();
        try (Admin admin = admin()) {
            waitForCondition(() -> admin.describeCluster().nodes().get().size() == expected, WAIT_MS, "brokers are not ready");
        }
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        if (partitions <= 0) {
            throw new IllegalArgumentException("Partition count must be > 0, but was " + partitions);
        }
        waitForCondition(() -> knowEverywhere(topic, partitions), WAIT_MS, topic + " is not known everywhere");
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        waitForCondition(() -> knowEverywhere(topic, 0), WAIT_MS, topic + " is still known");
    }

    /** Whether every running broker knows a topic with so many partitions; 0: does not know it. */
    private boolean knowEverywhere(String topic, int partitions) throws Exception {
        for (NodeView broker : brokers.values()) {
            if (broker.isRunning && leaders(broker, topic).size() != partitions) {
                return false;
            }
        }
        return true;
    }

    @Override
    public boolean isRunning(int id) {
        return broker(id).isRunning;
    }

    @Override
    public Map<Integer, LeaderAndIsr> leaders(NodeView broker, String topic) throws Exception {
        if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT) {
            try (Admin admin = admin()) {
                return leadersDescribed(admin, topic);
            }
        }
        MetadataRequest request = new MetadataRequest.Builder(List.of(topic), false).build((short) 9);
        return leadersIn(IntegrationTestUtils.connectAndReceive(request, broker.port()));
    }

    static Map<Integer, LeaderAndIsr> leadersIn(MetadataResponse response) {
        Map<Integer, LeaderAndIsr> found = new TreeMap<>();
        for (MetadataResponse.TopicMetadata each : response.topicMetadata()) {
            for (MetadataResponse.PartitionMetadata partition : each.partitionMetadata()) {
                int epoch = partition.leaderEpoch.orElse(-1);
                int leader = partition.leaderId.orElse(LeaderAndIsr.NO_LEADER);
                found.put(
                    partition.partition(),
                    new LeaderAndIsr(leader, epoch, partition.inSyncReplicaIds, LeaderRecoveryState.RECOVERED, -1)
                );
            }
        }
        return found;
    }

    @Override
    public Map<String, Uuid> topicIds(Collection<String> topics) throws Exception {
        try (Admin admin = admin()) {
            return topicIds(admin, topics);
        }
    }

    /** The ids of these topics; null: of all topics. */
    static Map<String, Uuid> topicIds(Admin admin, Collection<String> topics) throws Exception {
        return admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get().stream()
            .filter(each -> topics == null || topics.contains(each.name()))
            .collect(Collectors.toMap(TopicListing::name, TopicListing::topicId));
    }

    @Override
    public List<Node> aliveNodes(NodeView broker) throws Exception {
        if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT) {
            try (Admin admin = admin()) {
                return List.copyOf(admin.describeCluster().nodes().get());
            }
        }
        MetadataRequest request = new MetadataRequest.Builder(List.of(), false).build((short) 9);
        MetadataResponse response = IntegrationTestUtils.connectAndReceive(request, broker.port());
        return List.copyOf(response.brokers());
    }

    static Map<Integer, LeaderAndIsr> leadersDescribed(Admin admin, String topic) throws InterruptedException {
        Map<Integer, LeaderAndIsr> found = new TreeMap<>();
        try {
            TopicDescription description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            for (TopicPartitionInfo each : description.partitions()) {
                int leader = each.leader() == null ? LeaderAndIsr.NO_LEADER : each.leader().id();
                found.put(each.partition(), new LeaderAndIsr(leader, each.isr().stream().map(Node::id).toList()));
            }
        } catch (ExecutionException error) {
            return Map.of();
        }
        return found;
    }

    @Override
    public void ensureConsistentMetadata() {
        awaitPushes();
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) {
        awaitPushes();
    }

    /** The controller pushes a change to the brokers within milliseconds. No request asks a broker how far it is. */
    static void awaitPushes() {
        Utils.sleep(PUSH_MS);
    }

    @Override
    public List<Authorizer> authorizers() {
        throw new InsideTheJvm("the authorizer");
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        Set<AccessControlEntry> expected = Set.copyOf(entries);
        try (Admin admin = admin()) {
            waitForCondition(() -> aclsOf(admin, filter).equals(expected), WAIT_MS, "the ACLs are not " + expected);
        }
    }

    private Set<AccessControlEntry> aclsOf(Admin admin, AclBindingFilter filter) throws Exception {
        return admin.describeAcls(filter).values().get().stream().map(AclBinding::entry).collect(Collectors.toSet());
    }
}
