/* What a library must offer to be measured, and the one call that measures it.
 *
 * A backend is six functions over float buffers; everything else (buffers, checking, timing, the
 * placement probe, the CSV) is the harness, so that two libraries differ only in the calls they make.
 *
 * Modes
 *   oop  out of place, back to back.        sample i = E(i) - E(i-1)
 *   inp  in place, back to back.            sample i = E(i) - E(i-1)
 *   use  before each call every rank rewrites its input and all meet; the timed part is the call and
 *        then a read of the whole result.   sample i = E(i) - first entry of call i
 *        all_reduce and broadcast in place, the others out of place: how programs call them.
 * E(i) is when the last rank left call i, on the one time stamp counter the ranks share. The samples
 * of oop and inp therefore add up to the wall time: skew between ranks cannot hide.
 * A broadcast has one buffer, so no oop, and its root moves on by one each call; a barrier has none
 * and is measured as oop with zero bytes.
 *
 * Sizes are those of nccl-tests: all_reduce and broadcast count the bytes of one rank's buffer,
 * all_gather its whole output, reduce_scatter and all_to_all its whole input.
 */
#ifndef RINGWORK_PEERS_HARNESS_H
#define RINGWORK_PEERS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct backend {
    void (*barrier)(void);
    /* In place, `in` and `out` are the same buffer of `count` floats. */
    void (*all_reduce)(const float *in, float *out, size_t count, bool in_place);
    /* `share` floats from each rank. In place, `in` is this rank's share of `out`. */
    void (*all_gather)(const float *in, float *out, size_t share, bool in_place);
    /* `share` floats to each rank. In place, `in` and `out` are both the whole input. */
    void (*reduce_scatter)(const float *in, float *out, size_t share, bool in_place);
    void (*broadcast)(float *buffer, size_t count, int root);
    /* `share` floats to each rank. In place, `in` and `out` are the same buffer. */
    void (*all_to_all)(const float *in, float *out, size_t share, bool in_place);
    /* Where an in-place reduce_scatter leaves its result: at the start of the buffer (MPI), or at
     * this rank's share of it (NCCL, oneCCL). */
    bool scatters_to_start;
    /* This library has no in-place all_to_all. */
    bool no_in_place_all_to_all;
};

struct options {
    const char *peer;   /* the name in the CSV */
    const char *op;     /* one operation */
    const char *modes;  /* a comma-separated list */
    const char *stamps; /* a file all ranks map: time stamps and the harness's own barrier */
    const char *out;    /* the CSV to append to; standard output if null */
    size_t min_bytes, max_bytes, factor;
    double target_ms; /* how long the timed calls of one line should take together */
    bool pin;         /* rank r to core r modulo cores */
};

/* Reads the command line; prints a message and exits with 2 if it cannot. */
struct options read_options(int argc, char **argv);

/* Pins the caller as `rank`, if the options say so. Call it before the library starts its threads. */
void pin_rank(const struct options *options, int rank);

/* Measures. Returns the exit code: 0, or 1 if something could not be measured. A wrong result is a
 * line marked BAD, not a failure. Every rank calls it, once. */
int measure(const struct options *options, const struct backend *backend, int rank, int ranks);

#ifdef __cplusplus
}
#endif

#endif
