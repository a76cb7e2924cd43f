//! The processes of a job, and messages between them.

use crate::api::Request;
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::library::Library;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// The processes that one launcher has started, as MPI sees them: its `MPI_COMM_WORLD`, with messages of its own.
///
/// There is one in a process, as there is one MPI.
#[derive(Debug)]
pub struct World {
    library: Library,
    rank: u32,
    size: u32,
    /// Whether MPI was initialised here, and so must be finalised here.
    ours: bool,
    /// The thread that lets MPI work while others wait for something else, if one was needed.
    helper: OnceLock<Option<Thread>>,
    /// How many need it now.
    helped: AtomicUsize,
    /// Taken by every call (MPI-3); holds the reason if MPI must not be called any more.
    state: Mutex<Option<String>>,
}

static WORLD: OnceLock<Result<World>> = OnceLock::new();

impl World {
    /// Loads and initialises MPI, the first time; every process of the job must do so. The same world every time.
    ///
    /// # Errors
    /// If there is no MPI, or it cannot be initialised; the same error every time.
    pub fn join() -> Result<&'static World> {
        let world = WORLD.get_or_init(World::start).as_ref().map_err(Clone::clone)?;
        Ok(world)
    }

    fn start() -> Result<World> {
        let library = Library::find()?;
        let ours = library.calls.start()?;
        let (rank, size) = library.calls.place()?;
        if ours {
            crate::api::at_exit(finalize);
        }
        Ok(World {
            library,
            rank,
            size,
            ours,
            helper: OnceLock::new(),
            helped: AtomicUsize::new(0),
            state: Mutex::new(None),
        })
    }

    /// This process's number.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many processes there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The library behind it.
    #[must_use]
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Calls no MPI function from now on, not even at the exit: a peer has died, and MPI might wait for it for ever (MPI-4).
    pub fn abandon(&self, reason: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.get_or_insert_with(|| reason.to_owned());
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<String>>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            None => Ok(state),
            Some(reason) => Err(Error::Ended {
                reason: reason.clone(),
            }),
        }
    }

    /// The `mine` of all processes, which are equally long, one after the other. Every process must call it; it waits for
    /// all of them, and no deadline ends it.
    ///
    /// # Errors
    /// What MPI says.
    pub fn all_gather(&self, mine: &[u8]) -> Result<Vec<u8>> {
        let _locked = self.lock()?;
        let mut all = vec![0; mine.len() * self.size as usize];
        self.library.calls.all_gather(mine, &mut all)?;
        Ok(all)
    }

    /// `data` becomes what it is on process 0. As [`all_gather`](World::all_gather).
    ///
    /// # Errors
    /// What MPI says.
    pub fn broadcast(&self, data: &mut [u8]) -> Result<()> {
        let _locked = self.lock()?;
        self.library.calls.broadcast(data)
    }

    /// Begins to send `data` to process `to`, where a [`receive`](World::receive) with the same `tag` takes it. Messages of two
    /// processes with one tag arrive in the order in which they were sent.
    ///
    /// # Errors
    /// What MPI says.
    pub fn send(&'static self, data: Buffer, to: u32, tag: u32) -> Result<Sending> {
        let _locked = self.lock()?;
        let request = self
            .library
            .calls
            .send(&data, number("rank", to)?, number("tag", tag)?)?;
        Ok(Sending {
            world: self,
            message: Some((data, request)),
        })
    }

    /// Begins to receive at most `bytes` bytes that process `from` sends with the same `tag`.
    ///
    /// # Errors
    /// What MPI says.
    pub fn receive(&'static self, bytes: usize, from: u32, tag: u32) -> Result<Receiving> {
        let _locked = self.lock()?;
        let mut data = Buffer::zeroed(bytes);
        let request = self
            .library
            .calls
            .receive(&mut data, number("rank", from)?, number("tag", tag)?)?;
        Ok(Receiving {
            world: self,
            message: Some((data, request)),
        })
    }

    /// Lets MPI work on messages until the result is dropped. MPI works only while one of its functions is called: a process
    /// that waits for something else would hold up those that it sends to or receives from.
    pub fn keep_moving(&'static self) -> Moving {
        self.helped.fetch_add(1, Ordering::SeqCst);
        let world = self;
        let helper = self.helper.get_or_init(|| {
            let thread = std::thread::Builder::new().name("ringwork-mpi".into());
            let started = thread.spawn(move || world.help());
            started.ok().map(|started| started.thread().clone())
        });
        if let Some(helper) = helper {
            helper.unpark();
        }
        Moving { world: self }
    }

    fn help(&self) {
        loop {
            if self.helped.load(Ordering::SeqCst) == 0 {
                std::thread::park();
                continue;
            }
            if let Ok(_locked) = self.lock() {
                // A failure is that of a message, whose owner learns it.
                let _ = self.library.calls.progress();
            }
            std::thread::park_timeout(HELP);
        }
    }

    /// The number of bytes that came, if the request is complete.
    fn test(&self, request: &mut Request) -> Result<Option<usize>> {
        let _locked = self.lock()?;
        self.library.calls.test(request)
    }
}

/// The interval of the helper's calls.
const HELP: Duration = Duration::from_micros(50);

/// While it lives, MPI works on messages; see [`World::keep_moving`].
#[derive(Debug)]
#[must_use = "messages move while it lives"]
pub struct Moving {
    world: &'static World,
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.world.helped.fetch_sub(1, Ordering::SeqCst);
    }
}

fn number(what: &str, value: u32) -> Result<i32> {
    i32::try_from(value).map_err(|_| Error::TooLarge {
        what: format!("{what} {value}"),
    })
}

/// Ends MPI with the process, unless a peer has died or the program did it.
extern "C" fn finalize() {
    let Some(Ok(world)) = WORLD.get() else { return };
    if let Ok(mut state) = world.lock()
        && world.ours
    {
        world.library.calls.finish();
        *state = Some("it is finalised".into());
    }
}

/// A message on its way out. If it is dropped before it is complete, its memory is leaked (MPI-2).
#[must_use = "a message is sent when `test` says so"]
#[derive(Debug)]
pub struct Sending {
    world: &'static World,
    message: Option<(Buffer, Request)>,
}

/// A message to come. If it is dropped before it is complete, its memory is leaked (MPI-2).
#[must_use = "a message is there when `test` returns it"]
#[derive(Debug)]
pub struct Receiving {
    world: &'static World,
    message: Option<(Buffer, Request)>,
}

impl Sending {
    /// Whether it is complete. Lets MPI work on all messages of this process.
    ///
    /// # Errors
    /// What MPI says.
    pub fn test(&mut self) -> Result<bool> {
        let Some((_, request)) = &mut self.message else {
            return Ok(true);
        };
        let done = self.world.test(request)?.is_some();
        if done {
            self.message = None;
        }
        Ok(done)
    }
}

impl Receiving {
    /// The message, cut to the bytes that came, once. Lets MPI work on all messages of this process.
    ///
    /// # Errors
    /// What MPI says; also if more bytes came than were asked for.
    pub fn test(&mut self) -> Result<Option<Buffer>> {
        let Some((_, request)) = &mut self.message else {
            return Ok(None);
        };
        let Some(bytes) = self.world.test(request)? else {
            return Ok(None);
        };
        Ok(self.message.take().map(|(data, _)| data.cut(bytes)))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        std::mem::forget(self.message.take());
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        std::mem::forget(self.message.take());
    }
}
