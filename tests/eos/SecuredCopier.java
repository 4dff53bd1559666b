import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies records of one topic to the same partitions of another, exactly once, by the Java client with any settings of security.
 *
 * <p>Arguments: a properties file with which it connects, the group, the transactional id, input topic, output topic. Some transactions
 * are aborted on purpose. After an error that ends the producer, the process ends with 1, and must be started again. SIGTERM closes it.
 */
public final class SecuredCopier {
    private static final int RECORDS_PER_TRANSACTION = 100;
    private static final double ABORT_SHARE = 0.15;
    private static final Duration POLL = Duration.ofMillis(200);

    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;
    private final String output;
    private final Random random;

    private SecuredCopier(Properties connecting, String[] arguments) {
        Properties reading = copyOf(connecting);
        reading.put("group.id", arguments[1]);
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed");
        reading.put("max.poll.records", String.valueOf(RECORDS_PER_TRANSACTION));
        reading.put("session.timeout.ms", "6000");
        reading.put("heartbeat.interval.ms", "1000");
        consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
        Properties writing = copyOf(connecting);
        writing.put("transactional.id", arguments[2]);
        writing.put("transaction.timeout.ms", "10000");
        producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
        consumer.subscribe(List.of(arguments[3]));
        output = arguments[4];
        random = new Random(arguments[2].hashCode());
    }

    private void run() {
        producer.initTransactions();
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(POLL);
            if (!records.isEmpty()) {
                copy(records);
            }
        }
    }

    private void copy(ConsumerRecords<String, String> records) {
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(output, record.partition(), record.key(), record.value()));
                ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            if (random.nextDouble() < ABORT_SHARE) {
                throw new KafkaException("aborted on purpose");
            }
            producer.commitTransaction();
        } catch (ProducerFencedException | FencedInstanceIdException | AuthorizationException error) {
            throw error;
        } catch (KafkaException error) {
            System.err.println("aborting: " + error);
            producer.abortTransaction();
            goBack();
        }
    }

    /** To the committed offsets: what was read after them has no effect yet. */
    private void goBack() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        committed.forEach((partition, position) -> consumer.seek(partition, position == null ? 0 : position.offset()));
    }

    private static Properties copyOf(Properties settings) {
        Properties copy = new Properties();
        copy.putAll(settings);
        return copy;
    }

    public static void main(String[] arguments) throws IOException {
        Properties connecting = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            connecting.load(file);
        }
        SecuredCopier copier = new SecuredCopier(connecting, arguments);
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            copier.consumer.wakeup();
            try {
                ended.await();
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        int code = 0;
        try {
            copier.run();
        } catch (WakeupException stopped) {
            copier.consumer.close();
        } catch (KafkaException error) {
            System.err.println("fatal: " + error);
            code = 1;
        }
        ended.countDown();
        Runtime.getRuntime().halt(code);
    }
}
