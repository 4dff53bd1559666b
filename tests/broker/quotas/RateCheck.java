import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/**
 * Kafka's own rate and token bucket, to compare with.
 *
 * <p>Stdin has a command a line: {@code new samples sampleMs limit}, {@code record value ms}, {@code measure ms}. For each of the last a
 * line is printed: the rate, the length of its window in milliseconds, the tokens.
 */
public class RateCheck {
    public static void main(String[] arguments) {
        Scanner in = new Scanner(System.in);
        StringBuilder out = new StringBuilder();
        MetricConfig config = new MetricConfig();
        Rate rate = new Rate();
        TokenBucket bucket = new TokenBucket();
        while (in.hasNext()) {
            switch (in.next()) {
                case "new" -> {
                    config = new MetricConfig()
                        .samples(in.nextInt())
                        .timeWindow(in.nextLong(), TimeUnit.MILLISECONDS)
                        .quota(new Quota(in.nextDouble(), true));
                    rate = new Rate();
                    bucket = new TokenBucket();
                }
                case "record" -> {
                    double value = in.nextDouble();
                    long ms = in.nextLong();
                    rate.record(config, value, ms);
                    bucket.record(config, value, ms);
                }
                default -> {
                    long ms = in.nextLong();
                    out.append(rate.measure(config, ms)).append(' ');
                    out.append(rate.windowSize(config, ms)).append(' ');
                    out.append(bucket.measure(config, ms)).append('\n');
                }
            }
        }
        System.out.print(out);
    }
}
