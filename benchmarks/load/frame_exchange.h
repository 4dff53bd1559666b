/* Shared by the load generators and the null responder: time, sockets, and buffers of Kafka frames. */
#ifndef FRAME_EXCHANGE_H
#define FRAME_EXCHANGE_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES 65536
#define EVENTS_MAX 64

static inline void die(const char *what) {
    perror(what);
    exit(1);
}

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline void write_u32(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
}

static inline struct sockaddr_in local_address(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static inline void set_no_delay(int descriptor) {
    int one = 1;
    if (setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0) die("setsockopt");
}

/* Small frames fit into an empty socket buffer, so an incomplete write is an error. */
static inline void send_all(int descriptor, const uint8_t *bytes, size_t size) {
    if (size > 0 && send(descriptor, bytes, size, MSG_NOSIGNAL) != (ssize_t)size) die("send");
}

/* Received bytes of one connection; they may end with an incomplete frame. */
struct inbox {
    uint8_t bytes[BUFFER_BYTES];
    size_t size;
};

/* Receive the available bytes. Returns 0 if the peer closed or reset the connection. */
static inline int fill(struct inbox *inbox, int descriptor) {
    ssize_t received = recv(descriptor, inbox->bytes + inbox->size, BUFFER_BYTES - inbox->size, 0);
    if (received < 0 && errno != ECONNRESET) die("recv");
    if (received <= 0) return 0;
    inbox->size += (size_t)received;
    return 1;
}

/* Return the size of the frame at a position with its 4-byte length, or 0 if it is incomplete. */
static inline size_t frame_size_at(const struct inbox *inbox, size_t position) {
    size_t available = inbox->size - position;
    if (available < 4) return 0;
    size_t size = 4 + (size_t)read_u32(inbox->bytes + position);
    return available >= size ? size : 0;
}

/* Drop the bytes before a position. */
static inline void discard(struct inbox *inbox, size_t position) {
    inbox->size -= position;
    memmove(inbox->bytes, inbox->bytes + position, inbox->size);
}

#endif
