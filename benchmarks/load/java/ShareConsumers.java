import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A share group (KIP-932) that reads a topic from its beginning. Each member has its own thread, and accepts what it has
 * polled with its next poll.
 *
 * <p>A pass begins with the first record that a member gets, and ends when the group has read its records. The next pass
 * has new members in a new group.
 *
 * <p>Usage: ShareConsumers TOPIC MEMBERS PASSES RECORDS KEY=VALUE...; the pairs are settings of the clients. Prints a JSON
 * object for each pass: the seconds until the first record, the seconds of reading, and the bytes of keys and values read.
 */
public final class ShareConsumers {
    private static final Duration LIMIT = Duration.ofSeconds(120);
    private static final Duration POLL = Duration.ofMillis(500);
    private static final int WATCH_MS = 1;

    private final String topic;
    private final long records;
    private final Map<String, Object> settings;
    private final AtomicLong recordsRead = new AtomicLong();
    private final AtomicLong bytesRead = new AtomicLong();
    private final AtomicLong firstNs = new AtomicLong();
    private final CountDownLatch done = new CountDownLatch(1);
    private volatile long endNs;
    private volatile boolean ending;
    private volatile Throwable failure;

    private ShareConsumers(String topic, long records, Map<String, Object> settings) {
        this.topic = topic;
        this.records = records;
        this.settings = settings;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        for (int i = 4; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        for (int pass = 0; pass < Integer.parseInt(arguments[2]); pass++) {
            new ShareConsumers(arguments[0], Long.parseLong(arguments[3]), settings).run(Integer.parseInt(arguments[1]));
        }
    }

    private void run(int memberCount) throws Exception {
        String group = "bench-share-" + System.nanoTime();
        beginEarliest(group);
        List<Member> members = new ArrayList<>();
        for (int i = 0; i < memberCount; i++) {
            members.add(new Member(group));
        }
        long startNs = System.nanoTime();
        members.forEach(Thread::start);
        while (!done.await(WATCH_MS, TimeUnit.MILLISECONDS)) {
            check(System.nanoTime() - startNs);
        }
        ending = true;
        members.forEach(member -> member.consumer.wakeup());
        for (Member member : members) {
            member.join();
        }
        check(0);
        System.out.printf("{\"first_s\": %.4f, \"read_s\": %.9f, \"bytes\": %d}%n", (firstNs.get() - startNs) / 1e9,
            (endNs - firstNs.get()) / 1e9, bytesRead.get());
    }

    private void beginEarliest(String group) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
        try (Admin admin = Admin.create(settings)) {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET))))
                .all().get();
        }
    }

    private void check(long waitedNs) {
        if (failure != null || waitedNs > LIMIT.toNanos()) {
            throw new IllegalStateException(failure == null ? "not within " + LIMIT : "a member failed", failure);
        }
    }

    /** A share consumer and its thread. */
    private final class Member extends Thread {
        private final KafkaShareConsumer<byte[], byte[]> consumer;

        private Member(String group) {
            Map<String, Object> own = new HashMap<>(settings);
            own.put("group.id", group);
            consumer = new KafkaShareConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        public void run() {
            try {
                consumer.subscribe(List.of(topic));
                while (!ending) {
                    turn();
                }
                consumer.close();
            } catch (Throwable error) {
                failure = error;
            }
        }

        private void turn() {
            try {
                long count = 0;
                long bytes = 0;
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    count++;
                    bytes += Math.max(0, record.serializedKeySize()) + record.serializedValueSize();
                }
                if (count == 0) {
                    return;
                }
                firstNs.compareAndSet(0, System.nanoTime());
                if (endNs != 0) {
                    return;
                }
                bytesRead.addAndGet(bytes);
                if (recordsRead.addAndGet(count) >= records) {
                    endNs = System.nanoTime();
                    done.countDown();
                }
            } catch (WakeupException woken) {
                // `ending` has changed
            }
        }
    }
}
