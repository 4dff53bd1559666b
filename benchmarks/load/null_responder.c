/*
 * A server that does no work: it answers every frame at once with the same bytes. It shows the load generator's own limit.
 *
 * Usage: null_responder PORT ANSWER_BYTES
 * One thread and one epoll. A response is its length, the correlation id and ANSWER_BYTES zeros.
 */
#include "frame_exchange.h"

#define CORRELATION_ID_OFFSET 8

struct client {
    int descriptor;
    struct inbox inbox;
};

static int listen_on(int port) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = local_address(port);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0) die("bind");
    if (listen(listener, 128) != 0) die("listen");
    return listener;
}

static void watch(int epoll, int descriptor, void *client) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) die("epoll_ctl");
}

static void accept_one(int epoll, int listener) {
    struct client *client = calloc(1, sizeof *client);
    if (client == NULL) die("calloc");
    client->descriptor = accept(listener, NULL, NULL);
    if (client->descriptor < 0) die("accept");
    set_no_delay(client->descriptor);
    watch(epoll, client->descriptor, client);
}

/* Answer the complete frames. */
static void serve(struct client *client, size_t answer_size) {
    uint8_t out[BUFFER_BYTES];
    size_t position = 0, out_size = 0;
    if (!fill(&client->inbox, client->descriptor)) {
        close(client->descriptor);
        free(client);
        return;
    }
    for (size_t size; (size = frame_size_at(&client->inbox, position)) > 0; position += size) {
        memset(out + out_size, 0, 8 + answer_size);
        write_u32(out + out_size, (uint32_t)(4 + answer_size));
        memcpy(out + out_size + 4, client->inbox.bytes + position + CORRELATION_ID_OFFSET, 4);
        out_size += 8 + answer_size;
    }
    discard(&client->inbox, position);
    send_all(client->descriptor, out, out_size);
}

int main(int argument_count, char **arguments) {
    if (argument_count != 3) {
        fprintf(stderr, "usage: null_responder PORT ANSWER_BYTES\n");
        return 2;
    }
    int listener = listen_on(atoi(arguments[1])), epoll = epoll_create1(0);
    size_t answer_size = (size_t)atoi(arguments[2]);
    watch(epoll, listener, NULL);
    for (struct epoll_event events[EVENTS_MAX];;) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr == NULL) {
                accept_one(epoll, listener);
            } else {
                serve(events[i].data.ptr, answer_size);
            }
        }
    }
}
