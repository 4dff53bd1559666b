import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * A Kafka Streams application with exactly_once_v2: it numbers the records of each key, so that what it keeps in its state store
 * shows in what it writes: key, value becomes key, "value#1" for the key's first record, "#2" for the second, and so on.
 *
 * <p>Arguments: a properties file with which it connects, application id, input topic, output topic, state directory, group
 * protocol (classic or streams), and "repartition" if the records pass through a repartition topic first, so that a second
 * subtopology counts them. SIGTERM closes it in order.
 */
public final class StreamsCounter {
    private static final String STORE = "counts";

    private static final class Numbering extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> record) {
            KeyValueStore<String, Long> counts = context().getStateStore(STORE);
            Long before = counts.get(record.key());
            long count = before == null ? 1 : before + 1;
            counts.put(record.key(), count);
            context().forward(record.withValue(record.value() + "#" + count));
        }
    }

    private StreamsCounter() { }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Properties settings = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(file);
        }
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, arguments[5]);
        if (arguments[5].equals("classic")) {  // else the brokers decide
            settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6000);
            settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 1000);
        }
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 10000);

        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.Long()));
        KStream<String, String> records = builder.stream(arguments[2]);
        if (arguments.length > 6 && arguments[6].equals("repartition")) {
            records = records.repartition(Repartitioned.<String, String>as("again").withNumberOfPartitions(3));
        }
        records.process(Numbering::new, STORE).to(arguments[3]);

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.err.println("a stream thread is replaced: " + error);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(20));
            ended.countDown();
        }));
        streams.start();
        ended.await();
    }
}
