import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Producers of Kafka's own Java client that number the records of each partition 0, 1, 2, ... and tell what became of each.
 *
 * <p>Arguments: the topic, its number of partitions, how many producers, the id of the first, the seed; then how long a turn lasts in
 * milliseconds, how many records a turn brings each partition (one of a list such as 0,0,1,3), how long their padding may be, how many
 * records may wait for their acknowledgement, after how many records a producer begins a new idempotent session (0: never); then the
 * settings of the client, as key=value.
 *
 * <p>The value of a record is "producer number padding". Printed are, each on a line: {@code S producer partition number} before a record
 * is handed to the client, {@code A producer partition number offset nanos} once it is acknowledged (nanos: System.nanoTime, which on Linux
 * is the monotonic clock), {@code E producer partition number error} if the client gave up on it. At the end of stdin everything is flushed,
 * and the process ends.
 *
 * <p>The first record of a session is alone on its way to its partition. A broker that does not know a producer id takes any sequence
 * number for it (Kafka's ProducerAppendInfo); if a first batch were refused, by a leader whose ISR is too small, say, and a second one
 * taken a moment later, then the first could never be written, and the client would try for as long as delivery.timeout.ms lets it.
 */
public final class NumberedProducer {
    private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(120);
    private static final long PRINT_NANOS = 20_000_000;
    private static final int NEW = 0;
    private static final int BEGINNING = 1;
    private static final int BEGUN = 2;
    private static volatile boolean isStopping = false;

    private final PrintStream out;
    private final String topic;
    private final int id;
    private final Random random;
    private final long turnNanos;
    private final int[] recordsPerTurn;
    private final int paddingMax;
    private final int waitingMax;
    private final int sessionRecords;
    private final Properties settings;
    private final int[] numbers;
    private final AtomicIntegerArray session;
    private final AtomicInteger waiting = new AtomicInteger();
    private KafkaProducer<byte[], byte[]> client;
    private int sentInSession = 0;

    private NumberedProducer(PrintStream out, String[] args, int index, Properties settings) {
        this.out = out;
        topic = args[0];
        numbers = new int[Integer.parseInt(args[1])];
        session = new AtomicIntegerArray(numbers.length);
        id = Integer.parseInt(args[3]) + index;
        random = new Random(Long.parseLong(args[4]) + index);
        turnNanos = Long.parseLong(args[5]) * 1_000_000;
        recordsPerTurn = Arrays.stream(args[6].split(",")).mapToInt(Integer::parseInt).toArray();
        paddingMax = Integer.parseInt(args[7]);
        waitingMax = Integer.parseInt(args[8]);
        sessionRecords = Integer.parseInt(args[9]);
        this.settings = settings;
    }

    private void run() {
        client = new KafkaProducer<>(settings);
        long next = System.nanoTime();
        while (!isStopping) {
            if (sessionRecords > 0 && sentInSession >= sessionRecords) {
                beginAnew();
            } else {
                turn();
            }
            next = Math.max(next + turnNanos, System.nanoTime() - turnNanos);
            LockSupport.parkNanos(next - System.nanoTime());
        }
        client.flush();
        client.close(CLOSE_TIMEOUT);
    }

    /** As soon as everything is acknowledged, so that the order of the records goes on over it. */
    private void beginAnew() {
        if (waiting.get() == 0) {
            client.close(CLOSE_TIMEOUT);
            client = new KafkaProducer<>(settings);
            sentInSession = 0;
            for (int partition = 0; partition < numbers.length; partition++) {
                session.set(partition, NEW);
            }
        }
    }

    private void turn() {
        for (int partition = 0; partition < numbers.length; partition++) {
            int count = recordsPerTurn[random.nextInt(recordsPerTurn.length)];
            for (int n = 0; n < count && waiting.get() < waitingMax && session.get(partition) != BEGINNING; n++) {
                send(partition);
            }
        }
    }

    private void send(int partition) {
        int number = numbers[partition]++;
        String name = id + " " + partition + " " + number;
        String padding = "x".repeat(paddingMax == 0 ? 0 : random.nextInt(paddingMax));
        byte[] value = (id + " " + number + " " + padding).getBytes(StandardCharsets.US_ASCII);
        out.println("S " + name);
        waiting.incrementAndGet();
        sentInSession++;
        session.compareAndSet(partition, NEW, BEGINNING);
        client.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
            if (error == null) {
                out.println("A " + name + " " + metadata.offset() + " " + System.nanoTime());
            } else {
                out.println("E " + name + " " + error.toString().replace('\n', ' '));
            }
            session.set(partition, BEGUN);
            waiting.decrementAndGet();
        });
    }

    /** Lets whoever reads know what happened, a few times a second. */
    private static void print(PrintStream out) {
        while (!out.checkError()) { // which flushes
            LockSupport.parkNanos(PRINT_NANOS);
        }
        Runtime.getRuntime().halt(1); // nobody reads any more
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        Properties settings = new Properties();
        for (String setting : Arrays.asList(args).subList(10, args.length)) {
            int equals = setting.indexOf('=');
            settings.put(setting.substring(0, equals), setting.substring(equals + 1));
        }
        settings.putIfAbsent("key.serializer", ByteArraySerializer.class.getName());
        settings.putIfAbsent("value.serializer", ByteArraySerializer.class.getName());
        PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16));
        List<Thread> threads = new ArrayList<>();
        for (int index = 0; index < Integer.parseInt(args[2]); index++) {
            NumberedProducer producer = new NumberedProducer(out, args, index, settings);
            threads.add(new Thread(producer::run, "producer-" + producer.id));
        }
        threads.forEach(Thread::start);
        Thread printer = new Thread(() -> print(out), "printer");
        printer.setDaemon(true);
        printer.start();
        while (System.in.read() >= 0) {
        }
        isStopping = true;
        for (Thread thread : threads) {
            thread.join();
        }
        out.flush();
    }
}
