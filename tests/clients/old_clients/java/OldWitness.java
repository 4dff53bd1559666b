// Writes COUNT records to a topic with an old Java client and reads them in a consumer group, twice: the second consumer
// continues where the first one committed. Arguments: bootstrap server, topic, compression.
// Prints "key value" of each record, and the committed offset.
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

public class OldWitness {
    private static final int COUNT = 20;
    private static final long TIMEOUT_MS = 30_000;

    public static void main(String[] arguments) throws Exception {
        produce(arguments[0], arguments[1], arguments[2]);
        read(arguments[0], arguments[1], COUNT / 2);
        read(arguments[0], arguments[1], COUNT - COUNT / 2);
    }

    private static void produce(String bootstrap, String topic, String compression) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("linger.ms", "50");
        settings.put("compression.type", compression);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < COUNT; number++) {
                String key = number % 2 == 0 ? null : "key-" + number;
                sent.add(producer.send(new ProducerRecord<>(topic, 0, key, String.valueOf(number))));
            }
            for (int number = 0; number < COUNT; number++) {
                if (sent.get(number).get().offset() != number) {
                    throw new IllegalStateException("record " + number + " is at " + sent.get(number).get().offset());
                }
            }
        }
    }

    private static void read(String bootstrap, String topic, int count) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", topic);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Collections.singletonList(topic));
            int seen = 0;
            long deadline = System.currentTimeMillis() + TIMEOUT_MS;
            while (seen < count && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(200)) {
                    if (seen < count) {
                        seen++;
                        System.out.println(record.key() + " " + record.value());
                        consumer.commitSync(
                            Collections.singletonMap(partition, new OffsetAndMetadata(record.offset() + 1)));
                    }
                }
            }
            System.out.println("committed " + consumer.committed(partition).offset());
        }
    }
}
