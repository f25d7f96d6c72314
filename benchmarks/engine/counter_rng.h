/* The twin of sim/counter_rng.py and sim/workload.py: the same schedule, to the last bit. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* As in contestants.py. Times are nanoseconds. */
typedef struct {
    int64_t peers, until, poisson, interval, jitter, low, high, payload;
    uint64_t seed;
} Load;

typedef struct {
    int64_t messages, deliveries, latency, latest, held, hold, control, end;
} Totals;

enum { LINK = 1, PHASE = 2, SEND = 3 };
static const uint64_t STEP = 0x9E3779B97F4A7C15u;

static inline uint64_t mix(uint64_t value) {
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
    value = (value ^ value >> 27) * 0x94D049BB133111EBu;
    return value ^ value >> 31;
}

static inline uint64_t extended(uint64_t key, uint64_t part) {
    return mix((key + STEP) ^ mix(part + STEP));
}

static inline uint64_t key_of(uint64_t seed, uint64_t use) {
    return extended(extended(0, seed), use);
}

static inline uint64_t draw(uint64_t sequence, uint64_t number) {
    return mix(sequence + number * STEP);
}

static inline int64_t between(uint64_t bits, int64_t low, int64_t high) {
    return low + (int64_t)((unsigned __int128)bits * (uint64_t)(high - low) >> 64);
}

static int64_t exponential(uint64_t bits, int64_t mean) {
    int exponent;
    double m = frexp(((double)(int64_t)(bits >> 12) + 0.5) * 0x1p-52, &exponent);
    if (m < 0.7071067811865476) {
        m *= 2.0;
        exponent -= 1;
    }
    double s = (m - 1.0) / (m + 1.0), square = s * s, series = 0.0;
    for (int k = 13; k >= 0; k--)
        series = series * square + 1.0 / (2 * k + 1);
    return (int64_t)(-(exponent * 0.6931471805599453 + 2.0 * s * series) * (double)mean);
}

/* When a peer sends for the number-th time, from 0. */
static int64_t next_send(const Load *load, int peer, int64_t number, int64_t previous) {
    uint64_t bits = draw(extended(key_of(load->seed, SEND), peer), number);
    if (load->poisson)
        return previous + exponential(bits, load->interval);
    uint64_t phase = extended(key_of(load->seed, PHASE), peer);
    int64_t planned = between(phase, 0, load->interval) + number * load->interval;
    planned += between(bits, 0, load->jitter + 1);
    return planned > previous ? planned : previous;
}

/* The random sequence of each link, by source and destination. */
static uint64_t *link_keys(const Load *load) {
    size_t n = load->peers;
    uint64_t *keys = malloc(n * n * sizeof *keys), key = key_of(load->seed, LINK);
    for (size_t source = 0; source < n; source++) {
        uint64_t start = extended(key, source);
        for (size_t to = 0; to < n; to++)
            keys[source * n + to] = extended(start, to);
    }
    return keys;
}

/* How long a peer's number-th packet (from 0) takes on each of its links: `between`, for spans of less than
 * 32 bits, short enough to be done for eight peers at a time. */
static inline void delays_of(const Load *load, const uint64_t *restrict keys, int64_t number,
                             int32_t *restrict delays) {
    uint64_t span = load->high - load->low + 1, shift = (uint64_t)number * STEP;
    for (int64_t to = 0; to < load->peers; to++) {
        uint64_t bits = mix(keys[to] + shift);
        delays[to] = load->low + (((bits >> 32) * span + ((bits & 0xFFFFFFFFu) * span >> 32)) >> 32);
    }
}

/* How long msgpack writes things: sim/kernels/sizes.py. */
static inline int int_bytes(int32_t value) {
    return 1 + (value >= 128) + (value >= 256) + 2 * (value >= 65536);
}

/* Control bytes of a message of `timestamp`, whose clock counts the message itself. */
static int stamp_bytes(const Load *load, int me, const int32_t *restrict clock) {
    int64_t n = load->peers;
    int bytes = 2 + int_bytes(me) + (n < 16 ? 1 : 3) + (load->payload < 256 ? 2 : load->payload < 65536 ? 3 : 5);
    for (int64_t peer = 0; peer < n; peer++)
        bytes += int_bytes(clock[peer]);
    return bytes;
}
