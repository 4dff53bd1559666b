package barnabas;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
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
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;
import scala.Option;

/** One node, in the shape of Kafka's classes: each answers what can be known from outside and refuses the rest. */
final class NodeView {
    private final Nodes cluster;
    private final JsonNode node;
    private final Map<String, String> properties = new HashMap<>();
    volatile boolean isRunning;

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
            default:
                return refused(call);
        }
    }

    /** Tests compare the end of a controller's log with the offset that a broker has applied: both are answered with 0. */
    private RaftLog raftLog() {
        BarnabasInstance.awaitPushes();
        return view(RaftLog.class, log -> only("endOffset", log, () -> new LogOffsetMetadata(0)));
    }

    private MetadataLoader loader() {
        return view(MetadataLoader.class, loader -> only("lastAppliedOffset", loader, () -> 0L));
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
                return metadataCache();
            case "dataPlaneRequestProcessor":
                return view(KafkaApis.class, apis -> only("metadataCache", apis, this::metadataCache));
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
        return only("boundPort", call, () -> boundPort(call.getArgument(0)));
    }

    private KRaftMetadataCache metadataCache() {
        return view(KRaftMetadataCache.class, this::metadataAnswer);
    }

    private Object metadataAnswer(InvocationOnMock call) throws Exception {
        if (call.getMethod().getName().equals("hasAliveBroker")) {
            return cluster.isRunning(call.getArgument(0));
        }
        if (call.getMethod().getName().equals("getAliveBrokerNodes")) {
            return cluster.aliveNodes(this);
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
            default:
                return refused(call);
        }
    }

    private Object replicasAnswer(InvocationOnMock call) throws Exception {
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

    private static Object only(String method, InvocationOnMock call, Supplier<?> answer) {
        return call.getMethod().getName().equals(method) ? answer.get() : refused(call);
    }

    private int boundPort(ListenerName listener) {
        if (node.has("ports")) {
            return node.get("ports").get(listener.value()).asInt();
        }
        return listener.value().equals(properties.get("controller.listener.names")) ? controllerPort() : port();
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
