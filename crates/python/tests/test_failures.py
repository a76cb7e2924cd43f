"""Ranks that die, leave, disagree, are late or were started wrongly: each an exception with its facts."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import ringwork
from test_soundness import ranks, run


def deaths(comm, how):
    comm.barrier()
    if comm.rank == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(3)
    with pytest.raises(ringwork.RankDied) as caught:
        while True:
            comm.all_reduce(np.ones(3))
    assert (caught.value.rank, caught.value.me) == (1, comm.rank)
    assert caught.value.call.startswith("all_reduce of 3 x f64")
    assert caught.value.cause
    rest = comm.shrink()
    assert rest.size == 2 and rest.rank == (0 if comm.rank == 0 else 1)
    x = np.ones(1000)
    rest.all_reduce(x)
    assert (x == 2).all()
    rest.barrier()


@pytest.mark.parametrize("how", ["killed", "exited"])
def test_survivors_of_a_death_are_told_and_go_on_after_shrink(how):
    with pytest.raises(ringwork.SpawnError) as caught:
        run(deaths, 3, how)
    assert caught.value.ranks == [1], caught.value
    assert ("killed by SIGKILL" if how == "killed" else "exit code 3") in str(caught.value)


def pending_death(comm):
    comm.barrier()
    if comm.rank == 1:
        os._exit(0)
    call = comm.all_reduce(np.ones(3), wait=False)
    with pytest.raises(ringwork.RankDied):
        call.wait()
    assert call.test()
    with pytest.raises(ringwork.RankDied):
        call.wait()  # the same again


def test_a_death_is_the_error_of_a_pending_call():
    with pytest.raises(ringwork.SpawnError) as caught:
        run(pending_death, 2)
    assert caught.value.ranks == [1], caught.value


def leaving(comm, collective):
    if comm.rank == 1:
        comm.close()
        return
    if collective:
        with pytest.raises(ringwork.RankLeft) as caught:
            comm.barrier()
        assert caught.value.rank == 1 and caught.value.call.startswith("barrier")
        return
    with pytest.raises(ringwork.RankLeft) as caught:
        comm.recv(np.ones(3), 1)
    assert caught.value.rank == 1 and caught.value.call.startswith("recv of 3 x f64 from rank 1")


@pytest.mark.parametrize("collective", [False, True])
def test_a_rank_that_left_is_named(collective):
    run(leaving, 2, collective)


def deadlines(comm):
    other = comm.split(0)
    comm.set_timeout(0.2)
    if comm.rank == 0:
        with pytest.raises(ringwork.Deadline) as caught:
            comm.all_reduce(np.ones(3))
        assert caught.value.missing == [1]
        assert caught.value.after_ms >= 200 and caught.value.call.startswith("all_reduce")
        assert caught.value.last_calls[0][0] == 1
    other.barrier()
    if comm.rank == 1:
        with pytest.raises(ringwork.Aborted):
            comm.all_reduce(np.ones(3))


def test_a_deadline_names_the_missing_rank():
    run(deadlines, 2)


def disagreement(comm):
    count = 30_000 if comm.rank == 0 else 40_000
    try:
        comm.all_reduce(np.ones(count, "f4"))
    except ringwork.Disagreement as error:
        assert (error.me, error.rank) == (comm.rank, 1 - comm.rank)
        assert f"{count} x f32" in error.call and f"{70_000 - count} x f32" in error.their_call
        return "disagreement"
    except ringwork.Aborted as error:  # the other rank noticed first, and says the same
        assert "30000 x f32" in str(error) and "40000 x f32" in str(error)
        return "aborted"


def test_ranks_that_make_different_calls_get_errors_that_name_both_calls():
    outcomes = run(disagreement, 2)
    assert "disagreement" in outcomes and None not in outcomes, outcomes


def aborts(comm):
    if comm.rank == 0:
        comm.abort("the loss is not a number")
    with pytest.raises(ringwork.Aborted, match="the loss is not a number") as caught:
        comm.barrier()
    assert "the loss is not a number" in caught.value.reason


def test_an_abort_reaches_every_rank_with_its_reason():
    run(aborts, 2)


def failing(comm):
    if comm.rank == 1:
        raise ValueError("a bug of rank one")
    comm.all_reduce(np.ones(3))


def test_spawn_raises_the_traceback_of_the_root_cause_only():
    with pytest.raises(ringwork.SpawnError) as caught:
        run(failing, 3)
    assert caught.value.ranks == [1]
    assert "a bug of rank one" in str(caught.value) and "in failing" in str(caught.value)
    assert "RankLeft" not in str(caught.value)


def stuck(comm):
    if comm.rank == 0:
        raise ValueError("a bug of rank zero")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def test_spawn_ends_a_rank_that_goes_on_after_another_failed():
    with pytest.raises(ringwork.SpawnError) as caught:
        ringwork.spawn(stuck, 2, grace=0.1)
    assert caught.value.ranks == [0]


def ranked(comm, *args):
    return (comm.rank, args)


def test_spawn_returns_the_results_in_rank_order():
    assert ringwork.spawn(ranked, 3, ("a", 1)) == [(r, ("a", 1)) for r in range(3)]
    with pytest.raises(ringwork.ArgumentError, match="at least 1"):
        ringwork.spawn(ranked, 0)


def test_spawn_takes_a_function_that_has_no_module():
    pytest.importorskip("cloudpickle", reason="cloudpickle is not installed")
    base = 10
    assert ringwork.spawn(lambda comm: comm.rank + base, 2) == [10, 11]


def test_errors_keep_their_facts_when_pickled():
    import pickle

    error = ringwork.RankDied("rank 2 died", rank=2, me=0, cause="SIGKILL", call="barrier")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.rank, copy.cause) == (ringwork.RankDied, "rank 2 died", 2, "SIGKILL")


INIT = "import ringwork, numpy as np; c = ringwork.init(); x = np.ones(1); c.all_reduce(x); print(c.rank, c.size, x[0])"
STARTERS = {
    "torchrun": {"RANK": "{rank}", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "{job}"},
    "Open MPI": {"OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "{job}"},
    "MPICH": {"PMI_RANK": "{rank}", "PMI_SIZE": "2", "PMI_PORT": "{job}"},
    "Intel MPI": {"PMI_RANK": "{rank}", "PMI_SIZE": "2", "I_MPI_HYDRA_UUID": "{job}"},
    "Slurm": {"SLURM_PROCID": "{rank}", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "{job}"},
}


def clean():
    foreign = ("RINGWORK_", "OMPI_", "PMI", "I_MPI_", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


@pytest.mark.parametrize("starter", STARTERS)
def test_init_understands_the_variables_of_other_starters(starter):
    job = f"{os.getpid()}{int.from_bytes(os.urandom(3), 'big')}"
    started = []
    for rank in range(2):
        env = {name: value.format(rank=rank, job=job) for name, value in STARTERS[starter].items()}
        command = [sys.executable, "-c", INIT]
        started.append(subprocess.Popen(command, env={**clean(), **env}, stdout=subprocess.PIPE, text=True))
    for rank, process in enumerate(started):
        assert process.communicate(timeout=60)[0] == f"{rank} 2 2.0\n"
        assert process.returncode == 0


def test_init_outside_of_a_job_says_what_is_missing():
    done = subprocess.run([sys.executable, "-c", INIT], env=clean(), capture_output=True, text=True)
    assert done.returncode == 1 and "NotLaunched" in done.stderr and "RINGWORK_RANK" in done.stderr


def test_init_refuses_variables_that_make_no_sense():
    out = ranks("import ringwork; ringwork.init()", 1, {"RINGWORK_RANK": "5"})
    assert out[0][1] == 1 and "BadEnvironment" in out[0][0] and "RINGWORK_RANK" in out[0][0]


def test_init_twice_makes_two_communicators():
    code = INIT + "; d = ringwork.init(); d.all_reduce(x); print(x[0])"
    assert [text.split() for text, _ in ranks(code)] == [["0", "2", "2.0", "4.0"], ["1", "2", "2.0", "4.0"]]
