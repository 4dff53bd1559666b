import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer with the client's defaults (acks=all, idempotent) that sends small records at a steady pace to the
 * partitions of a topic in turn, and tells of each when it was sent and when acknowledged.
 *
 * Arguments: bootstrap servers, topic, partitions, records a second. It runs until its standard input ends; then it
 * waits for what is on its way. Output: "ready" after a first round through all partitions, then a line a record:
 * partition, sent and acknowledged in nanoseconds of the system's monotonic clock, and the error or "-".
 */
public final class AckProbe {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        long intervalNs = 1_000_000_000L / Integer.parseInt(args[3]);
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 20), false);
        Map<String, Object> config = Map.of("bootstrap.servers", args[0], "max.block.ms", "10000");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            byte[] value = new byte[100];
            for (int round = 0; round < 3; round++) {
                for (int partition = 0; partition < partitions; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, value));
                }
                producer.flush();
            }
            System.out.println("ready");
            Thread end = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) { }
                } catch (java.io.IOException ignored) {
                    // the end, too
                }
            });
            end.setDaemon(true);
            end.start();
            long next = System.nanoTime();
            for (long number = 0; end.isAlive(); number++) {
                while (System.nanoTime() < next) {
                    LockSupport.parkNanos(next - System.nanoTime());
                }
                next += intervalNs;
                int partition = (int) (number % partitions);
                long sent = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
                    String failed = error == null ? "-" : error.getClass().getSimpleName();
                    out.println(partition + " " + sent + " " + System.nanoTime() + " " + failed);
                });
            }
        }
        out.flush();
    }
}
