import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumer groups that all read the same topic at once. Each member has its own thread.
 *
 * <p>In a pass, all members start with their partitions paused. Once every group has assigned all partitions evenly, all
 * members read. The pass ends when every group has read its records. The next pass has new members in new groups.
 *
 * <p>Usage: Consumers TOPIC GROUPS MEMBERS PASSES RECORDS KEY=VALUE...; the pairs are settings of the consumers. Prints a JSON
 * object for each pass: the seconds until all partitions were assigned, the seconds of reading, and the bytes of keys and
 * values that all groups read.
 */
public final class Consumers {
    private static final Duration LIMIT = Duration.ofSeconds(120);
    private static final Duration POLL = Duration.ofMillis(500);
    private static final int WATCH_MS = 1;

    private final String topic;
    private final int members;
    private final long records;
    private final Map<String, Object> settings;
    private volatile boolean reading;
    private volatile boolean ending;
    private volatile Throwable failure;

    private Consumers(String topic, int members, long records, Map<String, Object> settings) {
        this.topic = topic;
        this.members = members;
        this.records = records;
        this.settings = settings;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("auto.offset.reset", "earliest"));
        for (int i = 5; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        for (int pass = 0; pass < Integer.parseInt(arguments[3]); pass++) {
            new Consumers(arguments[0], Integer.parseInt(arguments[2]), Long.parseLong(arguments[4]), settings)
                .run(Integer.parseInt(arguments[1]));
        }
    }

    private void run(int groupCount) throws Exception {
        long nonce = System.nanoTime();
        List<Group> groups = IntStream.range(0, groupCount).mapToObj(i -> new Group("bench-" + nonce + "-" + i)).toList();
        long startNs = System.nanoTime();
        groups.forEach(group -> group.members.forEach(Thread::start));
        while (!groups.stream().allMatch(Group::isAssigned)) {
            check(System.nanoTime() - startNs);
            Thread.sleep(WATCH_MS);
        }
        long assignedNs = System.nanoTime();
        reading = true;
        groups.forEach(Group::wakeUp);
        for (Group group : groups) {
            while (!group.done.await(WATCH_MS, TimeUnit.MILLISECONDS)) {
                check(System.nanoTime() - assignedNs);
            }
        }
        long endNs = System.nanoTime();
        ending = true;
        groups.forEach(Group::wakeUp);
        for (Group group : groups) {
            for (Member member : group.members) {
                member.join();
            }
        }
        check(0);
        System.out.printf("{\"assigned_s\": %.4f, \"read_s\": %.4f, \"bytes\": %d}%n", (assignedNs - startNs) / 1e9,
            (endNs - assignedNs) / 1e9, groups.stream().mapToLong(group -> group.bytesRead.get()).sum());
    }

    private void check(long waitedNs) {
        if (failure != null || waitedNs > LIMIT.toNanos()) {
            throw new IllegalStateException(failure == null ? "not within " + LIMIT : "a member failed", failure);
        }
    }

    /** The members of a group. */
    private final class Group {
        private final AtomicLong recordsRead = new AtomicLong();
        private final AtomicLong bytesRead = new AtomicLong();
        private final CountDownLatch done = new CountDownLatch(1);
        private final List<Member> members = new ArrayList<>();
        private volatile int partitions = -1;

        private Group(String id) {
            for (int i = 0; i < Consumers.this.members; i++) {
                members.add(new Member(this, id));
            }
        }

        private boolean isAssigned() {
            int least = partitions / members.size();
            return partitions > 0 && members.stream().mapToInt(member -> member.assigned).sum() == partitions
                && members.stream().allMatch(member -> member.assigned == least || member.assigned == least + 1);
        }

        private void wakeUp() {
            members.forEach(member -> member.consumer.wakeup());
        }
    }

    /** A consumer and its thread. */
    private final class Member extends Thread implements ConsumerRebalanceListener {
        private final Group group;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private volatile int assigned;

        private Member(Group group, String groupId) {
            this.group = group;
            Map<String, Object> own = new HashMap<>(settings);
            own.put("group.id", groupId);
            consumer = new KafkaConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        public void run() {
            try {
                group.partitions = consumer.partitionsFor(topic).size();
                consumer.subscribe(List.of(topic), this);
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
                if (reading) {
                    consumer.resume(consumer.paused());
                }
                long count = 0;
                long bytes = 0;
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    count++;
                    bytes += Math.max(0, record.serializedKeySize()) + record.serializedValueSize();
                }
                group.bytesRead.addAndGet(bytes);
                if (group.recordsRead.addAndGet(count) >= records) {
                    group.done.countDown();
                }
            } catch (WakeupException woken) {
                // `reading` or `ending` has changed
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            if (!reading) {
                consumer.pause(partitions);
            }
            assigned = consumer.assignment().size();
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            assigned = consumer.assignment().size() - partitions.size();
        }
    }
}
