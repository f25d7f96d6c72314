/* A simulator of all-to-all broadcast as one would write it in C: a loop over a 4-ary heap of 64-bit words.
 *
 * `bare` only counts arrivals. `causal` delivers in causal order: a message carries its sender's vector clock
 * and, if something is missing, waits in a list of the peer whose message it lacks.
 */
#include "counter_rng.h"

/* A word of the heap is a time of 40 bits and an event of 24; sends come after the arrivals of their instant. */
enum { EVENT_BITS = 24, SENDS = 1 << 23, BLOCK = 32 };

typedef struct {
    int32_t row, to; /* a free event has the next free one in `row` */
} Event;

typedef struct {
    int64_t sent;
    int32_t origin, number, left; /* to how many peers it is still to be delivered */
    int32_t next;                 /* of the free rows */
} Message;

typedef struct {
    int64_t arrived;
    int32_t row, lacks, next;
} Held;

typedef struct {
    const Load *load;
    Totals *totals;
    int64_t n, wide; /* rows of clocks are filled up to whole blocks */
    uint64_t *heap;
    size_t size, room;
    Event *events;
    Message *messages;
    int32_t *needs;             /* of each message: what must have been delivered before it */
    Held *held;
    int32_t events_made, events_room, free_event;
    int32_t rows_made, rows_room, free_row;
    int32_t held_made, held_room, free_held;
    int32_t *delivered;         /* by peer and origin */
    int32_t *waiting;           /* by peer and the origin of what is lacking: the first of a list of held */
    int32_t *sent, *ready, *delays;
    uint64_t *keys;
} World;

static inline void push(World *w, uint64_t word) {
    if (w->size == w->room)
        w->heap = realloc(w->heap, (w->room *= 2) * sizeof *w->heap);
    uint64_t *heap = w->heap;
    size_t place = w->size++;
    while (place) {
        size_t above = (place - 1) / 4;
        if (heap[above] <= word)
            break;
        heap[place] = heap[above];
        place = above;
    }
    heap[place] = word;
}

/* The hole goes down to a leaf along the smallest children, and the last word up from there. */
static inline uint64_t pop(World *w) {
    uint64_t *heap = w->heap, first = heap[0];
    size_t size = --w->size, place = 0, below = 1;
    while (below + 4 <= size) {
        const uint64_t *four = heap + below;
        size_t left = four[1] < four[0], right = 2 + (four[3] < four[2]);
        size_t best = four[right] < four[left] ? right : left;
        heap[place] = four[best];
        place = below + best;
        below = 4 * place + 1;
    }
    if (below < size) {
        size_t best = below;
        for (size_t child = below + 1; child < size; child++)
            if (heap[child] < heap[best])
                best = child;
        heap[place] = heap[best];
        place = best;
    }
    uint64_t word = heap[size];
    while (place) {
        size_t above = (place - 1) / 4;
        if (heap[above] <= word)
            break;
        heap[place] = heap[above];
        place = above;
    }
    heap[place] = word;
    return first;
}

static inline int32_t new_event(World *w) {
    int32_t event = w->free_event;
    if (event >= 0) {
        w->free_event = w->events[event].row;
        return event;
    }
    if (w->events_made == w->events_room)
        w->events = realloc(w->events, (w->events_room *= 2) * sizeof *w->events);
    return w->events_made++;
}

static int32_t new_row(World *w) {
    int32_t row = w->free_row;
    if (row >= 0) {
        w->free_row = w->messages[row].next;
        return row;
    }
    if (w->rows_made == w->rows_room) {
        w->rows_room *= 2;
        w->messages = realloc(w->messages, w->rows_room * sizeof *w->messages);
        w->needs = realloc(w->needs, w->rows_room * w->wide * sizeof *w->needs);
    }
    return w->rows_made++;
}

static int32_t new_held(World *w) {
    int32_t held = w->free_held;
    if (held >= 0) {
        w->free_held = w->held[held].next;
        return held;
    }
    if (w->held_made == w->held_room) {
        w->held_room *= 2;
        w->held = realloc(w->held, w->held_room * sizeof *w->held);
        w->ready = realloc(w->ready, (w->held_room + 1) * sizeof *w->ready);
    }
    return w->held_made++;
}

static inline void plan(World *w, int peer, int64_t number, int64_t previous) {
    int64_t time = next_send(w->load, peer, number, previous);
    if (time < w->load->until)
        push(w, (uint64_t)time << EVENT_BITS | (SENDS + peer));
}

static inline void send(World *w, int me, int64_t now, int causal) {
    int32_t row = new_row(w), number = ++w->sent[me];
    w->messages[row] = (Message){now, me, number, w->n - 1, -1};
    w->totals->messages++;
    if (causal) {
        int32_t *mine = w->delivered + me * w->wide, *needs = w->needs + row * w->wide;
        memcpy(needs, mine, w->wide * sizeof *needs);
        mine[me] = number;
        w->totals->control += stamp_bytes(w->load, me, mine);
    }
    delays_of(w->load, w->keys + me * w->n, number - 1, w->delays);
    for (int to = 0; to < w->n; to++) {
        if (to == me)
            continue;
        int32_t event = new_event(w);
        w->events[event] = (Event){row, to};
        push(w, (uint64_t)(now + w->delays[to]) << EVENT_BITS | event);
    }
    plan(w, me, number, now);
}

/* The first peer from `place` on of whom `needs` counts more than `has`; `wide` if there is none. */
static inline int lacking(const int32_t *restrict needs, const int32_t *restrict has, int place, int wide) {
    for (int block = place - place % BLOCK; block < wide; block += BLOCK) {
        int32_t any = 0;
        for (int peer = 0; peer < BLOCK; peer++)
            any |= has[block + peer] - needs[block + peer];
        if (any < 0) {
            int peer = block;
            while (needs[peer] <= has[peer])
                peer++;
            return peer;
        }
    }
    return wide;
}

static inline void count(World *w, Message *message, int32_t row, int64_t now, int64_t arrived) {
    Totals *t = w->totals;
    int64_t took = now - message->sent;
    t->deliveries++;
    t->latency += took;
    t->latest = took > t->latest ? took : t->latest;
    t->held += now > arrived;
    t->hold += now - arrived;
    if (--message->left == 0) {
        message->next = w->free_row;
        w->free_row = row;
    }
}

static inline void wait(World *w, int32_t held, int to, int lacks) {
    int32_t *first = w->waiting + to * w->n + lacks;
    w->held[held].lacks = lacks;
    w->held[held].next = *first;
    *first = held;
}

static inline void receive(World *w, int32_t row, int to, int64_t now) {
    int32_t *has = w->delivered + to * w->wide;
    int lacks = lacking(w->needs + row * w->wide, has, 0, w->wide);
    if (lacks < w->wide) {
        int32_t held = new_held(w);
        w->held[held].arrived = now;
        w->held[held].row = row;
        wait(w, held, to, lacks);
        return;
    }
    int ready = 0;
    int32_t origin = w->messages[row].origin;
    has[origin] = w->messages[row].number;
    count(w, w->messages + row, row, now, now);
    w->ready[ready++] = origin;
    while (ready) { /* a peer's next message has been delivered: who waited for it? */
        int32_t *link = w->waiting + to * w->n + w->ready[--ready];
        int32_t held = *link;
        *link = -1;
        while (held >= 0) {
            Held *one = w->held + held;
            int32_t next = one->next, place = one->lacks;
            int missing = lacking(w->needs + one->row * w->wide, has, place, w->wide);
            if (missing < w->wide) {
                wait(w, held, to, missing);
            } else {
                Message *message = w->messages + one->row;
                has[message->origin] = message->number;
                w->ready[ready++] = message->origin;
                count(w, message, one->row, now, one->arrived);
                one->next = w->free_held;
                w->free_held = held;
            }
            held = next;
        }
    }
}

static inline __attribute__((always_inline)) int run(const Load *load, Totals *totals, int causal) {
    int64_t n = load->peers, wide = (n + BLOCK - 1) / BLOCK * BLOCK;
    if ((load->until + load->high) >> 40 || load->high >> 31 || n > 1 << 16)
        return -1;
    memset(totals, 0, sizeof *totals);
    World w = {.load = load, .totals = totals, .n = n, .wide = wide, .room = 1024, .events_room = 1024,
               .rows_room = 64, .held_room = 64, .free_event = -1, .free_row = -1, .free_held = -1};
    w.heap = malloc(w.room * sizeof *w.heap);
    w.events = malloc(w.events_room * sizeof *w.events);
    w.messages = malloc(w.rows_room * sizeof *w.messages);
    w.needs = malloc(w.rows_room * wide * sizeof *w.needs);
    w.held = malloc(w.held_room * sizeof *w.held);
    w.delivered = calloc(n * wide, sizeof *w.delivered);
    w.waiting = malloc(n * n * sizeof *w.waiting);
    w.sent = calloc(n, sizeof *w.sent);
    w.ready = malloc((w.held_room + 1) * sizeof *w.ready);
    w.delays = malloc(n * sizeof *w.delays);
    w.keys = link_keys(load);
    memset(w.waiting, -1, n * n * sizeof *w.waiting);
    for (int peer = 0; peer < n; peer++)
        plan(&w, peer, 0, 0);
    int too_many = 0;
    while (w.size && !too_many) {
        uint64_t word = pop(&w);
        int32_t event = word & ((1 << EVENT_BITS) - 1);
        int64_t now = word >> EVENT_BITS;
        totals->end = now;
        if (event >= SENDS) {
            send(&w, event - SENDS, now, causal);
            too_many = w.events_made >= SENDS;
            continue;
        }
        Event it = w.events[event];
        w.events[event].row = w.free_event;
        w.free_event = event;
        if (causal)
            receive(&w, it.row, it.to, now);
        else
            count(&w, w.messages + it.row, it.row, now, now);
    }
    free(w.heap), free(w.events), free(w.messages), free(w.needs), free(w.held), free(w.delivered);
    free(w.waiting), free(w.sent), free(w.ready), free(w.delays), free(w.keys);
    return too_many ? -1 : 0;
}

int bare(const Load *load, Totals *totals) { return run(load, totals, 0); }

int causal(const Load *load, Totals *totals) { return run(load, totals, 1); }
