package barnabas;

/** A test asks for an object of the broker's own JVM, which Barnabas has not. The runner knows this class by name. */
public class InsideTheJvm extends UnsupportedOperationException {
    public InsideTheJvm(String what) {
        super(what + " is an object of Apache Kafka's own process");
    }
}
