//! Closing: when, how fast, and what is left.

use super::*;

pub(super) fn closing(_: &mut Rng) {
    // Twice.
    let twice = node(2);
    let pid = twice.pid(Device(0)).unwrap();
    twice.close();
    twice.close();
    assert!(Process::open(pid).is_none());
    drop(twice);
    // After a failure, and by being dropped in the middle of one.
    for close in [true, false] {
        let node = node(3);
        let signals = DomainSpec::new("all", node.devices()).signals("row", 1);
        let row = node.open_domain(&signals).unwrap().signals("row").unwrap();
        let victim = process(&node, Device(2));
        let failed = node.run(|orch| {
            orch.group(node.devices(), |_| Ok(wait_forever::task(&row)))?;
            victim.signal(Signal::KILL);
            if close { orch.wait() } else { Err(Error::Closed) }
        });
        assert!(failed.is_err());
        if close {
            node.close();
            assert_eq!(children(), [0; 0]);
        }
    }
    // With a stopped chip that cannot be asked.
    let stopped = node(2);
    process(&stopped, Device(1)).signal(Signal::STOP);
    stopped.close();
    assert_eq!(children(), [0; 0]);
    drop(stopped);
    // By another thread, during a run that would take a minute.
    let busy = node(2);
    let signals = DomainSpec::new("all", busy.devices()).signals("row", 1);
    let row = busy.open_domain(&signals).unwrap().signals("row").unwrap();
    let error = std::thread::scope(|scope| {
        let (submitted, all_submitted) = std::sync::mpsc::channel();
        let (busy, row) = (&busy, &row);
        let run = scope.spawn(move || {
            busy.run(|orch| {
                orch.group(busy.devices(), |_| Ok(wait_forever::task(row)))?;
                submitted.send(()).unwrap();
                Ok(())
            })
        });
        all_submitted.recv().unwrap();
        let start = Instant::now();
        busy.close();
        println!("close during a run: {:?}", start.elapsed());
        run.join().unwrap().unwrap_err()
    });
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_eq!(children(), [0; 0]);
}

pub(super) fn close_frees(_: &mut Rng) {
    let node = node(1);
    let tensor = node.zeros::<u8>(Device(0), 8 << 20).unwrap();
    assert!(largest_shared_bytes() >= 8 << 20);
    node.close();
    assert!(
        largest_shared_bytes() < 8 << 20,
        "a closed node still holds memory"
    );
    assert!(matches!(tensor.read(), Err(Error::Closed)));
}

/// The largest piece of shared memory that this process has mapped.
fn largest_shared_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ours = maps.lines().filter(|line| line.contains("/memfd:ringwork"));
    let bytes = ours.map(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        u64::from_str_radix(end, 16).unwrap() - u64::from_str_radix(start, 16).unwrap()
    });
    bytes.max().unwrap_or(0)
}

pub(super) fn watched_directories(_: &mut Rng) {
    // A temp directory of its own, since others use the common one; nobody else can be kept from /dev/shm,
    // so a file there counts only if one is there every time.
    let temp = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    std::fs::create_dir(&temp).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    let what = WatchFlags::CREATE | WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::MOVED_TO;
    let ours = inotify::add_watch(&watch, &temp, what).unwrap();
    inotify::add_watch(&watch, "/dev/shm", what).unwrap();
    let events = |space: &mut [std::mem::MaybeUninit<u8>]| {
        let mut reader = inotify::Reader::new(&watch, space);
        let mut seen = Vec::new();
        while let Ok(event) = reader.next() {
            assert_ne!(event.wd(), ours, "{event:?} in the temp directory");
            seen.push(format!("{event:?}"));
        }
        seen
    };
    let mut space = [std::mem::MaybeUninit::uninit(); 4096];
    let mut session = || {
        let played = roles::start("session", 4).env("TMPDIR", &temp).status().unwrap();
        assert!(played.success());
        events(&mut space)
    };
    let mut seen = session();
    for _ in 0..4 {
        seen = if seen.is_empty() { seen } else { session() };
    }
    // The watch works: it sees this.
    let file = temp.join("a file");
    std::fs::write(&file, "x").unwrap();
    assert!(
        inotify::Reader::new(&watch, &mut [std::mem::MaybeUninit::uninit(); 4096])
            .next()
            .is_ok()
    );
    std::fs::remove_dir_all(&temp).unwrap();
    assert!(seen.is_empty(), "{seen:?} in /dev/shm");
}

pub(super) fn too_large(_: &mut Rng) {
    let never = Program {
        path: "/does/not/exist".into(),
        arguments: vec![],
    };
    let big = DomainSpec::new("big", (0..64).map(Device)).window_bytes((16 << 30) - 4096);
    let error = Node::builder()
        .devices(0..64)
        .program(never)
        .domain(big)
        .launch()
        .unwrap_err()
        .to_string();
    let numbers = error.strip_prefix("window \"big\" needs ").expect(&error);
    let (need, have) = numbers.split_once(" of memory and ").expect(&error);
    assert!(need == "1024.0 GiB" || need == "1.0 TiB", "{error}");
    let (have, rest) = have.split_once(' ').expect(&error);
    assert!(
        have.parse::<f64>().unwrap() > 0.0 && rest.contains("B are free"),
        "{error}"
    );
}

pub(super) fn idle(_: &mut Rng) {
    let node = node(8);
    let reducers = Reducers::open(&node, &node.devices(), 1000).unwrap();
    reducers.reduce(&node, Algorithm::TwoPhase, 10).unwrap();
    let chips: Vec<Process> = node.devices().iter().map(|chip| process(&node, *chip)).collect();
    let ticks = || chips.iter().map(|chip| cpu_ticks(chip.pid)).collect::<Vec<_>>();
    let before = ticks();
    // Time must pass for processor time to be used in it: a second in which no chip may end either.
    assert!(!chips[0].ended(Duration::from_secs(1)));
    for (chip, (before, after)) in before.into_iter().zip(ticks()).enumerate() {
        assert!(
            after - before <= 1,
            "chip {chip} used {} ticks while idle",
            after - before
        );
    }
}
