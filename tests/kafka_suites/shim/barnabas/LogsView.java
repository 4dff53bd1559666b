package barnabas;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import kafka.log.LogManager;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.invocation.InvocationOnMock;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** The logs of one broker, as its directories, its page of metrics and its answers show them. */
final class LogsView {
    private final NodeView node;

    LogsView(NodeView node) {
        this.node = node;
    }

    LogManager manager() {
        return NodeView.view(LogManager.class, this::managerAnswer);
    }

    private Object managerAnswer(InvocationOnMock call) {
        switch (call.getMethod().getName()) {
            case "getLog$default$2":
                return false;
            case "getLog":
                return log(call.getArgument(0), call.getArguments().length > 1 && call.<Boolean>getArgument(1));
            case "currentDefaultConfig":
                return new LogConfig(node.config().extractLogConfigMap());
            case "liveLogDirs":
                return CollectionConverters.asScala(directories()).toSeq();
            default:
                return NodeView.refused(call);
        }
    }

    Option<UnifiedLog> log(TopicPartition partition, boolean isFuture) {
        Optional<File> found = directory(partition, isFuture);
        return found.isEmpty()
            ? Option.empty()
            : Option.apply(NodeView.view(UnifiedLog.class, call -> logAnswer(call, partition, found.get())));
    }

    private List<File> directories() {
        return Arrays.stream(node.logDirectories().split(",")).map(each -> new File(each).getAbsoluteFile()).toList();
    }

    private Optional<File> directory(TopicPartition partition, boolean isFuture) {
        Pattern name = Pattern.compile(Pattern.quote(partition.toString()) + (isFuture ? "\\.[0-9a-f]{32}-future" : ""));
        return directories().stream()
            .flatMap(each -> Arrays.stream(Optional.ofNullable(each.listFiles()).orElse(new File[0])))
            .filter(each -> name.matcher(each.getName()).matches())
            .findFirst();
    }

    private Object logAnswer(InvocationOnMock call, TopicPartition partition, File directory) throws Exception {
        switch (call.getMethod().getName()) {
            case "dir":
                return directory;
            case "parentDir":
                return directory.getParent();
            case "name":
                return directory.getName();
            case "renameDir":
                Files.move(directory.toPath(), directory.toPath().resolveSibling(call.<String>getArgument(0)));
                return null;
            case "logStartOffset":
                return offset("logstartoffset", partition);
            case "logEndOffset":
                return offset("logendoffset", partition);
            case "logSegments":
                return Arrays.stream(directory.listFiles((parent, name) -> name.endsWith(".log"))).map(LogsView::segment).toList();
            case "config":
                return node.logConfig(partition.topic());
            case "producerStateManager":
                return NodeView.view(ProducerStateManager.class, asked -> producersAnswer(asked, partition));
            default:
                return NodeView.refused(call);
        }
    }

    private static LogSegment segment(File file) {
        return NodeView.view(LogSegment.class, call -> NodeView.only("size", call, () -> (int) file.length()));
    }

    private Object producersAnswer(InvocationOnMock call, TopicPartition partition) throws Exception {
        return call.getMethod().getName().equals("activeProducers") ? node.producers(partition) : NodeView.refused(call);
    }

    private long offset(String metric, TopicPartition partition) throws IOException {
        String labels = "\\{partition=\"" + partition.partition() + "\",topic=\"" + Pattern.quote(partition.topic()) + "\"\\}";
        Matcher line = Pattern.compile("kafka_log_log_" + metric + labels + " ([0-9.e+]+)").matcher(node.metricsPage());
        if (!line.find()) {
            throw new IllegalStateException("the page of metrics has no " + metric + " of " + partition);
        }
        return (long) Double.parseDouble(line.group(1));
    }
}
