"""Misuse that must end in an error, or in nothing: never in a crash, a hang or wrong memory."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import numpy as np
import pytest

import ringwork
from ringwork import ArgumentError, CommError


def run(function, size, *args, timeout=30):
    return ringwork.spawn(function, size, args, timeout=timeout)


# --- arguments ---


def arguments(comm):
    frozen = np.ones(4, "f4")
    frozen.flags.writeable = False
    refused = [
        (lambda: comm.all_reduce(frozen), "set its flag `writeable`"),
        (lambda: comm.broadcast(frozen), "set its flag `writeable`"),
        (lambda: comm.all_reduce(b"four"), "read-only|not writable"),
        (lambda: comm.all_reduce(np.ones((4, 4), "f4").T[1:]), "np.ascontiguousarray"),
        (lambda: comm.all_reduce(np.ones(8, "f4")[::2]), "np.ascontiguousarray"),
        (lambda: comm.all_reduce(np.array([1, "a", None], dtype=object)), "Python objects"),
        (lambda: comm.broadcast(np.array([object()], dtype=object)), "Python objects"),
        (lambda: comm.all_reduce(np.ones(4, "c8")), "cannot compute with elements of format `Zf`"),
        (lambda: comm.all_reduce(np.ones(4, ">f4")), "cannot compute with elements"),
        (lambda: comm.all_reduce([1.0, 2.0]), "bytes-like object is required"),
        (lambda: comm.all_reduce(np.ones(4, "f4"), "median"), "median"),
        (lambda: comm.all_reduce(np.ones(4, "?"), "avg"), "truth values have no average"),
        (lambda: comm.all_reduce(np.ones(4, "f4"), out=np.ones(5, "f4")), "4|5"),
        (lambda: comm.all_reduce(np.ones(4, "f4"), out=np.ones(4, "f8")), "f32|f64"),
        (lambda: comm.all_gather(np.ones(4, "f4"), np.ones(5, "f4")), "4|5"),
        (lambda: comm.send(np.ones(4), 7), "7"),
        (lambda: comm.recv(np.ones(4), 7), "7"),
        (lambda: comm.broadcast(np.ones(4), 7), "7"),
    ]
    for index, (call, words) in enumerate(refused):
        with pytest.raises(ArgumentError, match=words):
            call()
            raise AssertionError(f"case {index} was accepted")
    # A read-only array may be read.
    out = np.zeros(4, "f4")
    comm.all_reduce(frozen, out=out)
    assert (out == comm.size).all()


def test_arrays_that_cannot_be_used_are_refused_and_the_communicator_goes_on():
    run(arguments, 2)


def overlaps(comm):
    x = np.arange(16, dtype="f4")
    before = x.copy()
    with pytest.raises(ArgumentError, match="overlap"):
        comm.all_gather(x[:4], x[2:10])
    with pytest.raises(ArgumentError, match="overlap"):
        comm.exchange(x[:8], 0, x[4:12], 0)
    with pytest.raises(ArgumentError, match="overlap"):
        comm.all_reduce(x[:8], out=x[1:9], wait=False)
    assert np.array_equal(x, before)
    comm.all_reduce(x[:8], out=x[8:])
    assert np.array_equal(x[8:], before[:8] * comm.size)
    comm.all_reduce(x[:8], out=x[:8])  # the same place is in place
    assert np.array_equal(x[:8], before[:8] * comm.size)
    with pytest.raises(ArgumentError, match="same memory"):
        comm.all_gather(x[:8], x[:8])


def test_overlapping_arguments_are_refused_and_nothing_is_written():
    run(overlaps, 2)


def empties(comm):
    for shape in (0, (0, 5), (3, 0)):
        comm.all_reduce(np.zeros(shape, "f4"))
        comm.broadcast(np.zeros(shape, "c16"))
        comm.all_gather(np.zeros(shape), np.zeros(0))
        comm.all_reduce(np.zeros(shape, "f4"), wait=False).wait()
        window = comm.zeros(shape)
        comm.all_reduce(window)
        assert np.asarray(window).size == 0
    scalar = np.array(float(comm.rank + 1))
    comm.all_reduce(scalar)
    assert scalar == 3.0


def test_arrays_without_elements_or_dimensions_are_fine():
    run(empties, 2)


# --- lifetimes ---


def abandoned(comm):
    canaries = []
    for round in range(1000):
        x = np.full(4096, comm.rank + 1, "f4")
        comm.all_reduce(x, wait=False)
        del x
        # If the call did not own the array, one of these would be where it was, and be written.
        canaries.append(np.full(4096, 7, "f4"))
        if round % 50 == 49:
            comm.barrier()
            assert all((canary == 7).all() for canary in canaries)
            canaries.clear()
    handle = comm.all_reduce(np.ones(3), wait=False)
    handle.wait()


def test_a_thousand_abandoned_handles_write_into_nothing_but_their_own_arrays():
    run(abandoned, 2)


class Kept(np.ndarray):
    """An array that can be referred to weakly."""


def ownership(comm):
    x = np.ones(1 << 16, "f4").view(Kept)
    there = weakref.ref(x)
    call = comm.all_reduce(x, wait=False)
    del x
    call.wait()
    del call
    comm.barrier()
    gc.collect()
    assert there() is None, "a finished call does not keep its array"
    # A pending call exports the array, so its memory cannot be moved under it.
    y, other = bytearray(8), comm.split(0)
    if comm.rank == 0:
        call = comm.recv(y, 1, wait=False)
        with pytest.raises(BufferError):
            y.extend(b"more")
        other.barrier()  # only now is it sent
        call.wait()
        assert y == b"12345678"
    else:
        other.barrier()
        comm.send(b"12345678", 0)
    comm.barrier()


def test_a_finished_call_lets_its_array_go():
    run(ownership, 2)


def views(comm, use_close):
    w = comm.zeros(1000)
    view = np.asarray(w)
    view[:] = comm.rank
    comm.all_reduce(w)
    pending = comm.all_reduce(w, wait=False)
    if use_close:
        comm.close()
        comm.close()  # again: nothing happens
        with pytest.raises(CommError, match="closed"):
            comm.all_reduce(w)
        assert comm.closed
    pending.wait()
    del w, comm
    gc.collect()
    assert (view == 2).all()
    view += 1
    assert view.sum() == 3000


@pytest.mark.parametrize("use_close", [True, False])
def test_views_of_a_window_outlive_the_window_and_the_communicator(use_close):
    run(views, 2, use_close)


# --- the end of the interpreter ---

EXITS = {
    "without close": "",
    "with a view as a global": "view = np.asarray(comm.zeros(100)); comm.all_reduce(view)",
    "with a dlpack view as a global": "view = np.from_dlpack(comm.zeros(100))",
    "with a pending call": "call = comm.all_reduce(np.ones(1 << 20), wait=False)",
    "with abandoned calls": "for _ in range(100): comm.all_reduce(np.ones(1000), wait=False)",
    "in a reference cycle": "class A: pass\na = A(); a.a = a; a.comm = comm; del comm",
    "with a thread that waits": (
        "import threading\n"
        "both = comm.split(0)\n"
        "threading.Thread(target=lambda: both.all_reduce(np.ones(1)), daemon=True).start()"
    ),
}


def ranks(code, size=2, env=None):
    """Runs a program as ranks; returns what they wrote and their exit codes."""
    job = f"test-{os.getpid()}-{os.urandom(4).hex()}"
    started = []
    for rank in range(size):
        mine = {**os.environ, "RINGWORK_RANK": str(rank), "RINGWORK_SIZE": str(size), "RINGWORK_RENDEZVOUS": job}
        mine["RINGWORK_TIMEOUT"] = "20"
        mine.update(env or {})
        command = [sys.executable, "-c", textwrap.dedent(code)]
        started.append(subprocess.Popen(command, env=mine, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return [(process.communicate(timeout=60)[0], process.returncode) for process in started]


@pytest.mark.parametrize("how", EXITS)
def test_the_interpreter_ends_quietly(how):
    code = f"import numpy as np, ringwork\ncomm = ringwork.init()\n{EXITS[how]}\n"
    assert ranks(code) == [("", 0), ("", 0)]


# --- fork ---


def forks(comm):
    w = comm.zeros(10)
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            comm.all_reduce(np.ones(1))
        except CommError as error:
            status = 0 if "os.fork" in str(error) else 1
        try:
            comm.close()
            status = 2
        except CommError:
            pass
        del comm, w  # does not leave in the parent's name
        gc.collect()
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    x = np.ones(4)
    comm.all_reduce(x)
    assert (x == comm.size).all(), "the parents go on"


def test_a_forked_child_gets_an_error_and_its_parent_goes_on():
    run(forks, 2)


def test_a_forked_child_that_ends_normally_does_not_disturb_its_parent():
    code = """
        import os, numpy as np, ringwork
        comm = ringwork.init()
        window = np.asarray(comm.zeros(100))
        pid = os.fork()
        if pid:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            comm.all_reduce(np.ones(3))
    """
    assert ranks(code) == [("", 0), ("", 0)]


# --- the interpreter's lock ---


def late(comm, kind):
    other = comm.split(0)
    token = np.zeros(1, "i4")
    if comm.rank == 1:
        other.recv(token, 0)  # comes only if rank 0's second thread ran while its first was in the call
        comm.all_reduce(np.ones(3000 if kind != "long" else 100_000, "f4"))
        return
    # No thread is preempted: the second runs only when the first gives the lock back.
    sys.setswitchinterval(1000)
    begins = threading.Event()

    def second():
        begins.wait()
        other.send(token, 1)

    thread = threading.Thread(target=second)
    thread.start()
    x = np.ones(3000 if kind != "long" else 100_000, "f4")
    if kind == "pending":
        call = comm.all_reduce(x, wait=False)
        begins.set()
        call.wait()
    else:
        begins.set()
        comm.all_reduce(x)
    thread.join()
    assert (x == 2).all()


@pytest.mark.parametrize("kind", ["short", "long", "pending"])
def test_other_threads_run_while_a_rank_is_late(kind):
    run(late, 2, kind)


def interrupted(comm, kind):
    other = comm.split(0)
    token = np.zeros(1, "i4")
    if comm.rank == 1:
        other.recv(token, 0)  # after rank 0 was interrupted
        with pytest.raises(ringwork.Aborted):
            comm.recv(token, 0)
        return
    begins = threading.Event()

    def press():
        begins.wait()
        os.kill(os.getpid(), signal.SIGINT)

    sys.setswitchinterval(1000)
    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        if kind == "call":
            begins.set()
            comm.all_reduce(np.ones(3))
        else:
            call = comm.recv(np.ones(3), 1, wait=False)
            begins.set()
            call.wait()
    other.send(token, 1)
    if kind == "pending":
        comm.abort("interrupted")  # the call goes on until something ends it
        with pytest.raises(CommError):
            call.wait()


@pytest.mark.parametrize("kind", ["call", "pending"])
def test_ctrl_c_ends_a_wait(kind):
    run(interrupted, 2, kind)


def test_ctrl_c_ends_joining():
    code = """
        import os, signal, threading, ringwork
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ready = threading.Event()
        def press():
            ready.wait()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=press).start()
        import sys
        sys.setswitchinterval(1000)
        ready.set()
        try:
            ringwork.join("nobody-else-comes", 0, 2, timeout=50)
        except KeyboardInterrupt:
            print("interrupted")
            os._exit(0)
    """
    assert ranks(code, 1) == [("interrupted\n", 0)]


LONG = "RINGWORK_LONG" in os.environ
# How long the threads make random calls, in seconds; 0 is one round.
RANDOM_CALLS_S = float(os.environ.get("RINGWORK_RANDOM_CALLS_S", "3600")) if LONG else 0.0


def random_calls(part, rng, calls):
    """Makes calls that `rng` chooses, the same on every rank; returns those with a wrong result."""
    wrong, size, me = [], part.size, part.rank
    window = part.zeros(5000)
    for _ in range(calls):
        n, kind = int(rng.integers(1, 20_000)), int(rng.integers(10))
        x, total = np.full(n, me + 1, "f4"), size * (size + 1) // 2
        if kind == 0:
            part.all_reduce(x)
            right = (x == total).all()
        elif kind == 1:
            part.all_reduce(x, wait=False).wait()
            right = (x == total).all()
        elif kind == 2:
            part.all_reduce(x, wait=False)  # abandoned
            right = True
        elif kind == 3:
            everything = np.zeros(n * size, "f4")
            if pending := part.all_gather(x, everything, wait=bool(n % 2)):
                pending.wait()
            right = np.array_equal(everything, np.repeat(np.arange(1, size + 1), n))
        elif kind == 4:
            part.broadcast(x, n % size)
            right = (x == n % size + 1).all()
        elif kind == 5:
            out = np.zeros(n, "f4")
            part.exchange(x, (me + 1) % size, out, (me - 1) % size)
            right = (out == (me - 1) % size + 1).all()
        elif kind == 6:
            np.asarray(window)[:] = me + 1
            part.all_reduce(window, wait=False).wait()
            right = (np.asarray(window) == total).all()
        elif kind == 7:
            out = np.zeros(n, "f4")
            part.reduce_scatter(np.repeat(x, size), out, "max")
            right = (out == size).all()
        elif kind == 8:
            with pytest.raises(ArgumentError):
                part.all_gather(x, x[1:])
            right = True
        else:
            part.barrier()
            right = True
        if not right:
            wrong.append((n, kind))
    return wrong


def resources():
    """Memory in use in KiB, open files, threads."""
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmRSS"].split()[0]), len(os.listdir("/proc/self/fd")), int(status["Threads"])


def threads(comm):
    """Two threads on two communicators, and two on one: calls on one are made one after the other."""
    parts, wrong, before = [comm.split(0), comm.split(0)], [], None
    end, rounds = time.monotonic() + RANDOM_CALLS_S, 0
    while True:
        rounds += 1

        def work(part, seed, calls=150):
            try:
                wrong.extend(random_calls(part, np.random.default_rng([seed, rounds]), calls))
            except BaseException as error:
                wrong.append(error)
                raise

        running = [threading.Thread(target=work, args=(part, seed)) for seed, part in enumerate(parts)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert not wrong, wrong
        same = [threading.Thread(target=lambda: [comm.barrier() for _ in range(100)]) for _ in range(2)]
        for thread in same:
            thread.start()
        for thread in same:
            thread.join()
        goes_on = np.array([time.monotonic() < end])
        comm.broadcast(goes_on)
        if rounds == 20:
            before = resources()
        if not goes_on[0]:
            break
    if before is not None:
        after = resources()
        # A thread that was joined may still be ending.
        limits = (before[0] + 30_000, before[1], before[2] + 4)
        assert all(now <= limit for now, limit in zip(after, limits, strict=True)), (before, after, rounds)
    return rounds


def test_threads_make_random_calls():
    assert min(run(threads, 2)) >= 1


def handlers(comm):
    """A signal handler that uses the communicator in the middle of a call gets an error."""
    other = comm.split(0)
    token = np.zeros(1, "i4")
    if comm.rank == 1:
        other.recv(token, 0)
        comm.barrier()
        return
    seen = []

    def handler(_signal, _frame):
        try:
            comm.barrier()
        except CommError as error:
            seen.append(str(error))
        other.send(token, 1)

    signal.signal(signal.SIGUSR1, handler)
    begins = threading.Event()
    sys.setswitchinterval(1000)
    threading.Thread(target=lambda: (begins.wait(), os.kill(os.getpid(), signal.SIGUSR1))).start()
    begins.set()
    comm.barrier()
    assert len(seen) == 1 and "signal handler" in seen[0]


def test_a_signal_handler_in_the_middle_of_a_call_gets_an_error():
    run(handlers, 2)
