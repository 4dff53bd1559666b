package org.apache.kafka.common.test.junit;

import barnabas.BarnabasInstance;
import java.util.List;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/** Takes the place of Kafka's class with this name: a test with a ClusterInstance gets a cluster of Barnabas. */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;
    private final boolean isCombined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean isCombined) {
        this.name = name;
        this.config = config;
        this.isCombined = isCombined;
    }

    @Override
    public String getDisplayName(int invocation) {
        String type = isCombined ? "Combined" : "Isolated";
        return String.format("%s [%d] Type=Raft-%s, %s", name, invocation, type, String.join(",", config.displayTags()));
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        BarnabasInstance cluster = new BarnabasInstance(config, isCombined);
        return List.of(
            (BeforeEachCallback) context -> {
                cluster.format();
                if (config.isAutoStart()) {
                    cluster.start();
                }
            },
            (AfterTestExecutionCallback) context -> cluster.stop(),
            new ClusterInstanceParameterResolver(cluster)
        );
    }
}
