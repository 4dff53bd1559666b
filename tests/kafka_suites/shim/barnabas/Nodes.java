package barnabas;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.LeaderAndIsr;

/** The cluster that a NodeView is of. */
interface Nodes {
    String clusterId();

    void startBroker(int id);

    void shutdownBroker(int id);

    boolean isRunning(int brokerId);

    /** The brokers that a broker knows and that live. */
    List<Node> aliveNodes(NodeView broker) throws Exception;

    /** What a broker knows of a topic's partitions. */
    Map<Integer, LeaderAndIsr> leaders(NodeView broker, String topic) throws Exception;

    /** The ids of these topics; null: of all topics. */
    Map<String, Uuid> topicIds(Collection<String> topics) throws Exception;
}
