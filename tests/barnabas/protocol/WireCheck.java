// Apache Kafka's own codec and error responses, for comparison with ours. One question a line of stdin, one answer a line:
//   message CLASS VERSION =HEX     the bytes that Kafka writes after reading these, or "! why"
//   error KEY VERSION =HEX CODE    Kafka's error response to this request, or "! why", or "-" if it answers nothing
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

public class WireCheck {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        PrintStream output = new PrintStream(System.out, false);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.println(answer(line.split(" ")));
        }
        output.flush();
    }

    private static String answer(String[] words) {
        try {
            short version = Short.parseShort(words[2]);
            ByteBuffer buffer = ByteBuffer.wrap(HexFormat.of().parseHex(words[3].substring(1)));
            if (words[0].equals("error")) {
                return errorResponse(Short.parseShort(words[1]), version, buffer, Short.parseShort(words[4]));
            }
            Message message = (Message) Class.forName(words[1]).getDeclaredConstructor().newInstance();
            message.read(new ByteBufferAccessor(buffer), version);
            return buffer.hasRemaining() ? "! " + buffer.remaining() + " bytes left" : hex(message, version);
        } catch (Exception | Error failure) {
            return "! " + failure.toString().replace('\n', ' ');
        }
    }

    private static String errorResponse(short key, short version, ByteBuffer body, short code) {
        AbstractRequest request =
            AbstractRequest.parseRequest(ApiKeys.forId(key), version, new ByteBufferAccessor(body)).request;
        AbstractResponse response = request.getErrorResponse(0, Errors.forCode(code).exception());
        return response == null ? "-" : hex((ApiMessage) response.data(), version);
    }

    private static String hex(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        buffer.flip();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return "=" + HexFormat.of().formatHex(bytes);
    }
}
