package barnabas;

import com.fasterxml.jackson.databind.JsonNode;
import com.yammer.metrics.core.Gauge;
import com.yammer.metrics.core.MetricName;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.QuorumImplementation;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.IntegrationTestUtils;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import scala.Option;

/** The cluster of a test with a QuorumTestHarness: one controller, and brokers as the test makes them. */
public final class HarnessCluster implements QuorumImplementation, Nodes {
    private final Path directory;
    private final NodesProgram program;
    private final String clusterId;
    private final NodeView controller;
    private final Map<Integer, NodeView> brokers = new TreeMap<>();

    public HarnessCluster(
        Properties properties, SecurityProtocol protocol, MetadataVersion wished, Consumer<Formatter> settings
    ) throws Exception {
        directory = Files.createTempDirectory("barnabas-suite-");
        clusterId = format(wished, settings);
        program = new NodesProgram(directory.resolve("nodes"));
        Map<String, Object> wanted = new HashMap<>(Map.of("cluster_id", clusterId, "disks", 1, "combined", false));
        wanted.putAll(Map.of("brokers", 0, "controllers", 1, "standalone", false, "properties_of", Map.of()));
        wanted.putAll(Map.of("broker_listener", protocol.name, "broker_protocol", protocol.name));
        wanted.putAll(Map.of("controller_listener", "CONTROLLER", "controller_protocol", protocol.name));
        Map<String, String> controllers = texts(properties);
        ClassesOfTests.replaceIn(controllers);
        wanted.putAll(Map.of("properties", controllers, "bootstrap", directory.toString()));
        controller = new NodeView(this, program.ask(Map.of("do", "plan", "cluster", wanted)).get("nodes").get(0));
        addExpiredConnections();
    }

    /** Kafka's brokers have one registry of a JVM, with this sum. Tests clear it at their end. */
    private void addExpiredConnections() {
        MetricName name = new MetricName("kafka.network", "SocketServer", "ExpiredConnectionsKilledCount");
        KafkaYammerMetrics.defaultRegistry().newGauge(name, new Gauge<Double>() {
            @Override
            public Double value() {
                return brokers.values().stream().mapToDouble(each -> each.security.expiredConnections()).sum();
            }
        });
    }

    /** The controller connects to brokers, so it starts when the security of the listener between them is known. */
    private void startController(NodeView broker) {
        program.ask(Map.of("do", "start", "properties", broker.securityBetweenBrokers()));
        controller.isRunning = true;
    }

    /** Writes the bootstrap.checkpoint, with a metadata version that is released. */
    private String format(MetadataVersion wished, Consumer<Formatter> settings) throws Exception {
        MetadataVersion released = MetadataVersion.latestProduction();
        Formatter formatter = new Formatter().setClusterId(Uuid.randomUuid().toString()).setNodeId(1000);
        formatter.addDirectory(directory.toString());
        formatter.setReleaseVersion(wished.compareTo(released) > 0 ? released : wished);
        formatter.setControllerListenerName("CONTROLLER");
        formatter.setMetadataLogDirectory(directory.toString());
        settings.accept(formatter);
        formatter.run();
        return formatter.clusterId();
    }

    /** What a properties file has for each value. */
    static Map<String, String> texts(Map<?, ?> values) {
        Map<String, String> found = new HashMap<>();
        values.forEach((key, value) -> found.put(String.valueOf(key), text(value)));
        return found;
    }

    /** What a properties file has for a value. */
    static String text(Object value) {
        if (value instanceof Password) {
            return ((Password) value).value();
        }
        if (value instanceof Class) {
            return ((Class<?>) value).getName();
        }
        if (value instanceof Collection) {
            return ((Collection<?>) value).stream().map(HarnessCluster::text).collect(Collectors.joining(","));
        }
        return value == null ? "" : String.valueOf(value);
    }

    @Override
    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        if (time != Time.SYSTEM) {
            throw new InsideTheJvm("the broker's clock");
        }
        int id = config.nodeId();
        Map<String, String> properties = texts(config.originals());
        Logins.addTo(properties);
        ClassesOfTests.replaceIn(properties);
        JsonNode node = program.ask(Map.of("do", "add_broker", "id", id, "properties", properties));
        brokers.put(id, new NodeView(this, node));
        if (!controller.isRunning) {
            startController(brokers.get(id));
        }
        if (startup) {
            startBroker(id);
        }
        return brokers.get(id).broker();
    }

    public ControllerServer controllerServer() {
        return controller.controller();
    }

    @Override
    public String clusterId() {
        return clusterId;
    }

    @Override
    public void startBroker(int id) {
        brokers.get(id).isRunning = true;
        program.ask(Map.of("do", "start_broker", "id", id));
    }

    @Override
    public void shutdownBroker(int id) {
        brokers.get(id).isRunning = false;
        program.ask(Map.of("do", "stop_broker", "id", id));
    }

    @Override
    public boolean isRunning(int id) {
        return brokers.containsKey(id) && brokers.get(id).isRunning;
    }

    @Override
    public Map<Integer, LeaderAndIsr> leaders(NodeView broker, String topic) throws Exception {
        if (!broker.hasPlaintext()) {
            return BarnabasInstance.leadersDescribed(running(broker).admin(), topic);
        }
        return BarnabasInstance.leadersIn(metadata(broker, List.of(topic)));
    }

    @Override
    public List<Node> aliveNodes(NodeView broker) throws Exception {
        if (!broker.hasPlaintext()) {
            return List.copyOf(running(broker).admin().describeCluster().nodes().get());
        }
        return List.copyOf(metadata(broker, List.of()).brokers());
    }

    @Override
    public Map<String, Uuid> topicIds(Collection<String> topics) throws Exception {
        return BarnabasInstance.topicIds(running(brokers.values().iterator().next()).admin(), topics);
    }

    /** The broker, or another one that runs: a test may ask for the metadata that a stopped broker had. */
    private NodeView running(NodeView broker) {
        return broker.isRunning ? broker : brokers.values().stream().filter(each -> each.isRunning).findFirst().orElseThrow();
    }

    private MetadataResponse metadata(NodeView broker, List<String> topics) throws IOException {
        MetadataRequest request = new MetadataRequest.Builder(topics, false).build((short) 12);
        return IntegrationTestUtils.connectAndReceive(request, running(broker).plaintextPort());
    }

    @Override
    public void shutdown() {
        brokers.values().forEach(NodeView::close);
        program.end();
        brokers.values().forEach(broker -> broker.isRunning = false);
        try {
            if (System.getProperty("barnabas.keep") == null) {
                Utils.delete(directory.toFile());
            }
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }
}
