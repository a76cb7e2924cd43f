//! Calls that are values, on memory that is an address; joining by name; waits that are observed and resumed.

use super::spmd::{all_well, done, ends, here, rank, spmd, start};
use ringwork_communicator::{
    AnyWindow, Call, Communicator, Error, Operand, Operands, RawBuffer, WaitObserver,
};
use ringwork_isa::{Collective, Dtype, ReduceOp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

fn raw(data: &mut [i32]) -> RawBuffer {
    // SAFETY: every test below drops the buffer, or waits for its call, before it uses or drops the data again (RAW-1).
    unsafe { RawBuffer::new(Dtype::I32, data.as_mut_ptr().cast(), data.len(), true) }
}

#[test]
fn every_call_by_value_does_what_its_method_does() {
    all_well(&spmd(here!(), 3, |comm| {
        let me = comm.rank() as i32;
        let two = |call: Call, mut x: Vec<i32>, mut y: Vec<i32>| {
            let data = Operands::between(raw(&mut x), raw(&mut y)).unwrap();
            comm.call(&call, &data).unwrap();
            y
        };
        let one = |call: Call, mut x: Vec<i32>| {
            comm.call(&call, &Operands::in_place(raw(&mut x))).unwrap();
            x
        };
        assert_eq!(one(Call::AllReduce(ReduceOp::Sum), vec![me, 1]), [3, 3]);
        assert_eq!(two(Call::AllReduce(ReduceOp::Max), vec![me], vec![0]), [2]);
        assert_eq!(two(Call::AllGather, vec![me], vec![9; 3]), [0, 1, 2]);
        let mut own = vec![9; 3];
        own[me as usize] = me * 5;
        assert_eq!(one(Call::AllGather, own), [0, 5, 10]);
        assert_eq!(
            two(Call::ReduceScatter(ReduceOp::Sum), vec![1, 2, 3], vec![0]),
            [3 * (me + 1)]
        );
        assert_eq!(one(Call::Broadcast { root: 1 }, vec![me]), [1]);
        let (op, root) = (ReduceOp::Sum, 2);
        assert_eq!(
            one(Call::Reduce { op, root }, vec![me]),
            [if me == 2 { 3 } else { me }]
        );
        let all = if me == 0 { vec![9; 3] } else { vec![] };
        let wanted: &[i32] = if me == 0 { &[0, 1, 2] } else { &[] };
        assert_eq!(two(Call::Gather { root: 0 }, vec![me], all), wanted);
        let all = if me == 0 { vec![7, 8, 9] } else { vec![] };
        assert_eq!(two(Call::Scatter { root: 0 }, all, vec![0]), [7 + me]);
        let dealt = vec![10 * me, 10 * me + 1, 10 * me + 2];
        assert_eq!(
            two(Call::AllToAll, dealt.clone(), vec![0; 3]),
            [me, 10 + me, 20 + me]
        );
        assert_eq!(one(Call::AllToAll, dealt), [me, 10 + me, 20 + me]);
        let (sends, receives) = (vec![1; 3], vec![1; 3]);
        let counts = Call::AllToAllV { sends, receives };
        assert_eq!(two(counts, vec![me; 3], vec![0; 3]), [0, 1, 2]);
        let (to, from) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
        assert_eq!(two(Call::Exchange { to, from }, vec![me], vec![9]), [from as i32]);
        let collective = |collective| Call::Collective {
            collective,
            op,
            root: 0,
        };
        let before = [0, 1, 3][comm.rank() as usize];
        assert_eq!(
            two(collective(Collective::Scan), vec![me + 1], vec![9]),
            [before + me + 1]
        );
        let first = if me == 0 { 9 } else { before };
        assert_eq!(
            two(collective(Collective::ExclusiveScan), vec![me + 1], vec![9]),
            [first]
        );
        assert_eq!(one(collective(Collective::Scan), vec![me + 1]), [before + me + 1]);
        comm.call(&Call::Barrier, &Operands::none()).unwrap();
        let window = comm.alloc_any(Dtype::I32, 1000).unwrap();
        let mut ones = vec![1; 1000];
        let filled = Operands::between(raw(&mut ones), window.clone()).unwrap();
        comm.call(&Call::AllReduce(ReduceOp::Sum), &filled).unwrap();
        comm.call(
            &Call::AllReduce(ReduceOp::Sum),
            &Operands::in_place(window.clone()),
        )
        .unwrap();
        let mut read = vec![0; 1000];
        let out = Operands::between(window, raw(&mut read)).unwrap();
        comm.call(&Call::AllReduce(ReduceOp::Max), &out).unwrap();
        assert_eq!(read, vec![9; 1000]);
    }));
}

#[test]
fn an_abandoned_call_keeps_its_owner_until_it_is_done() {
    struct Owner(Arc<AtomicU32>, #[allow(dead_code)] Vec<i32>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    all_well(&spmd(here!(), 2, |comm| {
        let (freed, told) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        let begun = comm.split(0, comm.rank()).unwrap();
        if comm.rank() == 1 {
            begun.recv(&mut [0u8], 0).unwrap();
        }
        for _ in 0..100 {
            let mut data = vec![1; 50_000];
            let operands = Operands::in_place(raw(&mut data));
            let (owner, tell) = (Owner(freed.clone(), data), told.clone());
            let call = Call::AllReduce(ReduceOp::Sum);
            drop(comm.begin_call(call, operands, owner, move || {
                tell.fetch_add(1, Ordering::SeqCst);
            }));
        }
        if comm.rank() == 0 {
            assert_eq!(
                freed.load(Ordering::SeqCst),
                0,
                "the other rank has not begun any"
            );
            begun.send(&[0u8], 1).unwrap();
        }
        while !comm.settle(Duration::from_millis(1)) {}
        assert_eq!(
            (freed.load(Ordering::SeqCst), told.load(Ordering::SeqCst)),
            (100, 100)
        );
    }));
}

#[test]
fn processes_join_by_a_name_whatever_the_environment_says() {
    if let Some(me) = rank() {
        let job = std::env::var("RINGWORK_RENDEZVOUS").unwrap();
        let limit = Duration::from_secs(40);
        // Ranks in different numbers of groups, and in another order.
        let all = Communicator::join(
            &format!("{job}, everybody: {}", "x".repeat(200)),
            2 - me,
            3,
            limit,
        )
        .unwrap();
        let pair = (me > 0).then(|| Communicator::join(&format!("{job}, two"), me - 1, 2, limit).unwrap());
        let mut data = [me];
        let mut sum = [0i32];
        all.all_reduce_into(&data.map(|me| me as i32), &mut sum, ReduceOp::Sum)
            .unwrap();
        assert_eq!((sum, all.rank()), ([3], 2 - me));
        if let Some(pair) = pair {
            data[0] = pair.rank();
            assert_eq!((pair.size(), data[0]), (2, me - 1));
            pair.barrier().unwrap();
        }
        assert!(matches!(
            Communicator::join("x", 2, 2, limit),
            Err(Error::Arguments { .. })
        ));
        assert!(matches!(
            Communicator::join("x", 0, 0, limit),
            Err(Error::Arguments { .. })
        ));
        drop(all);
        done();
    }
    all_well(&ends(start(here!(), 3, &[])));
}

#[derive(Debug, Default)]
struct Watcher {
    waits: AtomicU32,
    stop: AtomicBool,
}

impl WaitObserver for Watcher {
    fn waits(&self) {
        self.waits.fetch_add(1, Ordering::SeqCst);
    }
    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

#[test]
fn an_observer_hears_of_waits_and_can_end_them_for_everybody() {
    all_well(&spmd(here!(), 2, |comm| {
        let watcher = Arc::new(Watcher::default());
        comm.set_wait_observer(Some(watcher.clone())).unwrap();
        if comm.rank() == 0 {
            let stopper = watcher.clone();
            std::thread::spawn(move || {
                while stopper.waits.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                stopper.stop.store(true, Ordering::SeqCst);
            });
            // The other never makes this call.
            let error = comm.all_reduce(&mut [1i32], ReduceOp::Sum).unwrap_err();
            assert!(error.to_string().contains("rank 0 was interrupted"), "{error}");
        } else {
            let error = comm.recv(&mut [1i32], 0).unwrap_err();
            assert!(error.to_string().contains("rank 0 was interrupted"), "{error}");
        }
        assert!(watcher.waits.load(Ordering::SeqCst) > 0);
    }));
}

#[test]
fn a_wait_for_a_pending_call_can_be_resumed() {
    all_well(&spmd(here!(), 2, |comm| {
        let other = comm.split(0, comm.rank()).unwrap();
        if comm.rank() == 0 {
            let mut pending = comm.begin_call(Call::Barrier, Operands::none(), (), || {});
            assert!(
                !pending.wait_for(Duration::from_millis(1)),
                "the other waits for us"
            );
            assert!(!comm.settle(Duration::from_millis(1)));
            other.barrier().unwrap();
            while !pending.wait_for(Duration::from_millis(1)) {}
            pending.wait().unwrap();
            while !comm.settle(Duration::from_millis(1)) {}
        } else {
            other.barrier().unwrap();
            comm.barrier().unwrap();
        }
        comm.barrier().unwrap();
    }));
}

/// Elements of a window as memory that may be either: by its address, and as the part of the window that it is.
fn either(window: &AnyWindow, (start, len): (usize, usize), is_known: bool) -> Operand {
    let part = window.part(Dtype::I32, 4 * start, len).expect("it is inside");
    // SAFETY: the window lives until the end of the test, and the call is over before anything else uses it (RAW-1).
    let raw = unsafe { RawBuffer::new(Dtype::I32, part.pointer(), len, true) };
    Operand::Either(raw, is_known.then_some(part))
}

fn fill(window: &AnyWindow, (start, len): (usize, usize), value: i32) {
    for index in start..start + len {
        // SAFETY: the element is this rank's, inside of the window, and no call is pending (WIN-2).
        unsafe { window.pointer().cast::<i32>().add(index).write(value) };
    }
}

fn values(window: &AnyWindow, (start, len): (usize, usize)) -> Vec<i32> {
    let element = |index| {
        // SAFETY: as in `fill`.
        unsafe { window.pointer().cast::<i32>().add(index).read() }
    };
    (start..start + len).map(element).collect()
}

#[test]
fn memory_that_may_lie_in_the_window_is_used_there_if_it_does_on_every_rank_and_rightly_if_it_does_not() {
    all_well(&spmd(here!(), 3, |comm| {
        let (me, len) = (comm.rank() as i32, 30_000);
        let window = comm.alloc_any(Dtype::U8, 4 * 100_000).unwrap();
        let sum = Call::AllReduce(ReduceOp::Sum);
        // At the same place on every rank; at another place on rank 1; unknown to rank 2; unknown to all.
        let starts = [[64; 3], [64, 4096, 64], [64; 3], [64; 3]];
        let known = [[true; 3], [true; 3], [true, true, false], [false; 3]];
        for (starts, known) in starts.into_iter().zip(known) {
            let (place, is_known) = ((starts[me as usize], len), known[me as usize]);
            fill(&window, place, me + 1);
            comm.call(&sum, &Operands::in_place(either(&window, place, is_known)))
                .unwrap();
            assert!(values(&window, place).iter().all(|value| *value == 6));
            // Two buffers, of which one is in the window, and begun.
            let out = (70_000, len / 3);
            let data =
                Operands::between(either(&window, place, is_known), either(&window, out, true)).unwrap();
            comm.begin_call(Call::ReduceScatter(ReduceOp::Max), data, (), || ())
                .wait()
                .unwrap();
            assert!(values(&window, out).iter().all(|value| *value == 6));
        }
        assert!(window.part(Dtype::I32, 4 * 99_999, 2).is_none(), "past the end");
        assert!(window.part(Dtype::I32, 2, 1).is_none(), "not aligned");
        assert!(window.part(Dtype::I64, 0, usize::MAX).is_none(), "too many");
    }));
}
