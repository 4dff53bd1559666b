import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Measures the time of a record from a producer to a consumer. Each record is sent once the consumer has the one before.
 *
 * <p>It differs from Kafka's own EndToEndLatency tool in three ways. It measures microseconds instead of milliseconds. It leaves
 * out the first records, during which the JVM still compiles. Its consumer waits at the broker, as consumers usually do.
 *
 * <p>Usage: EndToEnd BOOTSTRAP TOPIC WARM_UP COUNT. Prints one JSON object.
 */
public final class EndToEnd {
    private static final int RECORD_BYTES = 100;
    private static final Duration LIMIT = Duration.ofSeconds(30);

    private EndToEnd() { }

    public static void main(String[] arguments) throws Exception {
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        int warmUp = Integer.parseInt(arguments[2]);
        long[] latencies = new long[Integer.parseInt(arguments[3])];
        Map<String, Object> common = Map.of("bootstrap.servers", arguments[0]);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                 with(common, "acks", "1", "linger.ms", "0"), new ByteArraySerializer(), new ByteArraySerializer());
             KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                 with(common, "enable.auto.commit", "false"), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            consumer.position(partition);
            for (int i = -warmUp; i < latencies.length; i++) {
                long startNs = System.nanoTime();
                producer.send(new ProducerRecord<>(partition.topic(), 0, null, new byte[RECORD_BYTES])).get();
                if (consumer.poll(LIMIT).count() != 1) {
                    throw new IllegalStateException("the record did not arrive");
                }
                if (i >= 0) {
                    latencies[i] = System.nanoTime() - startNs;
                }
            }
        }
        Arrays.sort(latencies);
        System.out.printf("{\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f}%n",
            quantileUs(latencies, 0.5), quantileUs(latencies, 0.99), quantileUs(latencies, 0.999));
    }

    private static double quantileUs(long[] sorted, double share) {
        return sorted[(int) (share * (sorted.length - 1))] / 1000.0;
    }

    private static Map<String, Object> with(Map<String, Object> common, String... more) {
        Map<String, Object> all = new java.util.HashMap<>(common);
        for (int i = 0; i < more.length; i += 2) {
            all.put(more[i], more[i + 1]);
        }
        return all;
    }
}
