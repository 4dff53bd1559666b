import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Measures the transactions per second of some producers, and the time of each: begin, a record to every partition of a
 * topic, commit; then the next one without a pause. Every producer has its own transactional id, connections and thread.
 *
 * <p>Usage: Transactions BOOTSTRAP TOPIC PARTITIONS PRODUCERS WARM_UP_MS MS. Prints one JSON object. Each producer counts
 * the transactions that begin after the warm-up, until the time is over, and at least one. Any error that the producer does
 * not handle itself ends the program.
 */
public final class Transactions {
    private static final int RECORD_BYTES = 100;

    private Transactions() { }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        int count = Integer.parseInt(arguments[3]);
        long warmUpNs = Long.parseLong(arguments[4]) * 1_000_000;
        long measuredNs = Long.parseLong(arguments[5]) * 1_000_000;
        ExecutorService threads = Executors.newFixedThreadPool(count);
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments[0], "transactional.id", topic + "-" + System.nanoTime() + "-" + i);
            producers.add(new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer()));
        }
        List<Callable<Void>> beginnings = new ArrayList<>();
        for (KafkaProducer<byte[], byte[]> producer : producers) {
            beginnings.add(() -> {
                producer.initTransactions();
                return null;
            });
        }
        await(threads.invokeAll(beginnings));
        long startNs = System.nanoTime() + warmUpNs;
        List<Callable<Counted>> loops = new ArrayList<>();
        for (KafkaProducer<byte[], byte[]> producer : producers) {
            loops.add(() -> loop(producer, topic, partitions, startNs, startNs + measuredNs));
        }
        List<Counted> counted = await(threads.invokeAll(loops));
        long[] latencies = counted.stream().flatMap(one -> one.latencies.stream()).mapToLong(n -> n).toArray();
        threads.shutdown();
        producers.forEach(KafkaProducer::close);
        Arrays.sort(latencies);
        System.out.printf("{\"per_s\": %.3f, \"p50_us\": %.1f, \"p99_us\": %.1f}%n",
            counted.stream().mapToDouble(Counted::perSecond).sum(), quantileUs(latencies, 0.5), quantileUs(latencies, 0.99));
    }

    /** One producer's result: the nanoseconds of each transaction, and of all together. */
    private record Counted(List<Long> latencies, long allNs) {
        double perSecond() {
            return latencies.size() * 1e9 / allNs;
        }
    }

    private static Counted loop(
            KafkaProducer<byte[], byte[]> producer, String topic, int partitions, long startNs, long endNs) {
        List<Long> took = new ArrayList<>();
        long firstNs = 0;
        while (true) {
            long beganNs = System.nanoTime();
            producer.beginTransaction();
            for (int partition = 0; partition < partitions; partition++) {
                producer.send(new ProducerRecord<>(topic, partition, null, new byte[RECORD_BYTES]));
            }
            producer.commitTransaction();
            long nowNs = System.nanoTime();
            if (beganNs - startNs >= 0) {
                firstNs = took.isEmpty() ? beganNs : firstNs;
                took.add(nowNs - beganNs);
                if (nowNs - endNs >= 0) {
                    return new Counted(took, nowNs - firstNs);
                }
            }
        }
    }

    private static <T> List<T> await(List<Future<T>> futures) throws Exception {
        List<T> results = new ArrayList<>();
        for (Future<T> future : futures) {
            results.add(future.get());
        }
        return results;
    }

    private static double quantileUs(long[] sorted, double share) {
        return sorted[(int) (share * (sorted.length - 1))] / 1000.0;
    }
}
