/* Any MPI: built once against each. */
#include "harness.h"

#include <mpi.h>
#include <stdlib.h>

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

static void all_reduce(const float *in, float *out, size_t count, bool in_place) {
    MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_gather(const float *in, float *out, size_t share, bool in_place) {
    MPI_Allgather(in_place ? MPI_IN_PLACE : in, (int)share, MPI_FLOAT, out, (int)share, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(const float *in, float *out, size_t share, bool in_place) {
    MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : in, out, (int)share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(float *buffer, size_t count, int root) {
    MPI_Bcast(buffer, (int)count, MPI_FLOAT, root, MPI_COMM_WORLD);
}

static void all_to_all(const float *in, float *out, size_t share, bool in_place) {
    MPI_Alltoall(in_place ? MPI_IN_PLACE : in, (int)share, MPI_FLOAT, out, (int)share, MPI_FLOAT, MPI_COMM_WORLD);
}

/* The rank on this host as the launcher announced it, or -1: known before MPI starts its threads. */
static int announced_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK"};
    for (int i = 0; i < 3; i++)
        if (getenv(names[i])) return atoi(getenv(names[i]));
    return -1;
}

int main(int argc, char **argv) {
    const struct options options = read_options(argc, argv);
    const int announced = announced_rank();
    if (announced >= 0) pin_rank(&options, announced);
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (announced < 0) pin_rank(&options, rank);
    const struct backend mpi = {.barrier = barrier, .all_reduce = all_reduce, .all_gather = all_gather,
                                .reduce_scatter = reduce_scatter, .broadcast = broadcast,
                                .all_to_all = all_to_all, .scatters_to_start = true};
    const int code = measure(&options, &mpi, rank, ranks);
    MPI_Finalize();
    return code;
}
