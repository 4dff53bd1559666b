package org.apache.kafka.common.test;

import barnabas.BarnabasInstance;
import barnabas.InsideTheJvm;
import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.controller.Controller;

/**
 * Takes the place of Kafka's class with this name: what the EmbeddedKafkaClusters of Kafka Streams and Kafka Connect
 * start is a cluster of Barnabas. They themselves are Kafka's.
 */
public class KafkaClusterTestKit implements AutoCloseable {

    /** Collects the settings of the cluster. */
    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, String> properties = new TreeMap<>();
        private boolean isStandalone;

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            properties.put(key, text(value));
            return this;
        }

        /** What a properties file has for a value. */
        private static String text(Object value) {
            if (value instanceof Password) {
                return ((Password) value).value();
            }
            if (value instanceof Collection) {
                return ((Collection<?>) value).stream().map(String::valueOf).collect(Collectors.joining(","));
            }
            return String.valueOf(value);
        }

        public Builder setDeleteOnClose(boolean deletesOnClose) {
            return this;
        }

        public Builder setStandalone(boolean isStandalone) {
            this.isStandalone = isStandalone;
            return this;
        }

        public Builder setInitialVoterSet(Map<Integer, Uuid> voters) {
            throw new InsideTheJvm("a quorum of chosen voters");
        }

        public KafkaClusterTestKit build() {
            return new KafkaClusterTestKit(nodes, properties, isStandalone);
        }
    }

    private final TestKitNodes nodes;
    private final BarnabasInstance cluster;
    private final MockFaultHandler fatalFaults = new MockFaultHandler("fatalFaultHandler");
    private final MockFaultHandler otherFaults = new MockFaultHandler("nonFatalFaultHandler");

    private KafkaClusterTestKit(TestKitNodes nodes, Map<String, String> properties, boolean isStandalone) {
        this.nodes = nodes;
        Map<Integer, Map<String, String>> own = nodes.brokerNodes().values().stream()
            .collect(Collectors.toMap(TestKitNode::id, TestKitNode::propertyOverrides));
        int disks = nodes.brokerNodes().values().stream().mapToInt(node -> node.logDataDirectories().size()).max().orElse(1);
        ClusterConfig config = ClusterConfig.defaultBuilder()
            .setBrokers(nodes.brokerNodes().size())
            .setDisksPerBroker(disks)
            .setStandalone(isStandalone)
            .setMetadataVersion(nodes.bootstrapMetadata().metadataVersion())
            .setControllers(nodes.controllerNodes().size())
            .setBrokerListenerName(nodes.brokerListenerName())
            .setBrokerSecurityProtocol(nodes.brokerListenerProtocol())
            .setControllerListenerName(nodes.controllerListenerName())
            .setControllerSecurityProtocol(nodes.controllerListenerProtocol())
            .setServerProperties(properties)
            .setPerServerProperties(own)
            .build();
        boolean isCombined = nodes.brokerNodes().keySet().containsAll(nodes.controllerNodes().keySet());
        cluster = new BarnabasInstance(config, isCombined, nodes.clusterId());
    }

    public void format() throws IOException {
        cluster.format();
    }

    public void startup() {
        cluster.start();
    }

    /** Does nothing: `startup` waits. */
    public void waitForReadyBrokers() { }

    public String bootstrapServers() {
        return cluster.bootstrapServers();
    }

    public String bootstrapControllers() {
        return cluster.bootstrapControllers();
    }

    public Map<Integer, BrokerServer> brokers() {
        return cluster.brokers().entrySet().stream()
            .collect(Collectors.toMap(Map.Entry::getKey, entry -> (BrokerServer) entry.getValue()));
    }

    public Map<Integer, ControllerServer> controllers() {
        return cluster.controllers();
    }

    public TestKitNodes nodes() {
        return nodes;
    }

    public Admin admin() {
        return admin(Map.of());
    }

    public Admin admin(Map<String, Object> settings) {
        return admin(settings, false);
    }

    public Admin admin(Map<String, Object> settings, boolean usesControllers) {
        Map<String, Object> all = new HashMap<>(settings);
        if (usesControllers) {
            all.putIfAbsent("bootstrap.controllers", bootstrapControllers());
        } else {
            all.putIfAbsent("bootstrap.servers", bootstrapServers());
        }
        return Admin.create(all);
    }

    public Controller waitForActiveController() {
        throw new InsideTheJvm("the active controller");
    }

    public Map<Integer, Object> raftManagers() {
        return cluster.raftManagers();
    }

    public MockFaultHandler fatalFaultHandler() {
        return fatalFaults;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return otherFaults;
    }

    @Override
    public void close() {
        cluster.stop();
    }
}
