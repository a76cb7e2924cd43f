#!/bin/bash
# faults.sh PROGRAM [TIMES]   deaths while a communicator over three hosts reduces in a loop: a rank killed, a host lost, a host
# cut off. PROGRAM as for suite.sh. Every survivor that can speak must name the rank
# and the host. Needs root. Leaves nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1") times=${2:-1}
export HOSTS_DIR=${HOSTS_DIR:-/tmp/ringwork-faults.$$} HOSTS_PREFIX=${HOSTS_PREFIX:-rw} HOSTS_NET=${HOSTS_NET:-10.77.0}
export RINGWORK_TIMEOUT=30 MPI_TIMEOUT=40
logs=$(mktemp -d)
trap '"$here/hosts.sh" down; rm -rf "$logs"' EXIT
p=$HOSTS_PREFIX
if command -v mpirun.openmpi >/dev/null; then kind=openmpi; else kind=mpich; fi

count() { grep -c "$1" "$logs/out" || true; }
until_count() { # pattern, how many, tenths of a second
    local i
    for ((i = 0; i < $3; i++)); do
        (($(count "$1") >= $2)) && return
        sleep 0.1
    done
    cat "$logs/out"
    echo "FAILED: $fault: $(count "$1") of $2 lines with '$1'"
    exit 1
}

one() { # fault, what happens, how many survivors speak, what they say
    fault=$1
    "$here/hosts.sh" up 3 --cores
    "$here/mpi.sh" $kind "${p}1:2,${p}2:2,${p}3:1" "$program" over_hosts::rank_program_that_loops_until_a_death --exact --ignored \
        --nocapture --test-threads=1 </dev/null >"$logs/out" 2>&1 &
    local launcher=$!
    until_count 'looping: [0-9]' 5 150
    sleep "0.$((RANDOM % 10))"
    local start
    start=$(date +%s%N)
    eval "$2"
    until_count "well: [0-9].*$4" "$3" 50
    echo "ok: $fault: $(($(date +%s%N) / 1000000 - start / 1000000)) ms until $3 survivors had said: $(grep -m1 -o 'well: .*' "$logs/out" | cut -d: -f3-)"
    "$here/hosts.sh" down
    # With its group: mpirun does not end while a host is gone.
    kill -KILL -- -$launcher 2>/dev/null || true
    wait $launcher 2>/dev/null || true
}

# A rank on host 2, by the number that this machine gives it: the last one, which does not lead.
victim() {
    local process space name
    name=$(basename "$program" | cut -c1-15)
    space=$(readlink "/proc/$(cat "$HOSTS_DIR/${p}2.pid")/ns/net")
    for process in $(pgrep -f over_hosts::rank_program_that_loops); do
        if [[ $(readlink "/proc/$process/ns/net") == "$space" && $(cat "/proc/$process/comm") == "$name" ]]; then
            echo "$process"
        fi
    done | tail -1
}
for ((i = 0; i < times; i++)); do
    one "a host is cut off" "'$here/hosts.sh' cut 2" 3 "rank 2 died.*host ${p}2"
    one "a host is lost" "'$here/hosts.sh' lose 2" 2 "rank [23] died.*host ${p}2"
    one "a rank is killed" 'kill -KILL $(victim)' 2 "rank [23] died.*host ${p}2"
done
