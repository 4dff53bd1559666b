import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Does with Kafka's own Java client what it is told, a line each on stdin, and says on stdout how the client saw it end:
 * {@code ok}, or {@code error CODE NAME}. The argument is bootstrap.servers. The commands are in languages.py.
 */
public final class FaultWitness {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private final String bootstrap;

    private FaultWitness(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        FaultWitness witness = new FaultWitness(arguments[0]);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            System.out.println(witness.outcome(line.split(" ")));
            System.out.flush();
        }
    }

    private String outcome(String[] words) {
        try {
            switch (words[0]) {
                case "produce" -> produce(words[1]);
                case "consume" -> consume(words[1]);
                case "join" -> join(words[1], words[2]);
                case "create" -> create(words[1]);
                default -> throw new IllegalArgumentException(words[0]);
            }
            return "ok";
        } catch (ExecutionException error) {
            return told(error.getCause());
        } catch (Exception error) {
            return told(error);
        }
    }

    private static String told(Throwable error) {
        Errors known = Errors.forException(error);
        return "error " + known.code() + " " + known.name() + " " + error;
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", "java");
        settings.put("retry.backoff.ms", "50");
        settings.put("reconnect.backoff.ms", "20");
        return settings;
    }

    private void produce(String topic) throws Exception {
        try (var producer = new KafkaProducer<>(settings(), new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "from java")).get();
        }
    }

    private void consume(String topic) {
        try (var consumer = consumer(settings())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(consumer.assignment());
            pollOnce(consumer);
        }
    }

    private void join(String topic, String group) {
        Properties settings = settings();
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        try (var consumer = consumer(settings)) {
            consumer.subscribe(List.of(topic));
            pollOnce(consumer);
        }
    }

    private static KafkaConsumer<String, String> consumer(Properties settings) {
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static void pollOnce(KafkaConsumer<String, String> consumer) {
        if (consumer.poll(PATIENCE).isEmpty()) {
            throw new IllegalStateException("no record");
        }
    }

    private void create(String topic) throws Exception {
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(Map.of()))).all().get();
        }
    }
}
