/*
 * A closed loop of requests: C connections, each with K requests in flight. Each response triggers the next request.
 *
 * The generator must not be the bottleneck. So it has one thread and one epoll, sends prepared frames (only the
 * correlation id is written) and decodes nothing but the error code.
 *
 * Usage: load_generator PORT CONNECTIONS IN_FLIGHT WARM_UP_MS MEASURE_MS ANSWER_BYTES ERROR_CODE_OFFSET FRAMES_FILE
 *   FRAMES_FILE        request frames with their 4-byte length, one after another; connection i sends frame i modulo their number
 *   ANSWER_BYTES       size of every response with its length
 *   ERROR_CODE_OFFSET  offset of the error code in a response
 * Prints one JSON object: requests, errors, seconds, and the latency's quantiles in microseconds. They cover the measured
 * time only, since a broker may not know the topic yet during the warm-up. `answers_in_all` includes the warm-up.
 */
#include "latencies.h"
#include <sys/resource.h>

#define IN_FLIGHT_MAX 64
#define FRAMES_MAX 1024
#define CORRELATION_ID_OFFSET 8 /* length, api key, api version */

struct connection {
    int descriptor;
    const uint8_t *frame;
    size_t frame_size;
    uint32_t sent;                    /* requests so far: the next one's correlation id */
    uint32_t answered;                /* responses so far: the next one's correlation id */
    uint64_t sent_ns[IN_FLIGHT_MAX]; /* by correlation id modulo IN_FLIGHT_MAX */
    struct inbox inbox;
};

static size_t answer_bytes, error_code_offset;

/* Send this many requests in one write. */
static void send_requests(struct connection *connection, uint32_t count) {
    uint8_t out[BUFFER_BYTES];
    size_t size = 0;
    uint64_t sent_ns = now_ns();
    for (uint32_t i = 0; i < count; i++) {
        memcpy(out + size, connection->frame, connection->frame_size);
        write_u32(out + size + CORRELATION_ID_OFFSET, connection->sent);
        connection->sent_ns[connection->sent % IN_FLIGHT_MAX] = sent_ns;
        connection->sent++;
        size += connection->frame_size;
    }
    send_all(connection->descriptor, out, size);
}

/* Handle the complete responses. Returns their number. */
static uint32_t take_answers(struct connection *connection) {
    if (!fill(&connection->inbox, connection->descriptor)) {
        fprintf(stderr, "the broker closed a connection\n");
        exit(1);
    }
    uint64_t answered_ns = now_ns();
    size_t position = 0;
    uint32_t count = 0;
    for (size_t size; (size = frame_size_at(&connection->inbox, position)) > 0; position += size) {
        const uint8_t *answer = connection->inbox.bytes + position;
        if (read_u32(answer + 4) != connection->answered || size < error_code_offset + 2) {
            fprintf(stderr, "a response out of order or too short\n");
            exit(1);
        }
        int is_error = size != answer_bytes || answer[error_code_offset] != 0 || answer[error_code_offset + 1] != 0;
        record(connection->sent_ns[connection->answered % IN_FLIGHT_MAX], answered_ns, is_error);
        connection->answered++;
        count++;
    }
    discard(&connection->inbox, position);
    return count;
}

static void run(struct connection *connections, int count, int in_flight) {
    int epoll = epoll_create1(0);
    if (epoll < 0) die("epoll_create1");
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].descriptor, &event) != 0) die("epoll_ctl");
        send_requests(&connections[i], (uint32_t)in_flight);
    }
    struct epoll_event events[EVENTS_MAX];
    while (now_ns() < results.end_ns) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 1000);
        if (ready < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            send_requests(connection, take_answers(connection));
        }
    }
}

static uint8_t *read_frames(const char *path, const uint8_t **frames, size_t *count) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) die(path);
    uint8_t *bytes = malloc(BUFFER_BYTES * 16);
    size_t size = fread(bytes, 1, BUFFER_BYTES * 16, file);
    fclose(file);
    *count = 0;
    for (size_t position = 0; position < size && *count < FRAMES_MAX; position += 4 + read_u32(bytes + position)) {
        frames[(*count)++] = bytes + position;
    }
    return bytes;
}

static void connect_all(struct connection *connections, int count, int port, const uint8_t **frames, size_t frame_count) {
    struct sockaddr_in address = local_address(port);
    for (int i = 0; i < count; i++) {
        struct connection *connection = &connections[i];
        connection->descriptor = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(connection->descriptor, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
        set_no_delay(connection->descriptor);
        connection->frame = frames[(size_t)i % frame_count];
        connection->frame_size = 4 + read_u32(connection->frame);
    }
}

static void report(const struct connection *connections, int count) {
    uint64_t answers_in_all = 0;
    for (int i = 0; i < count; i++) answers_in_all += connections[i].answered;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
        + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    sort_latencies();
    printf("{\"answers_in_all\": %llu, \"requests\": %zu, \"errors\": %llu, \"seconds\": %.3f, \"p50_us\": %.1f, \"p99_us\": %.1f, "
           "\"p999_us\": %.1f, \"max_us\": %.1f, \"generator_cpu_seconds\": %.3f}\n",
           (unsigned long long)answers_in_all, results.count, (unsigned long long)results.errors, (double)(results.end_ns - results.start_ns) / 1e9,
           quantile_us(0.5), quantile_us(0.99), quantile_us(0.999), quantile_us(1), cpu_seconds);
}

int main(int argument_count, char **arguments) {
    if (argument_count != 9) {
        fprintf(stderr, "usage: load_generator PORT CONNECTIONS IN_FLIGHT WARM_UP_MS MEASURE_MS ANSWER_BYTES ERROR_CODE_OFFSET FRAMES_FILE\n");
        return 2;
    }
    int count = atoi(arguments[2]), in_flight = atoi(arguments[3]);
    answer_bytes = (size_t)atoi(arguments[6]);
    error_code_offset = (size_t)atoi(arguments[7]);
    const uint8_t *frames[FRAMES_MAX];
    size_t frame_count;
    uint8_t *bytes = read_frames(arguments[8], frames, &frame_count);
    struct connection *connections = calloc((size_t)count, sizeof *connections);
    if (connections == NULL || in_flight > IN_FLIGHT_MAX || frame_count == 0) die("arguments");
    connect_all(connections, count, atoi(arguments[1]), frames, frame_count);
    measure_from((uint64_t)atoi(arguments[4]), (uint64_t)atoi(arguments[5]));
    run(connections, count, in_flight);
    report(connections, count);
    free(connections);
    free(results.latencies_ns);
    free(bytes);
    return 0;
}
