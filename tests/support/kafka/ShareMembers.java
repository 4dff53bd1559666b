import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of a share group of Kafka's own Java client, which acknowledge each record and tell what became of it.
 *
 * <p>Arguments: the topic, the number of the first member, how many members, of how many offsets one is released at its first delivery
 * (0: none), and of how many one is rejected (0: none); then the settings of the client, as key=value.
 *
 * <p>Printed are, each on a line: {@code G member partition offset deliveries how} for each record that is got, with the way in which it
 * is to be acknowledged (A: accept, L: release, R: reject), and, once the broker has answered, {@code D member partition offset} if it has
 * taken the acknowledgement, else {@code E member partition offset error}. Records are printed before their acknowledgements are sent, and
 * what belongs together is printed by one write: several processes may share the output. At the end of stdin the members leave, and the
 * process ends.
 */
public final class ShareMembers {
    private static final Duration CLOSE = Duration.ofSeconds(3);
    private static final Duration POLL = Duration.ofMillis(200);
    private static volatile boolean isStopping = false;

    private final PrintStream out;
    private final String topic;
    private final int id;
    private final int released;
    private final int rejected;
    private final Properties settings;

    private ShareMembers(PrintStream out, String[] args, int id, Properties settings) {
        this.out = out;
        topic = args[0];
        this.id = id;
        released = Integer.parseInt(args[3]);
        rejected = Integer.parseInt(args[4]);
        this.settings = settings;
    }

    private void run() {
        KafkaShareConsumer<byte[], byte[]> client = new KafkaShareConsumer<>(settings);
        client.setAcknowledgementCommitCallback(this::acknowledged);
        client.subscribe(List.of(topic));
        while (!isStopping) {
            try {
                StringBuilder lines = new StringBuilder();
                for (ConsumerRecord<byte[], byte[]> record : client.poll(POLL)) {
                    lines.append(take(client, record)).append('\n');
                }
                tell(lines);
                client.commitSync();
            } catch (KafkaException error) {
                tell("X " + id + " " + error.toString().replace('\n', ' ') + "\n");
            }
        }
        // Why a timeout: the client (4.3.1) waits in vain to close a session that it has not opened again at a broker which was killed.
        client.close(CLOSE);
    }

    private String take(KafkaShareConsumer<byte[], byte[]> client, ConsumerRecord<byte[], byte[]> record) {
        int deliveries = record.deliveryCount().orElse((short) 0);
        AcknowledgeType how = AcknowledgeType.ACCEPT;
        if (rejected > 0 && record.offset() % rejected == rejected - 1) {
            how = AcknowledgeType.REJECT;
        } else if (released > 0 && record.offset() % released == 0 && deliveries <= 1) {
            how = AcknowledgeType.RELEASE;
        }
        String letter = how == AcknowledgeType.ACCEPT ? "A" : how == AcknowledgeType.RELEASE ? "L" : "R";
        client.acknowledge(record, how); // which sends nothing yet
        return "G " + id + " " + record.partition() + " " + record.offset() + " " + deliveries + " " + letter;
    }

    private void acknowledged(Map<TopicIdPartition, Set<Long>> offsets, Exception error) {
        StringBuilder lines = new StringBuilder();
        offsets.forEach((partition, found) -> found.forEach(offset -> {
            String which = id + " " + partition.partition() + " " + offset;
            lines.append(error == null ? "D " + which : "E " + which + " " + error.getClass().getSimpleName()).append('\n');
        }));
        tell(lines);
    }

    /** Prints lines at once, by one write. */
    private void tell(CharSequence lines) {
        synchronized (out) {
            out.append(lines);
            if (out.checkError()) { // which flushes
                Runtime.getRuntime().halt(1); // nobody reads any more
            }
        }
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        Properties settings = new Properties();
        for (String setting : Arrays.asList(args).subList(5, args.length)) {
            int equals = setting.indexOf('=');
            settings.put(setting.substring(0, equals), setting.substring(equals + 1));
        }
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16));
        List<Thread> threads = new ArrayList<>();
        int first = Integer.parseInt(args[1]);
        for (int id = first; id < first + Integer.parseInt(args[2]); id++) {
            ShareMembers member = new ShareMembers(out, args, id, settings);
            threads.add(new Thread(member::run, "member-" + id));
        }
        threads.forEach(Thread::start);
        while (System.in.read() >= 0) {
        }
        isStopping = true;
        for (Thread thread : threads) {
            thread.join();
        }
    }
}
