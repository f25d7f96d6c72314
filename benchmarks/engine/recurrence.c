/* sim/kernels/recurrence.py written in C, for `timestamp` on links that need not be FIFO.
 *
 * The same tables and the same order of work. How many rows are needed is known before: nothing is delivered
 * later than the longest delay after it was sent, because its causes were sent before it. Clocks of 16 bits were
 * tried, and took 5 % off at most.
 */
#include "counter_rng.h"

enum { BLOCK = 16, PAD = 8 };
static const int64_t NEVER = (int64_t)1 << 62;

typedef struct {
    int64_t count;
    int64_t *times;
    int32_t *senders, *numbers;
    int64_t *last; /* of each message: its sender's previous one; -1 if there is none */
} Plan;

typedef struct {
    const Load *load;
    Plan plan;
    int64_t n, rows, oldest, settled;
    int32_t *delivery, *clocks; /* by row and peer */
    int64_t *complete;
    int64_t *due; /* by peer and row */
    uint8_t *taken;
    int64_t *since;
    int32_t *older;        /* by peer: the clock of its last message that is no longer under way */
    int64_t *older_place;  /* and which that is */
    int32_t *seen;
    int32_t *known, *row;
    int64_t *chosen;
} State;

/* All sends in the order of time, then of peers: a heap of every peer's next. */
static Plan plan_of(const Load *load) {
    int64_t n = load->peers, room = 1024, size = 0;
    Plan plan = {0};
    int64_t *next = malloc(n * sizeof *next), *last = malloc(n * sizeof *last);
    int32_t *heap = malloc(n * sizeof *heap), *sent = calloc(n, sizeof *sent);
    plan.times = malloc(room * sizeof *plan.times), plan.senders = malloc(room * sizeof *plan.senders);
    plan.numbers = malloc(room * sizeof *plan.numbers), plan.last = malloc(room * sizeof *plan.last);
#define BEFORE(a, b) (next[a] < next[b] || (next[a] == next[b] && (a) < (b)))
    for (int32_t peer = 0; peer < n; peer++) {
        last[peer] = -1;
        next[peer] = next_send(load, peer, 0, 0);
        int64_t place = size++;
        for (; place && BEFORE(peer, heap[(place - 1) / 2]); place = (place - 1) / 2)
            heap[place] = heap[(place - 1) / 2];
        heap[place] = peer;
    }
    while (size && next[heap[0]] < load->until) {
        int32_t peer = heap[0];
        if (plan.count == room) {
            room *= 2;
            plan.times = realloc(plan.times, room * sizeof *plan.times);
            plan.senders = realloc(plan.senders, room * sizeof *plan.senders);
            plan.numbers = realloc(plan.numbers, room * sizeof *plan.numbers);
            plan.last = realloc(plan.last, room * sizeof *plan.last);
        }
        plan.times[plan.count] = next[peer];
        plan.senders[plan.count] = peer;
        plan.numbers[plan.count] = ++sent[peer];
        plan.last[plan.count] = last[peer];
        last[peer] = plan.count++;
        next[peer] = next_send(load, peer, sent[peer], next[peer]);
        int64_t place = 0;
        for (int64_t below = 1; below < size; below = 2 * place + 1) {
            below += below + 1 < size && BEFORE(heap[below + 1], heap[below]);
            if (!BEFORE(heap[below], peer))
                break;
            heap[place] = heap[below];
            place = below;
        }
        heap[place] = peer;
    }
    free(next), free(last), free(heap), free(sent);
    return plan;
}

/* A power of two, no less than what is ever under way at once. */
static int64_t rows_for(const Plan *plan, int64_t longest) {
    int64_t most = 0, first = 0, rows = BLOCK;
    for (int64_t message = 0; message < plan->count; message++) {
        while (plan->times[first] + longest <= plan->times[message])
            first++;
        most = message - first + 1 > most ? message - first + 1 : most;
    }
    while (rows < most + 1)
        rows *= 2;
    return rows;
}

static inline void no_sooner(int32_t *restrict row, const int32_t *restrict delivery, int32_t earlier, int64_t n) {
    for (int64_t peer = 0; peer < n; peer++) {
        int32_t at = delivery[peer] - earlier;
        row[peer] = at > row[peer] ? at : row[peer];
    }
}

static void lay_out(State *s, int64_t begin) {
    int64_t n = s->n, mask = s->rows - 1, wide = s->rows + PAD;
    for (int64_t peer = 0; peer < n; peer++)
        for (int64_t place = 0; place < BLOCK; place++) {
            int64_t slot = (begin + place) & mask;
            int64_t at = s->plan.times[begin + place] + s->delivery[slot * n + peer];
            s->due[peer * wide + slot] = s->taken[place * n + peer] ? NEVER : at;
        }
}

static int ascending(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* What a message of `me` that is sent now immediately depends on, besides the one that `me` sent before it;
 * how many, with their places in `chosen` from the end of what was found down. */
static int64_t frontier(State *s, int32_t me, int64_t now, int64_t sent) {
    const Plan *plan = &s->plan;
    int64_t n = s->n, mask = s->rows - 1, found = 0, oldest = s->oldest, settled = s->settled;
    int32_t *seen = s->seen + me * n;
    int64_t *due = s->due + me * (s->rows + PAD), *chosen = s->chosen;
    if (s->since[me] < oldest) {
        for (int64_t peer = 0; peer < n; peer++)
            if (peer != me && s->older[peer * n + peer] > seen[peer])
                chosen[found++] = s->older_place[peer];
        qsort(chosen, found, sizeof *chosen, ascending);
    }
    int64_t start = s->since[me] > oldest ? s->since[me] : oldest;
    for (int64_t message = start; message < settled; message++) {
        chosen[found] = message;
        found += due[message & mask] <= now;
    }
    for (int64_t message = start > settled ? start : settled; message < sent; message++)
        if (!s->taken[message % BLOCK * n + me] && plan->times[message] + s->delivery[(message & mask) * n + me] <= now)
            chosen[found++] = message;
    for (int64_t place = 0; place < found; place++) {
        int64_t message = chosen[place];
        seen[plan->senders[message]] = plan->numbers[message];
        if (message >= settled)
            s->taken[message % BLOCK * n + me] = 1;
        else if (message >= oldest)
            due[message & mask] = NEVER;
    }
    while (start < settled && due[start & mask] == NEVER)
        start++;
    s->since[me] = start;

    int32_t *restrict known = s->known;
    int64_t count = 0;
    memset(known, 0, n * sizeof *known);
    for (int64_t place = found - 1; place >= 0; place--) {
        int64_t message = chosen[place], slot = message & mask;
        int32_t origin = plan->senders[message];
        if (known[origin] >= plan->numbers[message])
            continue;
        int alive = message >= oldest;
        const int32_t *restrict clock = alive ? s->clocks + slot * n : s->older + origin * n;
        for (int64_t peer = 0; peer < n; peer++)
            known[peer] = clock[peer] > known[peer] ? clock[peer] : known[peer];
        if (alive && s->complete[slot] > now)
            no_sooner(s->row, s->delivery + slot * n, now - plan->times[message], n);
        chosen[found - ++count] = message;
    }
    return count;
}

int recurrence(const Load *load, Totals *t) {
    int64_t n = load->peers;
    if (load->high >> 31)
        return -1;
    memset(t, 0, sizeof *t);
    State s = {.load = load, .plan = plan_of(load), .n = n};
    const Plan *plan = &s.plan;
    s.rows = rows_for(plan, load->high);
    int64_t mask = s.rows - 1;
    s.delivery = malloc(s.rows * n * sizeof *s.delivery), s.clocks = malloc(s.rows * n * sizeof *s.clocks);
    s.complete = calloc(s.rows, sizeof *s.complete), s.due = malloc(n * (s.rows + PAD) * sizeof *s.due);
    s.taken = calloc(BLOCK * n, 1), s.since = calloc(n, sizeof *s.since);
    s.older = calloc(n * n, sizeof *s.older), s.older_place = calloc(n, sizeof *s.older_place);
    s.seen = calloc(n * n, sizeof *s.seen), s.known = malloc(n * sizeof *s.known);
    s.row = malloc(n * sizeof *s.row), s.chosen = malloc((s.rows + n + 1) * sizeof *s.chosen);
    uint64_t *keys = link_keys(load);
    int32_t *delays = malloc(n * sizeof *delays);
    int32_t *control = malloc(plan->count * sizeof *control), *named = malloc(plan->count * sizeof *named);
    for (int64_t message = 0; message < plan->count; message++) {
        int64_t now = plan->times[message], slot = message & mask, gone = message - s.rows;
        int32_t me = plan->senders[message], number = plan->numbers[message];
        if (gone >= s.oldest) {
            memcpy(s.older + plan->senders[gone] * n, s.clocks + slot * n, n * sizeof *s.older);
            s.older_place[plan->senders[gone]] = gone;
            s.oldest = gone + 1;
        }
        if (message % BLOCK == 0 && message) {
            lay_out(&s, message - BLOCK);
            s.settled = message;
        }
        memset(s.row, 0, n * sizeof *s.row);
        named[message] = frontier(&s, me, now, message);
        int64_t before = plan->last[message];
        if (before >= s.oldest && s.complete[before & mask] > now)
            no_sooner(s.row, s.delivery + (before & mask) * n, now - plan->times[before], n);
        int32_t *mine = s.seen + me * n;
        mine[me] = number;
        control[message] = stamp_bytes(load, me, mine);
        memset(s.taken + message % BLOCK * n, 0, n);
        s.taken[message % BLOCK * n + me] = 1;
        memcpy(s.clocks + slot * n, mine, n * sizeof *mine);

        delays_of(load, keys + me * n, number - 1, delays);
        delays[me] = s.row[me] = 0;
        int32_t *restrict to = s.delivery + slot * n, latest = 0, slowest = 0, held = 0;
        const int32_t *restrict row = s.row, *restrict delay = delays;
        int64_t latency = 0, hold = 0;
        for (int64_t peer = 0; peer < n; peer++) {
            int32_t took = row[peer] > delay[peer] ? row[peer] : delay[peer];
            to[peer] = took;
            latest = took > latest ? took : latest;
            slowest = delay[peer] > slowest ? delay[peer] : slowest;
            latency += took;
            held += took > delay[peer];
            hold += took - delay[peer];
        }
        s.complete[slot] = now + latest;
        t->latency += latency, t->held += held, t->hold += hold;
        t->latest = latest > t->latest ? latest : t->latest;
        t->end = now + slowest > t->end ? now + slowest : t->end;
        t->control += control[message];
    }
    t->messages = plan->count, t->deliveries = plan->count * (n - 1);
    free(plan->times), free(plan->senders), free(plan->numbers), free(plan->last);
    free(s.delivery), free(s.clocks), free(s.complete), free(s.due), free(s.taken), free(s.since);
    free(s.older), free(s.older_place), free(s.seen), free(s.known), free(s.row), free(s.chosen);
    free(keys), free(delays), free(control), free(named);
    return 0;
}
