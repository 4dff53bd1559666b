/*
 * Clients that overload a broker or do not read its responses: one program, one role for each process.
 *
 * pressure offer PORT CONNECTIONS IN_FLIGHT WARM_UP_MS MEASURE_MS ERROR_CODE_OFFSET FRAMES [LOGIN]
 *     keeps IN_FLIGHT requests in flight on each connection; 0: sends without waiting, until the socket is full.
 *     Responses are read, counted and checked (correlation ids in order). LOGIN is a file like FRAMES, whose frames
 *     are sent first on each connection, one after another.
 * pressure hold PORT CONNECTIONS
 *     opens connections and sends nothing.
 * pressure half PORT CONNECTIONS SENT_BYTES FRAMES
 *     sends the first SENT_BYTES of a frame on each connection, and the rest at the end of its standard input. Then it
 *     waits for the responses and prints {"answered": N}.
 * pressure read PORT CONNECTIONS BYTES_PER_SECOND COUNT FRAMES
 *     sends COUNT frames on each connection (0: until the socket is full) and reads slowly; 0 bytes: never.
 * pressure storm PORT PER_SECOND MEASURE_MS FRAMES
 *     opens PER_SECOND connections a second; each sends one request, reads the response and closes.
 * pressure strangers PORT PER_SECOND MEASURE_MS SKIPPED FRAMES
 *     opens PER_SECOND connections a second, OPEN_MAX at once. Each sends the frames one after another, without their
 *     first SKIPPED bytes (4: what they hold is no Kafka frame), and waits for some bytes before the next. After the last one it waits for the server to close, or for LAST_MS, and closes. A
 *     frame that ends in "r=" is a SCRAM client's last message: the nonce of the server's is added, and a wrong proof.
 *     Prints how many were answered to the end ("requests"), and how many were not ("errors").
 * pressure sink PORT
 *     a server that does no work: answers every piece of bytes with a server's first SCRAM message, and closes after
 *     SINK_ANSWERS. It shows what `strangers` itself costs.
 *
 * FRAMES is a file of request frames with their 4-byte length; connection i sends frame i modulo their number.
 * `offer`, `hold`, `half` and `read` print {"held": N} once all connections are set up; the last three run until their
 * standard input ends. `offer` begins to measure WARM_UP_MS later.
 * Connections come from 127.0.0.2, 127.0.0.3, …, for enough ports; those of strangers come from 127.1.1.1 to
 * 127.1.1.200. One thread, one epoll.
 */
#define _GNU_SOURCE
#include "latencies.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define FRAMES_MAX 1024
#define HEAD_BYTES 128 /* of a response: up to its error code */
#define IN_FLIGHT_MAX 64
#define CONNECTIONS_AN_ADDRESS 20000
#define CORRELATION_ID_OFFSET 8
#define READ_BYTES (256 * 1024)
#define TICK_MS 100
#define SMALL_BUFFER_BYTES 16384
#define ADDRESSES 200
#define STRANGERS_NETWORK 0x7f010101 /* 127.1.1.1, in another /24 than all others */
#define OPEN_MAX 2000
#define PATIENCE_MS 1000 /* of a stranger, for each answer */
#define LAST_MS 300
#define SINK_ANSWERS 3

struct connection {
    int descriptor;
    const uint8_t *frame;
    size_t frame_size;
    uint8_t *out; /* frames to write; `out_sent` of `out_size` bytes are written */
    size_t out_size, out_sent, out_capacity;
    uint32_t made, answered; /* requests put into `out` so far, responses received so far */
    uint8_t head[HEAD_BYTES];
    uint64_t position; /* within the response that is being received */
    uint64_t sent_ns[IN_FLIGHT_MAX];
};

static const uint8_t *frames[FRAMES_MAX];
static size_t frame_count;
static const uint8_t *login; /* frames; NULL: none */
static size_t login_bytes;
static size_t error_code_offset;
static int epoll;

/* --- setting up --- */

static uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    struct stat about;
    if (file == NULL || fstat(fileno(file), &about) != 0) die(path);
    uint8_t *bytes = malloc((size_t)about.st_size);
    *size = fread(bytes, 1, (size_t)about.st_size, file);
    fclose(file);
    return bytes;
}

static void read_frames(const char *path) {
    size_t size;
    uint8_t *bytes = read_file(path, &size);
    for (size_t position = 0; position < size && frame_count < FRAMES_MAX; position += 4 + read_u32(bytes + position)) {
        frames[frame_count++] = bytes + position;
    }
    if (frame_count == 0) die("no frames");
}

static void set_non_blocking(int descriptor) {
    if (fcntl(descriptor, F_SETFL, O_NONBLOCK) != 0) die("fcntl");
}

static void log_in(int descriptor) {
    for (size_t position = 0; position < login_bytes; position += 4 + read_u32(login + position)) {
        uint8_t size[4], answer[BUFFER_BYTES];
        send_all(descriptor, login + position, 4 + read_u32(login + position));
        if (recv(descriptor, size, 4, MSG_WAITALL) != 4 || read_u32(size) > BUFFER_BYTES) die("login");
        if (recv(descriptor, answer, read_u32(size), MSG_WAITALL) != (ssize_t)read_u32(size)) die("login");
    }
}

/* Open connection number `number`. The number selects the local address. */
static int connected(int port, int number, int buffer_bytes) {
    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    if (descriptor < 0) die("socket");
    struct sockaddr_in from = {.sin_family = AF_INET};
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (uint32_t)(number / CONNECTIONS_AN_ADDRESS));
    int one = 1; /* the port is chosen at connect: only the pair of addresses must be unused, not the port */
    setsockopt(descriptor, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (buffer_bytes > 0) {
        setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
        setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    }
    if (bind(descriptor, (struct sockaddr *)&from, sizeof from) != 0) die("bind");
    struct sockaddr_in to = local_address(port);
    if (connect(descriptor, (struct sockaddr *)&to, sizeof to) != 0) die("connect");
    set_no_delay(descriptor);
    log_in(descriptor);
    return descriptor;
}

static struct connection *connect_all(int port, int count, int buffer_bytes) {
    struct connection *connections = calloc((size_t)count, sizeof *connections);
    if (connections == NULL) die("calloc");
    for (int i = 0; i < count; i++) {
        struct connection *connection = &connections[i];
        connection->descriptor = connected(port, i, buffer_bytes);
        if (frame_count == 0) continue;
        set_non_blocking(connection->descriptor);
        connection->frame = frames[(size_t)i % frame_count];
        connection->frame_size = 4 + read_u32(connection->frame);
        connection->out_capacity = connection->frame_size > BUFFER_BYTES ? connection->frame_size : BUFFER_BYTES;
        connection->out = malloc(connection->out_capacity);
        if (connection->out == NULL) die("malloc");
    }
    return connections;
}

static void watch(struct connection *connection, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, connection->descriptor, &event) != 0) die("epoll_ctl");
}

static void report_held(int count) {
    printf("{\"held\": %d}\n", count);
    fflush(stdout);
}

/* --- sending and receiving --- */

/* Append up to `wanted` requests to `out`. */
static void make_requests(struct connection *connection, uint32_t wanted) {
    if (connection->out_sent == connection->out_size) connection->out_sent = connection->out_size = 0;
    uint64_t made_ns = now_ns();
    while (wanted-- > 0 && connection->out_capacity - connection->out_size >= connection->frame_size) {
        uint8_t *at = connection->out + connection->out_size;
        memcpy(at, connection->frame, connection->frame_size);
        write_u32(at + CORRELATION_ID_OFFSET, connection->made);
        connection->sent_ns[connection->made % IN_FLIGHT_MAX] = made_ns;
        connection->made++;
        connection->out_size += connection->frame_size;
    }
}

/* Write `out` up to byte `limit`. Returns 0 when the socket is full. */
static int write_some(struct connection *connection, size_t limit) {
    while (connection->out_sent < connection->out_size && connection->out_sent < limit) {
        size_t end = connection->out_size < limit ? connection->out_size : limit;
        ssize_t sent = send(connection->descriptor, connection->out + connection->out_sent, end - connection->out_sent,
                            MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) return 0;
        if (sent < 0) die("send");
        connection->out_sent += (size_t)sent;
    }
    return 1;
}

/* Keep `in_flight` requests in flight; 0: send until the socket is full. */
static void offer_more(struct connection *connection, uint32_t in_flight) {
    for (;;) {
        uint32_t wanted = in_flight == 0 ? UINT32_MAX : in_flight - (connection->made - connection->answered);
        uint32_t before = connection->made;
        make_requests(connection, wanted);
        if (!write_some(connection, SIZE_MAX) || connection->made == before) return;
    }
}

static void take_answer(struct connection *connection) {
    if (read_u32(connection->head + 4) != connection->answered) {
        fprintf(stderr, "a response out of order\n");
        exit(1);
    }
    const uint8_t *code = connection->head + error_code_offset;
    int is_error = error_code_offset > 0 && (code[0] != 0 || code[1] != 0);
    record(connection->sent_ns[connection->answered % IN_FLIGHT_MAX], now_ns(), is_error);
    connection->answered++;
    results.answers++;
}

/* Parse the frames in received bytes and keep the head of each. */
static void take_bytes(struct connection *connection, const uint8_t *bytes, size_t size) {
    while (size > 0) {
        uint64_t end = connection->position < 4 ? 4 : 4 + (uint64_t)read_u32(connection->head);
        size_t count = end - connection->position < size ? (size_t)(end - connection->position) : size;
        for (size_t i = 0; i < count && connection->position + i < HEAD_BYTES; i++) {
            connection->head[connection->position + i] = bytes[i];
        }
        connection->position += count;
        bytes += count;
        size -= count;
        if (connection->position > 4 && connection->position == 4 + (uint64_t)read_u32(connection->head)) {
            take_answer(connection);
            connection->position = 0;
        }
    }
}

/* Read up to `limit` bytes and return their number. The broker must not close the connection. */
static size_t read_some(struct connection *connection, size_t limit) {
    static uint8_t bytes[READ_BYTES];
    ssize_t received = recv(connection->descriptor, bytes, limit < READ_BYTES ? limit : READ_BYTES, 0);
    if (received < 0 && errno == EAGAIN) return 0;
    if (received <= 0) {
        fprintf(stderr, "the broker closed a connection (%s)\n", received < 0 ? strerror(errno) : "end of stream");
        exit(1);
    }
    take_bytes(connection, bytes, (size_t)received);
    return (size_t)received;
}

/* --- roles --- */

static void report(void) {
    sort_latencies();
    printf("{\"requests\": %zu, \"errors\": %llu, \"seconds\": %.3f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
           results.count, (unsigned long long)results.errors, (double)(results.end_ns - results.start_ns) / 1e9,
           quantile_us(0.5), quantile_us(0.99), quantile_us(1));
}

static void offer(int port, int count, uint32_t in_flight, uint64_t warm_up_ms, uint64_t measure_ms) {
    /* Without small buffers, a client that does not wait first fills megabytes of kernel memory for each connection. */
    struct connection *connections = connect_all(port, count, in_flight == 0 ? BUFFER_BYTES : 0);
    report_held(count);
    measure_from(warm_up_ms, measure_ms);
    for (int i = 0; i < count; i++) {
        watch(&connections[i], EPOLLIN | EPOLLOUT | EPOLLET);
    }
    struct epoll_event events[EVENTS_MAX];
    while (now_ns() < results.end_ns) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 100);
        if (ready < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            if (events[i].events & EPOLLIN) {
                while (read_some(connection, READ_BYTES) == READ_BYTES) continue;
            }
            offer_more(connection, in_flight);
        }
    }
    report();
}

static void wait_for_end_of_input(void) {
    char byte;
    while (read(0, &byte, 1) > 0) continue;
}

static void half(int port, int count, size_t sent_bytes) {
    struct connection *connections = connect_all(port, count, 0);
    /* In rounds: a connection that the broker does not read must not block the others. */
    for (int i = 0; i < count; i++) make_requests(&connections[i], 1);
    uint64_t give_up_ns = now_ns() + 2000000000u;
    int written = 0;
    while (written < count && now_ns() < give_up_ns) {
        written = 0;
        for (int i = 0; i < count; i++) written += write_some(&connections[i], sent_bytes);
        usleep(1000);
    }
    report_held(count);
    wait_for_end_of_input();
    for (int i = 0; i < count; i++) watch(&connections[i], EPOLLIN | EPOLLOUT | EPOLLET);
    measure_from(0, 60000);
    struct epoll_event events[EVENTS_MAX];
    while (results.answers < (uint64_t)count && now_ns() < results.end_ns) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 100);
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            write_some(connection, SIZE_MAX);
            if (events[i].events & EPOLLIN) read_some(connection, READ_BYTES);
        }
    }
    printf("{\"answered\": %llu}\n", (unsigned long long)results.answers);
}

/* The client's buffers are small, so that unread responses soon fill the broker's side. */
static void read_slowly(int port, int count, size_t bytes_per_second, uint32_t requests) {
    struct connection *connections = connect_all(port, count, SMALL_BUFFER_BYTES);
    uint64_t give_up_ns = now_ns() + 2000000000u;
    int blocked = 0;
    if (requests > 0) {
        for (int i = 0; i < count; i++) {
            make_requests(&connections[i], requests);
            write_some(&connections[i], SIZE_MAX);
        }
    }
    while (requests == 0 && blocked < count && now_ns() < give_up_ns) {
        blocked = 0;
        for (int i = 0; i < count; i++) {
            make_requests(&connections[i], UINT32_MAX);
            blocked += !write_some(&connections[i], SIZE_MAX);
        }
    }
    report_held(count);
    struct epoll_event event = {.events = EPOLLIN}, end_of_input;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &event) != 0) die("epoll_ctl");
    while (epoll_wait(epoll, &end_of_input, 1, TICK_MS) <= 0) {
        for (int i = 0; i < count && bytes_per_second > 0; i++) {
            read_some(&connections[i], bytes_per_second * TICK_MS / 1000);
        }
    }
    uint64_t slowest = UINT64_MAX, answered = 0; /* the slowest connection's progress shows whether the broker starved it */
    for (int i = 0; i < count; i++) {
        uint64_t progress = connections[i].position + connections[i].answered;
        if (progress < slowest) slowest = progress;
        answered += connections[i].answered;
    }
    printf("{\"answered\": %llu, \"least_bytes_of_an_answer\": %llu}\n", (unsigned long long)answered,
           (unsigned long long)slowest);
}

/* Open connections at a fixed rate; each sends a request, reads the response and closes. */
static void storm(int port, uint32_t per_second, uint64_t measure_ms) {
    uint32_t open = 0;
    uint64_t started = 0, failed = 0, start_ns = now_ns();
    measure_from(0, measure_ms);
    struct epoll_event events[EVENTS_MAX];
    struct sockaddr_in to = local_address(port);
    while (now_ns() < results.end_ns || (open > 0 && now_ns() < results.end_ns + 5000000000u)) {
        uint64_t due = (now_ns() - start_ns) * per_second / 1000000000u;
        for (; started < due && now_ns() < results.end_ns; started++) {
            struct connection *connection = calloc(1, sizeof *connection);
            connection->descriptor = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
            connection->frame = frames[0];
            connection->frame_size = 4 + read_u32(frames[0]);
            connection->sent_ns[0] = now_ns();
            struct sockaddr_in from = {.sin_family = AF_INET};
            from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (uint32_t)(started % ADDRESSES));
            int one = 1;
            setsockopt(connection->descriptor, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
            if (bind(connection->descriptor, (struct sockaddr *)&from, sizeof from) != 0) die("bind");
            if (connect(connection->descriptor, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS) die("connect");
            watch(connection, EPOLLIN | EPOLLOUT | EPOLLET);
            open++;
        }
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 1);
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            int is_over = events[i].events & (EPOLLERR | EPOLLHUP);
            if (!is_over && connection->made == 0 && events[i].events & EPOLLOUT) {
                connection->made = 1;
                is_over = send(connection->descriptor, connection->frame, connection->frame_size, MSG_NOSIGNAL) < 0;
            }
            failed += is_over != 0;
            if (!is_over && events[i].events & EPOLLIN) {
                uint8_t bytes[4096];
                is_over = 1;
                if (recv(connection->descriptor, bytes, sizeof bytes, 0) > 0) record(connection->sent_ns[0], now_ns(), 0);
                else failed++;
            }
            if (is_over) {
                close(connection->descriptor);
                free(connection);
                open--;
            }
        }
    }
    results.errors = failed + open;
    report();
}

/* --- strangers --- */

struct stranger {
    int descriptor;
    size_t sent; /* frames */
    uint64_t due_ns; /* when it gives up */
    struct stranger *next, *before; /* in order of `due_ns` for those that wait, which is nearly that of their starts */
};

static struct stranger waiting = {.next = &waiting, .before = &waiting};

static void wait_until(struct stranger *stranger, uint64_t due_ns) {
    if (stranger->next != NULL) {
        stranger->next->before = stranger->before;
        stranger->before->next = stranger->next;
    }
    stranger->due_ns = due_ns;
    stranger->before = waiting.before;
    stranger->next = &waiting;
    waiting.before->next = stranger;
    waiting.before = stranger;
}

static void end_stranger(struct stranger *stranger) {
    stranger->next->before = stranger->before;
    stranger->before->next = stranger->next;
    close(stranger->descriptor);
    free(stranger);
}

/* Send the next frame, with the nonce of the answer if it is for that. Returns 0 if that fails. */
static int send_next(struct stranger *stranger, size_t skipped, const uint8_t *answer, size_t answer_size) {
    const uint8_t *frame = frames[stranger->sent++];
    size_t size = 4 + read_u32(frame);
    uint8_t final[1024];
    static const char proof[] = ",p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="; /* of 32 bytes, for SHA-256 */
    if (size > 2 && size < 512 && memcmp(frame + size - 2, "r=", 2) == 0) {
        const uint8_t *nonce = answer_size > 2 ? memmem(answer, answer_size, "r=", 2) : NULL;
        if (nonce == NULL) return 0;
        nonce += 2;
        const uint8_t *end = memchr(nonce, ',', (size_t)(answer + answer_size - nonce));
        if (end == NULL || end - nonce > 256) return 0;
        size_t nonce_size = (size_t)(end - nonce), token_at = size - 9; /* "c=biws,r=" is there */
        memcpy(final, frame, size);
        memcpy(final + size, nonce, nonce_size);
        memcpy(final + size + nonce_size, proof, sizeof proof - 1);
        size += nonce_size + sizeof proof - 1;
        write_u32(final, (uint32_t)(size - 4));
        write_u32(final + token_at - 4, (uint32_t)(size - token_at)); /* SaslAuthenticate v0: bytes with their size */
        frame = final;
    }
    return send(stranger->descriptor, frame + skipped, size - skipped, MSG_NOSIGNAL) == (ssize_t)(size - skipped);
}

static void strangers(int port, uint32_t per_second, uint64_t measure_ms, size_t skipped_bytes) {
    uint32_t open = 0;
    uint64_t started = 0, skipped = 0, completed = 0, failed = 0, start_ns = now_ns();
    measure_from(0, measure_ms);
    struct epoll_event events[EVENTS_MAX];
    struct sockaddr_in to = local_address(port);
    while (now_ns() < results.end_ns) {
        uint64_t due = (now_ns() - start_ns) * per_second / 1000000000u;
        for (; started + skipped < due; ) {
            if (open >= OPEN_MAX) {
                skipped++;
                continue;
            }
            struct stranger *stranger = calloc(1, sizeof *stranger);
            stranger->descriptor = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
            struct sockaddr_in from = {.sin_family = AF_INET};
            from.sin_addr.s_addr = htonl(STRANGERS_NETWORK + (uint32_t)(started % ADDRESSES));
            int one = 1;
            setsockopt(stranger->descriptor, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
            if (bind(stranger->descriptor, (struct sockaddr *)&from, sizeof from) != 0) die("bind");
            if (connect(stranger->descriptor, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS) die("connect");
            struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = stranger};
            if (epoll_ctl(epoll, EPOLL_CTL_ADD, stranger->descriptor, &event) != 0) die("epoll_ctl");
            wait_until(stranger, now_ns() + PATIENCE_MS * 1000000u);
            open++;
            started++;
        }
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 1);
        for (int i = 0; i < ready; i++) {
            struct stranger *stranger = events[i].data.ptr;
            int is_over = (events[i].events & EPOLLERR) != 0;
            if (!is_over && stranger->sent == 0 && events[i].events & EPOLLOUT) is_over = !send_next(stranger, skipped_bytes, NULL, 0);
            if (!is_over && events[i].events & EPOLLIN) {
                uint8_t bytes[8192];
                ssize_t count = recv(stranger->descriptor, bytes, sizeof bytes, 0);
                if (count <= 0 && !(count < 0 && errno == EAGAIN)) {
                    is_over = 1;
                } else if (count > 0 && stranger->sent < frame_count) {
                    is_over = !send_next(stranger, skipped_bytes, bytes, (size_t)count);
                    wait_until(stranger, now_ns() + PATIENCE_MS * 1000000u);
                } else if (count > 0 && stranger->sent == frame_count) {
                    stranger->sent++; /* answered */
                    wait_until(stranger, now_ns() + LAST_MS * 1000000u);
                }
            }
            if (is_over) {
                completed += stranger->sent > frame_count;
                failed += stranger->sent <= frame_count;
                end_stranger(stranger);
                open--;
            }
        }
        while (waiting.next != &waiting && waiting.next->due_ns < now_ns()) {
            completed += waiting.next->sent > frame_count;
            failed += waiting.next->sent <= frame_count;
            end_stranger(waiting.next);
            open--;
        }
    }
    printf("{\"requests\": %llu, \"errors\": %llu, \"started\": %llu, \"skipped\": %llu}\n", (unsigned long long)completed,
           (unsigned long long)failed, (unsigned long long)started, (unsigned long long)skipped);
}

static void sink(int port) {
    static const char text[] = "\0\0\0\x60\0\0\0\0r=abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz,s=c2FsdHNhbHRzYWx0c2FsdA==,i=4096";
    static uint8_t answered[1 << 16]; /* by descriptor */
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = local_address(port);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0) die("bind");
    if (listen(listener, 1024) != 0) die("listen");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS_MAX];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    event.data.fd = 0;
    epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &event);
    report_held(0);
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < ready; i++) {
            int descriptor = events[i].data.fd;
            uint8_t bytes[8192];
            if (descriptor == 0) return; /* the end of the standard input */
            if (descriptor == listener) {
                int accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (accepted < 0 || accepted >= 1 << 16) continue;
                answered[accepted] = 0;
                event.data.fd = accepted;
                epoll_ctl(epoll, EPOLL_CTL_ADD, accepted, &event);
                continue;
            }
            ssize_t count = recv(descriptor, bytes, sizeof bytes, 0);
            if (count < 0 && errno == EAGAIN) continue;
            if (count > 0) send(descriptor, text, sizeof text, MSG_NOSIGNAL);
            if (count <= 0 || ++answered[descriptor] == SINK_ANSWERS) close(descriptor);
        }
    }
}

static void raise_descriptor_limit(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int is_role(char **arguments, int count, const char *name, int arguments_wanted) {
    return count == arguments_wanted + 2 && strcmp(arguments[1], name) == 0;
}

int main(int count, char **arguments) {
    raise_descriptor_limit();
    epoll = epoll_create1(0);
    if (epoll < 0) die("epoll_create1");
    int port = count > 2 ? atoi(arguments[2]) : 0;
    int number = count > 3 ? atoi(arguments[3]) : 0;
    if (is_role(arguments, count, "offer", 7) || is_role(arguments, count, "offer", 8)) {
        uint32_t in_flight = (uint32_t)atoi(arguments[4]);
        if (in_flight > IN_FLIGHT_MAX) die("in flight");
        error_code_offset = (size_t)atoi(arguments[7]);
        read_frames(arguments[8]);
        if (count == 10) login = read_file(arguments[9], &login_bytes);
        offer(port, number, in_flight, (uint64_t)atoi(arguments[5]), (uint64_t)atoi(arguments[6]));
    } else if (is_role(arguments, count, "hold", 2)) {
        connect_all(port, number, 0);
        report_held(number);
        wait_for_end_of_input();
    } else if (is_role(arguments, count, "half", 4)) {
        read_frames(arguments[5]);
        half(port, number, (size_t)atoi(arguments[4]));
    } else if (is_role(arguments, count, "read", 5)) {
        read_frames(arguments[6]);
        read_slowly(port, number, (size_t)atoi(arguments[4]), (uint32_t)atoi(arguments[5]));
    } else if (is_role(arguments, count, "storm", 4)) {
        read_frames(arguments[5]);
        storm(port, (uint32_t)number, (uint64_t)atoi(arguments[4]));
    } else if (is_role(arguments, count, "strangers", 5)) {
        read_frames(arguments[6]);
        strangers(port, (uint32_t)number, (uint64_t)atoi(arguments[4]), (size_t)atoi(arguments[5]));
    } else if (is_role(arguments, count, "sink", 1)) {
        sink(port);
    } else {
        fprintf(stderr, "usage: see the first comment of pressure.c\n");
        return 2;
    }
    return 0;
}
