//! Output of ranks, line by line, each preceded by the rank.

use super::start::Pipes;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// A line longer than this is cut: what ranks print must not fill the launcher's memory.
const LONGEST_BYTES: u64 = 64 << 10;

/// The threads that pass output on.
#[derive(Debug)]
pub(super) struct Forwarders {
    running: usize,
    ended: (Sender<Option<io::Error>>, Receiver<Option<io::Error>>),
}

impl Forwarders {
    pub(super) fn new() -> Forwarders {
        Forwarders {
            running: 0,
            ended: channel(),
        }
    }

    /// Passes on what a rank writes: whole lines, output to output, errors to errors.
    pub(super) fn add(&mut self, rank: u32, (output, errors): Pipes) -> io::Result<()> {
        if let Some(output) = output {
            self.spawn(move || copy_lines(rank, output, io::stdout))?;
        }
        if let Some(errors) = errors {
            self.spawn(move || copy_lines(rank, errors, io::stderr))?;
        }
        Ok(())
    }

    fn spawn(&mut self, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
        let ended = self.ended.0.clone();
        std::thread::Builder::new()
            .name("ringwork-lines".into())
            .spawn(move || {
                // If nobody reads our output any more, the rank learns it as it would without us, by SIGPIPE.
                let lost = work().err();
                let lost = lost.filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
                let _ = ended.send(lost);
            })?;
        self.running += 1;
        Ok(())
    }

    /// Waits until all is passed on, or for so long: somebody that a rank started may hold the pipe open. Returns why
    /// output was lost, if it was.
    pub(super) fn finish(self, at_most: Duration) -> Option<io::Error> {
        let deadline = Instant::now() + at_most;
        let mut lost = None;
        for _ in 0..self.running {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(ended) = self.ended.1.recv_timeout(left) else {
                break;
            };
            lost = lost.or(ended);
        }
        lost
    }
}

fn copy_lines<W: Write>(rank: u32, from: impl Read, to: impl Fn() -> W) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let tag = format!("[{rank}] ");
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend_from_slice(tag.as_bytes());
        if (&mut from).take(LONGEST_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        // One call under the stream's lock: lines of different ranks do not mix.
        let mut to = to();
        to.write_all(&line)?;
        to.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);
    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn tagged(text: &[u8]) -> Vec<u8> {
        let to = Written::default();
        copy_lines(7, text, || to.clone()).unwrap();
        to.0.lock().unwrap().clone()
    }

    #[test]
    fn every_line_is_tagged_and_the_last_one_ended() {
        assert_eq!(tagged(b"a\n\nb"), b"[7] a\n[7] \n[7] b\n");
        assert_eq!(tagged(b""), b"");
        assert_eq!(
            tagged(b"\xff\n"),
            b"[7] \xff\n",
            "bytes are passed on as they are"
        );
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let cut = tagged(&vec![b'x'; 100_000]);
        assert_eq!(cut.iter().filter(|byte| **byte == b'\n').count(), 2);
    }
}
