import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Runs commands with Kafka's own client, as programs.py describes. The settings are a file of properties. */
public final class SecurityWitness {
    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final long PAUSE_MS = 100;

    private SecurityWitness() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            System.out.println(outcome(line.split(" ")).replace('\n', ' '));
            System.out.flush();
        }
    }

    private static String outcome(String[] words) {
        try {
            Properties settings = new Properties();
            try (Reader reader = Files.newBufferedReader(Path.of(words[1]))) {
                settings.load(reader);
            }
            return "ok " + (words[0].equals("round")
                    ? round(settings, words[2])
                    : session(settings, words[2], Long.parseLong(words[3])));
        } catch (ExecutionException error) {
            return "error " + causes(error.getCause());
        } catch (Exception error) {
            return "error " + causes(error);
        }
    }

    private static String causes(Throwable error) {
        return error.getCause() == null ? error.toString() : error + " <- " + causes(error.getCause());
    }

    private static KafkaProducer<String, String> producer(Properties settings) {
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static String round(Properties settings, String topic) throws Exception {
        try (var producer = producer(settings)) {
            producer.send(new ProducerRecord<>(topic, "from java")).get();
        }
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(consumer.assignment());
            ConsumerRecords<String, String> records = consumer.poll(PATIENCE);
            return records.iterator().next().value();
        }
    }

    private static String session(Properties settings, String topic, long milliseconds) throws Exception {
        int delivered = 0;
        try (var producer = producer(settings)) {
            long end = System.nanoTime() + milliseconds * 1_000_000;
            for (; System.nanoTime() < end; delivered++) {
                producer.send(new ProducerRecord<>(topic, "x")).get();
                Thread.sleep(PAUSE_MS);
            }
        }
        return Integer.toString(delivered);
    }
}
