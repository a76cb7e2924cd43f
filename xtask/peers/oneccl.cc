/* oneCCL, on host memory, through its C interface (whose header only a C++ compiler accepts). */
#include "harness.h"

#include <oneapi/ccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static onecclComm_t comm;
static int my_rank;

static void need(onecclResult_t result, const char *what) {
    if (result == onecclSuccess) return;
    fprintf(stderr, "rank %d: %s failed with code %d\n", my_rank, what, (int)result);
    _exit(3); /* the launcher ends the others */
}

static void all_reduce(const float *in, float *out, size_t count, bool in_place) {
    (void)in_place;
    need(onecclAllReduce((void *)in, out, count, onecclFloat32, onecclSum, comm, nullptr), "onecclAllReduce");
}

static void all_gather(const float *in, float *out, size_t share, bool in_place) {
    (void)in_place;
    need(onecclAllGather((void *)in, out, share, onecclFloat32, comm, nullptr), "onecclAllGather");
}

static void reduce_scatter(const float *in, float *out, size_t share, bool in_place) {
    float *mine = in_place ? out + share * (size_t)my_rank : out;
    need(onecclReduceScatter((void *)in, mine, share, onecclFloat32, onecclSum, comm, nullptr), "onecclReduceScatter");
}

static void broadcast(float *buffer, size_t count, int root) {
    need(onecclBroadcast(buffer, buffer, count, onecclFloat32, root, comm, nullptr), "onecclBroadcast");
}

static void all_to_all(const float *in, float *out, size_t share, bool in_place) {
    (void)in_place;
    need(onecclAllToAll((void *)in, out, share, onecclFloat32, comm, nullptr), "onecclAllToAll");
}

/* Rank 0 makes the identifier; the others read it from a file beside the stamps. It appears there
 * whole, by a rename. */
static bool share_id(const char *stamps, onecclUniqueId *id) {
    char path[4096], made[4096];
    if (snprintf(path, sizeof path, "%s.id", stamps) >= (int)sizeof path) return false;
    if (snprintf(made, sizeof made, "%s.new", stamps) >= (int)sizeof made) return false;
    FILE *file = nullptr;
    if (my_rank == 0) {
        need(onecclGetUniqueId(id), "onecclGetUniqueId");
        file = fopen(made, "wb");
        if (!file || fwrite(id, sizeof *id, 1, file) != 1 || fclose(file) != 0) return false;
        return rename(made, path) == 0;
    }
    for (int wait_ms = 0; !(file = fopen(path, "rb")); wait_ms++) {
        if (wait_ms > 20000) return false;
        usleep(1000);
    }
    const bool whole = fread(id, sizeof *id, 1, file) == 1;
    fclose(file);
    return whole;
}

int main(int argc, char **argv) {
    const struct options options = read_options(argc, argv);
    const char *rank = getenv("PMI_RANK"), *ranks = getenv("PMI_SIZE");
    if (!rank || !ranks) {
        fprintf(stderr, "start this under mpiexec.hydra: PMI_RANK and PMI_SIZE are not set\n");
        return 2;
    }
    my_rank = atoi(rank);
    pin_rank(&options, my_rank);
    onecclUniqueId id;
    if (!share_id(options.stamps, &id)) {
        perror("sharing the oneCCL identifier");
        return 1;
    }
    need(onecclCommInitRank(&comm, atoi(ranks), id, my_rank), "onecclCommInitRank");
    /* No barrier: oneCCL's C interface has none. */
    const struct backend oneccl = {.barrier = nullptr, .all_reduce = all_reduce, .all_gather = all_gather,
                                   .reduce_scatter = reduce_scatter, .broadcast = broadcast,
                                   .all_to_all = all_to_all, .scatters_to_start = false,
                                   .no_in_place_all_to_all = true};
    const int code = measure(&options, &oneccl, my_rank, atoi(ranks));
    need(onecclCommDestroy(comm), "onecclCommDestroy");
    return code;
}
