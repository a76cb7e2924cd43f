/* The harness: see harness.h for what is measured. */
#define _GNU_SOURCE
#include "harness.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 64, MAX_SAMPLES = 20000, LINE = 128 };

/* What the ranks share. One writer per word, but for `arrived` and `wrong`. */
struct shared {
    _Alignas(LINE) atomic_uint arrived;
    _Alignas(LINE) atomic_uint generation;
    _Alignas(LINE) atomic_uint calls; /* how many calls come next; rank 0 says */
    _Alignas(LINE) atomic_uint wrong; /* ranks that saw a wrong element */
    struct {
        _Alignas(LINE) atomic_ullong value;
    } hop[2];
    struct {
        _Alignas(LINE) uint64_t entry[MAX_SAMPLES + 1];
        uint64_t exit[MAX_SAMPLES + 1];
    } stamps[MAX_RANKS];
};

/* One line of the CSV to be. */
struct cell {
    const char *op, *mode;
    size_t bytes;
};

static struct {
    const struct options *options;
    const struct backend *backend;
    struct shared *shared;
    int rank, ranks;
    unsigned spins; /* before the harness yields */
    double ns_per_tick;
    uint64_t hops;
    float *in, *out;
} my;

/* ---- time ---------------------------------------------------------------------------------- */

static inline uint64_t ticks(void) {
#if defined(__x86_64__)
    unsigned aux;
    return __builtin_ia32_rdtscp(&aux);
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static double clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double measure_ns_per_tick(void) {
    const double from_ns = clock_ns();
    const uint64_t from = ticks();
    double now_ns;
    do
        now_ns = clock_ns();
    while (now_ns - from_ns < 20e6);
    return (now_ns - from_ns) / (double)(ticks() - from);
}

static double ns_since(uint64_t from) { return (double)(ticks() - from) * my.ns_per_tick; }

/* ---- meeting without the library ----------------------------------------------------------- */

static void meet(void) {
    struct shared *s = my.shared;
    const unsigned generation = atomic_load_explicit(&s->generation, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&s->arrived, 1, memory_order_acq_rel) + 1 == (unsigned)my.ranks) {
        atomic_store_explicit(&s->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&s->generation, generation + 1, memory_order_release);
        return;
    }
    for (unsigned k = 0; atomic_load_explicit(&s->generation, memory_order_acquire) == generation; k++) {
        relax();
        if (k > my.spins) sched_yield();
    }
}

/* Rank 0 decides a number and all ranks learn it. */
static unsigned agree(double wanted, unsigned least, unsigned most) {
    if (my.rank == 0) {
        const double n = wanted < least ? least : wanted > most ? most : wanted;
        atomic_store(&my.shared->calls, (unsigned)n);
    }
    meet();
    const unsigned n = atomic_load(&my.shared->calls);
    meet();
    return n;
}

/* Nanoseconds for a flag to go from one core to the other: ranks 0 and 1 exchange flags, the best of
 * 20 batches of 20. Virtual machines move their cores between sharing a cache and not; a sample
 * means something only beside samples that ran in the same place. */
static double probe_hop_ns(void) {
    double best_ns = 0;
    meet();
    if (my.ranks > 1 && my.rank < 2) {
        atomic_ullong *mine = &my.shared->hop[my.rank].value, *theirs = &my.shared->hop[1 - my.rank].value;
        for (int batch = 0; batch < 20; batch++) {
            const uint64_t from = ticks();
            for (int i = 0; i < 20; i++) {
                atomic_store_explicit(mine, ++my.hops, memory_order_release);
                for (int k = 0; atomic_load_explicit(theirs, memory_order_acquire) < my.hops; k++)
                    if (k > 3000) sched_yield();
            }
            const double ns = ns_since(from) / 20;
            if (batch == 0 || ns < best_ns) best_ns = ns;
        }
    }
    meet();
    return best_ns;
}

/* ---- one call ------------------------------------------------------------------------------ */

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

/* Whether the operation deals in equal shares of its buffer, one per rank. */
static bool deals_shares(const char *op) { return is(op, "all_gather") || is(op, "reduce_scatter") || is(op, "all_to_all"); }

static size_t count_of(const struct cell *c) { return c->bytes / sizeof(float); }
static size_t share_of(const struct cell *c) { return count_of(c) / (size_t)my.ranks; }
static bool in_place(const struct cell *c) {
    return is(c->mode, "inp") || (is(c->mode, "use") && (is(c->op, "all_reduce") || is(c->op, "broadcast")));
}

static size_t in_floats(const struct cell *c) { return is(c->op, "all_gather") ? share_of(c) : count_of(c); }
static size_t out_floats(const struct cell *c) { return is(c->op, "reduce_scatter") ? share_of(c) : count_of(c); }

/* Where this rank's input lies. */
static float *in_of(const struct cell *c) {
    if (is(c->op, "broadcast")) return my.out;
    if (!in_place(c)) return my.in;
    return is(c->op, "all_gather") ? my.out + share_of(c) * (size_t)my.rank : my.out;
}

/* Where this rank's result lies afterwards. */
static const float *result_of(const struct cell *c) {
    const bool elsewhere = is(c->op, "reduce_scatter") && in_place(c) && !my.backend->scatters_to_start;
    return elsewhere ? my.out + share_of(c) * (size_t)my.rank : my.out;
}

/* A function that makes call number `i` of a cell. Chosen once per cell, so that no name is compared
 * inside the timed loop. */
typedef void call_fn(const struct cell *c, unsigned i);

static void call_barrier(const struct cell *c, unsigned i) { (void)c, (void)i, my.backend->barrier(); }
static void call_all_reduce(const struct cell *c, unsigned i) {
    (void)i, my.backend->all_reduce(in_of(c), my.out, count_of(c), in_place(c));
}
static void call_all_gather(const struct cell *c, unsigned i) {
    (void)i, my.backend->all_gather(in_of(c), my.out, share_of(c), in_place(c));
}
static void call_reduce_scatter(const struct cell *c, unsigned i) {
    (void)i, my.backend->reduce_scatter(in_of(c), my.out, share_of(c), in_place(c));
}
static void call_broadcast(const struct cell *c, unsigned i) {
    my.backend->broadcast(my.out, count_of(c), (int)(i % (unsigned)my.ranks));
}
static void call_all_to_all(const struct cell *c, unsigned i) {
    (void)i, my.backend->all_to_all(in_of(c), my.out, share_of(c), in_place(c));
}

/* Null if there is no such operation, or this library has none. */
static call_fn *call_of(const char *op) {
    const struct backend *b = my.backend;
    if (is(op, "barrier")) return b->barrier ? call_barrier : NULL;
    if (is(op, "all_reduce")) return b->all_reduce ? call_all_reduce : NULL;
    if (is(op, "all_gather")) return b->all_gather ? call_all_gather : NULL;
    if (is(op, "reduce_scatter")) return b->reduce_scatter ? call_reduce_scatter : NULL;
    if (is(op, "broadcast")) return b->broadcast ? call_broadcast : NULL;
    if (is(op, "all_to_all")) return b->all_to_all ? call_all_to_all : NULL;
    return NULL;
}

/* ---- checking ------------------------------------------------------------------------------ */

/* Element `i` of rank `rank`'s input in round `round`: small integers, so that sums are exact. */
static float element(size_t i, int rank, unsigned round) {
    return (float)((i * 11 + (size_t)rank * 17 + round * 3) % 101);
}

static float sum_of(size_t i, unsigned round) {
    float sum = 0;
    for (int r = 0; r < my.ranks; r++) sum += element(i, r, round);
    return sum;
}

/* What element `i` of this rank's result must be. */
static float expected(const struct cell *c, size_t i, unsigned round) {
    const size_t share = share_of(c), mine = share * (size_t)my.rank;
    if (is(c->op, "all_reduce")) return sum_of(i, round);
    if (is(c->op, "reduce_scatter")) return sum_of(mine + i, round);
    if (is(c->op, "broadcast")) return element(i, (int)(round % (unsigned)my.ranks), round);
    const int from = (int)(i / share);
    return element(is(c->op, "all_gather") ? i % share : mine + i % share, from, round);
}

/* Every element of one call, from inputs that no other call had. */
static void check(const struct cell *c, call_fn *call, unsigned round) {
    if (is(c->op, "barrier")) return;
    for (size_t i = 0; i < count_of(c); i++) my.out[i] = -1.0f;
    float *in = in_of(c);
    for (size_t i = 0; i < in_floats(c); i++) in[i] = element(i, my.rank, round);
    meet();
    call(c, round);
    meet();
    const float *result = result_of(c);
    bool wrong = false;
    for (size_t i = 0; i < out_floats(c); i++) wrong |= result[i] != expected(c, i, round);
    if (wrong) atomic_fetch_add(&my.shared->wrong, 1);
}

/* ---- timing -------------------------------------------------------------------------------- */

typedef int lanes __attribute__((vector_size(32), aligned(4), may_alias));

/* Rewrites the input with ordinary stores (a large memset may stream past the cache). */
static void rewrite(float *p, size_t floats) {
    size_t i = 0;
    for (; i + 8 <= floats; i += 8) {
        *(lanes *)(p + i) = (lanes){0};
        __asm__ volatile("" ::: "memory");
    }
    for (; i < floats; i++) *(volatile float *)(p + i) = 0;
}

static volatile int sink;

/* Reads the whole result. */
static void read_all(const float *p, size_t floats) {
    lanes a = {0}, b = {0};
    int rest = 0;
    size_t i = 0;
    for (; i + 16 <= floats; i += 16) a += *(const lanes *)(p + i), b += *(const lanes *)(p + i + 8);
    for (; i < floats; i++) rest += *(const int __attribute__((may_alias)) *)(p + i);
    a += b;
    sink = rest + a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}

/* Warms up and returns how many calls fill the target. The fastest call counts: one that was
 * preempted must not decide. */
static unsigned warm_up(const struct cell *c, call_fn *call) {
    const bool large = c->bytes > 65536;
    double fastest_ns = 1e18;
    unsigned i = 0, until = 3;
    for (int phase = 0; phase < 2; phase++) {
        meet();
        for (; i < until; i++) {
            const uint64_t from = ticks();
            call(c, i);
            const double ns = ns_since(from);
            if (ns < fastest_ns) fastest_ns = ns;
        }
        if (phase == 0) until += agree(20e6 / fastest_ns, 3, large ? 3 : 80);
    }
    const unsigned least = c->bytes >= 16u << 20 ? 7 : 15;
    return agree(my.options->target_ms * 1e6 / (fastest_ns > 100 ? fastest_ns : 100), least, MAX_SAMPLES);
}

static void run_back_to_back(const struct cell *c, call_fn *call, unsigned calls) {
    uint64_t *exit = my.shared->stamps[my.rank].exit;
    exit[0] = ticks();
    for (unsigned i = 1; i <= calls; i++) {
        call(c, i);
        exit[i] = ticks();
    }
}

static void run_with_use(const struct cell *c, call_fn *call, unsigned calls) {
    uint64_t *entry = my.shared->stamps[my.rank].entry, *exit = my.shared->stamps[my.rank].exit;
    float *in = in_of(c);
    const float *result = result_of(c);
    const size_t in_count = in_floats(c), out_count = out_floats(c);
    for (unsigned i = 1; i <= calls; i++) {
        rewrite(in, in_count);
        meet();
        entry[i] = ticks();
        call(c, i);
        read_all(result, out_count);
        exit[i] = ticks();
    }
}

static uint64_t last_exit(unsigned i) {
    uint64_t last = 0;
    for (int r = 0; r < my.ranks; r++)
        if (my.shared->stamps[r].exit[i] > last) last = my.shared->stamps[r].exit[i];
    return last;
}

static uint64_t first_entry(unsigned i) {
    uint64_t first = UINT64_MAX;
    for (int r = 0; r < my.ranks; r++)
        if (my.shared->stamps[r].entry[i] < first) first = my.shared->stamps[r].entry[i];
    return first;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Bytes on the bus per byte of the size: nccl-tests' factors. */
static double bus_factor(const char *op) {
    const double others = (double)(my.ranks - 1) / my.ranks;
    return is(op, "barrier") ? 0 : is(op, "all_reduce") ? 2 * others : is(op, "broadcast") ? 1 : others;
}

static bool report(const struct cell *c, unsigned calls, double before_ns, double after_ns) {
    double *us = malloc(sizeof *us * calls), sum_us = 0;
    FILE *out = my.options->out ? fopen(my.options->out, "a") : stdout;
    if (!us || !out) {
        perror("report");
        return false;
    }
    for (unsigned i = 1; i <= calls; i++) {
        const uint64_t from = is(c->mode, "use") ? first_entry(i) : last_exit(i - 1);
        us[i - 1] = (double)(last_exit(i) - from) * my.ns_per_tick * 1e-3;
        sum_us += us[i - 1];
    }
    qsort(us, calls, sizeof *us, ascending);
    const double median_us = us[calls / 2], p99_us = us[calls * 99ul / 100];
    const double bus = (double)c->bytes * bus_factor(c->op) * 1e-3;
    fprintf(out, "%s,%d,%s,%s,%zu,%u,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%s,%ld,%.0f,%.0f\n", my.options->peer,
            my.ranks, c->op, c->mode, c->bytes, calls, us[0], median_us, p99_us, sum_us / calls,
            bus / median_us, bus / us[0], atomic_load(&my.shared->wrong) ? "BAD" : "ok", (long)time(NULL),
            before_ns, after_ns);
    free(us);
    return (out == stdout ? fflush(out) : fclose(out)) == 0;
}

static bool measure_cell(const struct cell *c, call_fn *call) {
    if (my.rank == 0) atomic_store(&my.shared->wrong, 0);
    meet();
    for (unsigned round = 0; round < (c->bytes > 1u << 20 ? 2 : 3); round++) check(c, call, round);
    /* Zeros from here on, so that sums stay finite however often they are repeated. */
    memset(my.in, 0, c->bytes);
    memset(my.out, 0, c->bytes);
    const unsigned calls = warm_up(c, call);
    memset(my.shared->stamps[my.rank].entry, 0, sizeof(uint64_t) * (calls + 1)); /* fault the pages in */
    memset(my.shared->stamps[my.rank].exit, 0, sizeof(uint64_t) * (calls + 1));
    const double before_ns = probe_hop_ns();
    (is(c->mode, "use") ? run_with_use : run_back_to_back)(c, call, calls);
    const double after_ns = probe_hop_ns();
    const bool reported = my.rank != 0 || report(c, calls, before_ns, after_ns);
    meet();
    return reported;
}

/* ---- the command line ---------------------------------------------------------------------- */

static bool has_word(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == 0)) return true;
    return false;
}

struct options read_options(int argc, char **argv) {
    struct options o = {.peer = "peer", .op = "all_reduce", .modes = "oop,inp,use", .min_bytes = 4,
                        .max_bytes = 64u << 20, .factor = 4, .target_ms = 15};
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (is(name, "--pin")) {
            o.pin = true;
            continue;
        }
        if (is(name, "--peer")) o.peer = value;
        else if (is(name, "--op")) o.op = value;
        else if (is(name, "--modes")) o.modes = value;
        else if (is(name, "--stamps")) o.stamps = value;
        else if (is(name, "--out")) o.out = value;
        else if (is(name, "--min")) o.min_bytes = strtoull(value, NULL, 10);
        else if (is(name, "--max")) o.max_bytes = strtoull(value, NULL, 10);
        else if (is(name, "--factor")) o.factor = strtoull(value, NULL, 10);
        else if (is(name, "--target-ms")) o.target_ms = strtod(value, NULL);
        else {
            fprintf(stderr, "unknown argument %s\n", name);
            exit(2);
        }
        i++;
    }
    if (!o.stamps || o.min_bytes < 4 || o.factor < 2) {
        fprintf(stderr, "needs --stamps FILE, --min of at least 4 and --factor of at least 2\n");
        exit(2);
    }
    return o;
}

void pin_rank(const struct options *options, int rank) {
    if (!options->pin) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(rank % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) perror("sched_setaffinity");
}

static bool map_stamps(const char *path) {
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) return false;
    my.shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return my.shared != MAP_FAILED;
}

static float *page_aligned(size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 4096, bytes) != 0) return NULL;
    return memset(p, 0, bytes);
}

int measure(const struct options *options, const struct backend *backend, int rank, int ranks) {
    my.options = options, my.backend = backend, my.rank = rank, my.ranks = ranks;
    my.spins = ranks > sysconf(_SC_NPROCESSORS_ONLN) ? 50 : 20000;
    const size_t capacity = options->max_bytes < 4096 ? 4096 : options->max_bytes;
    if (ranks > MAX_RANKS || !map_stamps(options->stamps)) {
        perror(options->stamps);
        return 1;
    }
    my.in = page_aligned(capacity), my.out = page_aligned(capacity);
    call_fn *call = call_of(options->op);
    if (!my.in || !my.out || !call) {
        if (rank == 0) fprintf(stderr, "%s: no such operation here, or no memory\n", options->op);
        return 1;
    }
    my.ns_per_tick = measure_ns_per_tick();
    if (is(options->op, "barrier")) {
        const struct cell c = {.op = options->op, .mode = "oop", .bytes = 0};
        return measure_cell(&c, call) ? 0 : 1;
    }
    static const char *const modes[] = {"oop", "inp", "use"};
    for (int m = 0; m < 3; m++) {
        struct cell c = {.op = options->op, .mode = modes[m]};
        if (!has_word(options->modes, c.mode)) continue;
        if (is(c.op, "broadcast") && !in_place(&c)) continue;
        if (is(c.op, "all_to_all") && in_place(&c) && backend->no_in_place_all_to_all) continue;
        for (c.bytes = options->min_bytes; c.bytes <= options->max_bytes; c.bytes *= options->factor) {
            if (deals_shares(c.op) && c.bytes % (sizeof(float) * (size_t)ranks)) continue;
            if (!measure_cell(&c, call)) return 1;
        }
    }
    return 0;
}
