/* The results of a load generator: the latency of each response within the measured time, and the number of errors. */
#ifndef LATENCIES_H
#define LATENCIES_H

#include "frame_exchange.h"

static struct {
    uint32_t *latencies_ns; /* of the responses within the measured time */
    size_t count, capacity;
    uint64_t answers; /* all responses, also outside the measured time, if the role counts them */
    uint64_t errors;
    uint64_t start_ns, end_ns; /* the measured time */
} results;

static inline void measure_from(uint64_t warm_up_ms, uint64_t measure_ms) {
    results.start_ns = now_ns() + warm_up_ms * 1000000u;
    results.end_ns = results.start_ns + measure_ms * 1000000u;
}

static inline void record(uint64_t sent_ns, uint64_t answered_ns, int is_error) {
    /* Errors of the warm-up do not count either: a broker may not know the topic yet. */
    if (answered_ns < results.start_ns || answered_ns >= results.end_ns) return;
    results.errors += (uint64_t)is_error;
    if (results.count == results.capacity) {
        results.capacity = results.capacity ? 2 * results.capacity : 1 << 20;
        results.latencies_ns = realloc(results.latencies_ns, results.capacity * sizeof *results.latencies_ns);
        if (results.latencies_ns == NULL) die("realloc");
    }
    uint64_t latency_ns = answered_ns - sent_ns;
    results.latencies_ns[results.count++] = latency_ns > UINT32_MAX ? UINT32_MAX : (uint32_t)latency_ns;
}

static inline int by_value(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* Must be called before `quantile_us`. */
static inline void sort_latencies(void) {
    qsort(results.latencies_ns, results.count, sizeof *results.latencies_ns, by_value);
}

static inline double quantile_us(double share) {
    if (results.count == 0) return 0;
    return results.latencies_ns[(size_t)(share * (double)(results.count - 1))] / 1000.0;
}

#endif
