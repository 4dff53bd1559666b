package kafka.server;

import barnabas.HarnessCluster;
import barnabas.InsideTheJvm;
import java.util.Properties;
import java.util.stream.Stream;
import javax.security.auth.login.Configuration;
import kafka.utils.Logging;
import kafka.utils.TestInfoUtils;
import kafka.utils.TestUtils;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.security.JaasUtils;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.TransactionVersion;
import org.apache.kafka.server.fault.MockFaultHandler;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.params.provider.Arguments;
import scala.Option;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Takes the place of Kafka's class with this name: the brokers that a test creates are brokers of Barnabas. */
@Tag("integration")
public abstract class QuorumTestHarness implements Logging {
    private final SecurityProtocol protocol = SecurityProtocol.PLAINTEXT;
    private final QuorumTestHarnessFaultHandlerFactory faults =
        new QuorumTestHarnessFaultHandlerFactory(new MockFaultHandler("quorumTestHarnessFaultHandler"));
    private TestInfo testInfo;
    private QuorumImplementation implementation;
    private String logIdent;

    public static Stream<Arguments> getTestGroupProtocolParametersConsumerGroupProtocolOnly() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersConsumerGroupProtocolOnly();
    }

    public static Stream<Arguments> getTestGroupProtocolParametersClassicGroupProtocolOnly() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersClassicGroupProtocolOnly();
    }

    public static Stream<Arguments> getTestGroupProtocolParametersAll() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersAll();
    }

    public static void verifyNoUnexpectedThreads(String context) {
        QuorumTestHarness$.MODULE$.verifyNoUnexpectedThreads(context);
    }

    @BeforeAll
    public static void setUpClass() {
        QuorumTestHarness$.MODULE$.setUpClass();
    }

    @AfterAll
    public static void tearDownClass() {
        QuorumTestHarness$.MODULE$.tearDownClass();
    }

    @Override
    public String logIdent() {
        return logIdent;
    }

    @Override
    public void logIdent_$eq(String ident) {
        logIdent = ident;
    }

    public SecurityProtocol controllerListenerSecurityProtocol() {
        return protocol;
    }

    public Seq<Properties> kraftControllerConfigs(TestInfo info) {
        return CollectionConverters.asScala(java.util.List.of(new Properties()));
    }

    public MetadataVersion metadataVersion() {
        return MetadataVersion.latestTesting();
    }

    public QuorumImplementation implementation() {
        return implementation;
    }

    public void implementation_$eq(QuorumImplementation other) {
        implementation = other;
    }

    public Option<GroupProtocol> maybeGroupProtocolSpecified() {
        return TestInfoUtils.maybeGroupProtocolSpecified(testInfo);
    }

    public GroupProtocol groupProtocolFromTestParameters() {
        return maybeGroupProtocolSpecified().get();
    }

    public ControllerServer controllerServer() {
        return ((HarnessCluster) implementation).controllerServer();
    }

    public Seq<ControllerServer> controllerServers() {
        return CollectionConverters.asScala(java.util.List.of(controllerServer()));
    }

    public QuorumTestHarnessFaultHandlerFactory faultHandlerFactory() {
        return faults;
    }

    public MockFaultHandler faultHandler() {
        return faults.faultHandler();
    }

    @BeforeEach
    public void setUp(TestInfo info) {
        testInfo = info;
        Properties properties = kraftControllerConfigs(info).head();
        properties.setProperty("log.segment.delete.delay.ms", "1000");
        try {
            implementation = new HarnessCluster(
                properties, controllerListenerSecurityProtocol(), metadataVersion(), this::addSettings
            );
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        return implementation.createBroker(config, time, startup, threadNamePrefix);
    }

    public Time createBroker$default$2() {
        return Time.SYSTEM;
    }

    public boolean createBroker$default$3() {
        return true;
    }

    public Option<String> createBroker$default$4() {
        return Option.empty();
    }

    public void shutdownKRaftController() {
        throw new InsideTheJvm("the controller");
    }

    public void addFormatterSettings(Formatter formatter) { }

    private void addSettings(Formatter formatter) {
        boolean isNewest = TestInfoUtils.isTransactionV2Enabled(testInfo);
        TransactionVersion version = isNewest ? TransactionVersion.TV_2 : TransactionVersion.TV_1;
        formatter.setFeatureLevel(TransactionVersion.FEATURE_NAME, version.featureLevel());
        addFormatterSettings(formatter);
    }

    public Seq<SecurityProtocol> extraControllerSecurityProtocols() {
        return CollectionConverters.asScala(java.util.List.of());
    }

    public KRaftQuorumImplementation newKRaftQuorum(TestInfo info, Properties properties) {
        throw new InsideTheJvm("the quorum");
    }

    @AfterEach
    public void tearDown() {
        if (implementation != null) {
            implementation.shutdown();
        }
        TestUtils.clearYammerMetrics();
        System.clearProperty(JaasUtils.JAVA_LOGIN_CONFIG_PARAM);
        Configuration.setConfiguration(null);
        faultHandler().maybeRethrowFirstException();
    }
}
