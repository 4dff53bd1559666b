package barnabas;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import kafka.network.SocketServer;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.MetadataCache;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;

/** One node, in the shape of Kafka's classes: each answers what can be known from outside and refuses the rest. */
final class NodeView {
    private final BarnabasInstance cluster;
    private final JsonNode node;
    private final Map<String, String> properties = new HashMap<>();
    volatile boolean isRunning;

    NodeView(BarnabasInstance cluster, JsonNode node) {
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

    KafkaBroker broker() {
        return view(BrokerServer.class, this::brokerAnswer);
    }

    ControllerServer controller() {
        return view(ControllerServer.class, this::common);
    }

    private Object brokerAnswer(InvocationOnMock call) {
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
                return view(MetadataCache.class, this::metadataAnswer);
            default:
                return common(call);
        }
    }

    private Object common(InvocationOnMock call) {
        switch (call.getMethod().getName()) {
            case "config":
                return new KafkaConfig(properties, false);
            case "clusterId":
                return cluster.clusterId();
            case "socketServer":
                return view(SocketServer.class, this::socketAnswer);
            default:
                return refused(call);
        }
    }

    private Object socketAnswer(InvocationOnMock call) {
        boolean asksPort = call.getMethod().getName().equals("boundPort");
        return asksPort ? boundPort(call.getArgument(0)) : refused(call);
    }

    private Object metadataAnswer(InvocationOnMock call) throws Exception {
        boolean namesTopic = call.getArguments().length == 1 && call.getArgument(0) instanceof String;
        int known = namesTopic ? cluster.partitionsKnown(this, call.getArgument(0)) : 0;
        switch (namesTopic ? call.getMethod().getName() : "") {
            case "numPartitions":
                return known == 0 ? Optional.empty() : Optional.of(known);
            case "contains":
                return known > 0;
            default:
                return refused(call);
        }
    }

    private int boundPort(ListenerName listener) {
        return listener.equals(cluster.controllerListenerName()) ? controllerPort() : port();
    }

    private static Object refused(InvocationOnMock call) {
        String type = call.getMethod().getDeclaringClass().getSimpleName();
        throw new InsideTheJvm(type + "." + call.getMethod().getName());
    }

    /** An object of a class of Kafka's whose every method is answered here; Object's own methods stay. */
    private static <T> T view(Class<T> type, Answer<?> answer) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call -> {
            String name = call.getMethod().getName();
            boolean isObjects = name.equals("toString") || name.equals("hashCode") || name.equals("equals");
            return isObjects ? Mockito.RETURNS_DEFAULTS.answer(call) : answer.answer(call);
        }));
    }
}
