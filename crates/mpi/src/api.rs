//! The functions of an MPI library: all unsafe code of this crate.
//!
//! An [`Api`] is the table of functions and numbers of one library, for the handle type of its dialect; [`Calls`] is what is
//! made of them, the same for all dialects.

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
use std::error::Error as _;
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::OnceLock;

/// A handle that is an address, or a small number in the place of one.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Address(*mut c_void);

// SAFETY: a handle is only handed back to MPI, under the lock of the world (MPI-3).
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    fn small(number: usize) -> Address {
        Address(ptr::without_provenance_mut(number))
    }
}

/// A request in progress, whatever the dialect.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Address(Address),
    Number(c_int),
}

/// What a dialect calls a handle: an [`Address`] or a `c_int`, which the functions take in different registers or widths.
pub(crate) trait Handle: Copy + fmt::Debug + Send + Sync + 'static {
    const ZERO: Self;
    fn request(self) -> Request;
    fn of(request: &mut Request) -> Option<&mut Self>;
}

impl Handle for Address {
    const ZERO: Address = Address(ptr::null_mut());
    fn request(self) -> Request {
        Request::Address(self)
    }
    fn of(request: &mut Request) -> Option<&mut Address> {
        match request {
            Request::Address(handle) => Some(handle),
            Request::Number(_) => None,
        }
    }
}

impl Handle for c_int {
    const ZERO: c_int = 0;
    fn request(self) -> Request {
        Request::Number(self)
    }
    fn of(request: &mut Request) -> Option<&mut c_int> {
        match request {
            Request::Number(handle) => Some(handle),
            Request::Address(_) => None,
        }
    }
}

/// At least as large as the `MPI_Status` of every dialect: 20, 24 and 32 bytes. Only MPI looks into it.
#[repr(C, align(8))]
struct Status([u64; 8]);

/// `MPI_COMM_WORLD`, `MPI_BYTE` and `MPI_ERRORS_RETURN` of the standard ABI and of the MPICH family.
const STANDARD: [usize; 3] = [0x101, 0x247, 0x143];
const MPICH: [c_int; 3] = [0x4400_0000, 0x4c00_010d, 0x5400_0001];
/// `MPI_THREAD_SERIALIZED` of the standard ABI, and of both families.
const STANDARD_SERIALIZED: c_int = 0x800;
const SERIALIZED: c_int = 2;

type Code = c_int;
/// Longer than `MPI_MAX_LIBRARY_VERSION_STRING` and `MPI_MAX_ERROR_STRING` of every dialect.
const TEXT_BYTES: usize = 8192 + 1;

/// A library that is mapped, whatever it is. It stays so (MPI-2).
#[derive(Debug)]
pub(crate) struct Loaded(ManuallyDrop<Library>);

impl Loaded {
    /// `visible`: whether libraries that are loaded later see its symbols.
    pub(crate) fn open(name: &str, visible: bool) -> std::result::Result<Loaded, String> {
        let flags = RTLD_NOW | if visible { RTLD_GLOBAL } else { RTLD_LOCAL };
        // SAFETY: loading runs the constructors of the library. It was named by the user, or has the name by which the system
        // knows an MPI library: this is as safe as having linked it.
        let library = unsafe { Library::open(Some(name), flags) };
        library
            .map(|library| Loaded(ManuallyDrop::new(library)))
            .map_err(|error| match error.source() {
                Some(cause) => cause.to_string(),
                None => error.to_string(),
            })
    }

    /// Symbol `name` as a `T`.
    ///
    /// # Safety
    /// The symbol, if there is one, is a `T`: a function of that signature, or `T` is a pointer to what it is.
    unsafe fn symbol<T: Copy>(&self, name: &str) -> std::result::Result<T, String> {
        // SAFETY: the caller's promise.
        match unsafe { self.0.get::<T>(name) } {
            Ok(symbol) => Ok(*symbol),
            Err(_) => Err(format!("it has no `{name}`")),
        }
    }

    fn address(&self, name: &str) -> std::result::Result<Address, String> {
        // SAFETY: the symbol's address is taken and not followed, so any symbol will do.
        unsafe { self.symbol::<*mut c_void>(name) }.map(Address)
    }

    pub(crate) fn is_open_mpi(&self) -> bool {
        self.address("ompi_mpi_comm_world").is_ok()
    }

    /// What the library calls itself. One of the functions that may be called before MPI is initialised.
    pub(crate) fn version(&self) -> std::result::Result<String, String> {
        type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> Code;
        // SAFETY: the signature of this function in the standard (MPI-1).
        let version: Version = unsafe { self.symbol("MPI_Get_library_version") }?;
        let text = text(|bytes, len| {
            // SAFETY: `bytes` has room for the longest version of every dialect.
            unsafe { version(bytes, len) }
        });
        let text = text.ok_or("MPI_Get_library_version fails")?;
        // Intel's and MPICH's go on for lines; Open MPI's after a comma.
        let line = text.lines().next().unwrap_or_default();
        let line = line.split(", package").next().unwrap_or_default();
        Ok(line.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// The text that `fill` writes, if it succeeds.
fn text(fill: impl FnOnce(*mut c_char, *mut c_int) -> Code) -> Option<String> {
    let (mut bytes, mut len) = (vec![0u8; TEXT_BYTES], 0);
    if fill(bytes.as_mut_ptr().cast(), &raw mut len) != 0 {
        return None;
    }
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// What is done with MPI, for every dialect.
pub(crate) trait Calls: fmt::Debug + Send + Sync {
    /// Initialises MPI, unless the program has; returns whether it did. Makes the communicator of the messages.
    fn start(&self) -> Result<bool>;
    /// This process's number, and how many there are.
    fn place(&self) -> Result<(u32, u32)>;
    fn finish(&self);
    fn all_gather(&self, mine: &[u8], all: &mut [u8]) -> Result<()>;
    fn broadcast(&self, data: &mut [u8]) -> Result<()>;
    /// `data` must be neither moved out of nor freed before the request is complete (MPI-2).
    fn send(&self, data: &Buffer, to: c_int, tag: c_int) -> Result<Request>;
    /// As [`send`](Calls::send).
    fn receive(&self, data: &mut Buffer, from: c_int, tag: c_int) -> Result<Request>;
    /// Lets MPI work on all messages of this process.
    fn progress(&self) -> Result<()>;
    /// The bytes that were received, if the request is complete; of a send, any number.
    fn test(&self, request: &mut Request) -> Result<Option<usize>>;
}

/// The functions and numbers of a library whose handles are `H`.
#[derive(Debug)]
pub(crate) struct Api<H> {
    world: H,
    byte: H,
    errors_return: H,
    /// `MPI_THREAD_SERIALIZED`.
    serialized: c_int,
    /// The communicator of the messages: a duplicate of the world.
    messages: OnceLock<H>,
    init_thread: unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> Code,
    initialized: unsafe extern "C" fn(*mut c_int) -> Code,
    finalized: unsafe extern "C" fn(*mut c_int) -> Code,
    query_thread: unsafe extern "C" fn(*mut c_int) -> Code,
    finalize: unsafe extern "C" fn() -> Code,
    comm_dup: unsafe extern "C" fn(H, *mut H) -> Code,
    comm_set_errhandler: unsafe extern "C" fn(H, H) -> Code,
    comm_rank: unsafe extern "C" fn(H, *mut c_int) -> Code,
    comm_size: unsafe extern "C" fn(H, *mut c_int) -> Code,
    barrier: unsafe extern "C" fn(H) -> Code,
    allgather: unsafe extern "C" fn(*const c_void, c_int, H, *mut c_void, c_int, H, H) -> Code,
    bcast: unsafe extern "C" fn(*mut c_void, c_int, H, c_int, H) -> Code,
    isend: unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H, *mut H) -> Code,
    irecv: unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut H) -> Code,
    iprobe: unsafe extern "C" fn(c_int, c_int, H, *mut c_int, *mut Status) -> Code,
    test: unsafe extern "C" fn(*mut H, *mut c_int, *mut Status) -> Code,
    get_count: unsafe extern "C" fn(*const Status, H, *mut c_int) -> Code,
    error_string: unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> Code,
}

impl Api<Address> {
    /// The numbers of the ABI that MPI 5 standardises.
    pub(crate) fn standard(loaded: &Loaded) -> std::result::Result<Api<Address>, String> {
        // SAFETY: the standard ABI, whose handles are addresses (MPI-1).
        unsafe { Api::load(loaded, STANDARD.map(Address::small), STANDARD_SERIALIZED) }
    }

    /// Open MPI's handles are the addresses of variables.
    pub(crate) fn open_mpi(loaded: &Loaded) -> std::result::Result<Api<Address>, String> {
        let names = ["ompi_mpi_comm_world", "ompi_mpi_byte", "ompi_mpi_errors_return"];
        let [world, byte, errors_return] = names.map(|name| loaded.address(name));
        // SAFETY: Open MPI, whose handles are addresses (MPI-1).
        unsafe { Api::load(loaded, [world?, byte?, errors_return?], SERIALIZED) }
    }
}

impl Api<c_int> {
    /// The numbers of MPICH and its descendants.
    pub(crate) fn mpich(loaded: &Loaded) -> std::result::Result<Api<c_int>, String> {
        // SAFETY: the MPICH family, whose handles are numbers (MPI-1).
        unsafe { Api::load(loaded, MPICH, SERIALIZED) }
    }
}

impl<H: Handle> Api<H> {
    /// # Safety
    /// The library's handles are `H` (MPI-1).
    unsafe fn load(
        loaded: &Loaded,
        [world, byte, errors_return]: [H; 3],
        serialized: c_int,
    ) -> std::result::Result<Api<H>, String> {
        // SAFETY: each field has the signature of the function that it is named by (MPI-1).
        unsafe {
            Ok(Api {
                world,
                byte,
                errors_return,
                serialized,
                messages: OnceLock::new(),
                init_thread: loaded.symbol("MPI_Init_thread")?,
                initialized: loaded.symbol("MPI_Initialized")?,
                finalized: loaded.symbol("MPI_Finalized")?,
                query_thread: loaded.symbol("MPI_Query_thread")?,
                finalize: loaded.symbol("MPI_Finalize")?,
                comm_dup: loaded.symbol("MPI_Comm_dup")?,
                comm_set_errhandler: loaded.symbol("MPI_Comm_set_errhandler")?,
                comm_rank: loaded.symbol("MPI_Comm_rank")?,
                comm_size: loaded.symbol("MPI_Comm_size")?,
                barrier: loaded.symbol("MPI_Barrier")?,
                allgather: loaded.symbol("MPI_Allgather")?,
                bcast: loaded.symbol("MPI_Bcast")?,
                isend: loaded.symbol("MPI_Isend")?,
                irecv: loaded.symbol("MPI_Irecv")?,
                iprobe: loaded.symbol("MPI_Iprobe")?,
                test: loaded.symbol("MPI_Test")?,
                get_count: loaded.symbol("MPI_Get_count")?,
                error_string: loaded.symbol("MPI_Error_string")?,
            })
        }
    }

    fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let message = text(|bytes, len| {
            // SAFETY: `bytes` has room for the longest message of every dialect.
            unsafe { (self.error_string)(code, bytes, len) }
        });
        let message = message.unwrap_or_else(|| format!("code {code}"));
        Err(Error::Call { call, message })
    }

    /// The communicator of the messages.
    fn messages(&self) -> H {
        // `start` has set it, without which there is no world to make calls.
        self.messages.get().copied().unwrap_or(self.world)
    }

    fn flag(&self, call: &'static str, ask: unsafe extern "C" fn(*mut c_int) -> Code) -> Result<c_int> {
        let mut flag = 0;
        // SAFETY: one of the functions that write a number and take nothing else (MPI-1).
        self.check(call, unsafe { ask(&raw mut flag) })?;
        Ok(flag)
    }
}

fn count(bytes: usize) -> Result<c_int> {
    c_int::try_from(bytes).map_err(|_| Error::TooLarge {
        what: format!("a message of {bytes} bytes"),
    })
}

impl<H: Handle> Calls for Api<H> {
    fn start(&self) -> Result<bool> {
        if self.flag("MPI_Finalized", self.finalized)? != 0 {
            let reason = "the program has called MPI_Finalize".into();
            return Err(Error::Ended { reason });
        }
        let ours = self.flag("MPI_Initialized", self.initialized)? == 0;
        let mut level = 0;
        if ours {
            let none = ptr::null_mut();
            // SAFETY: the standard allows null for the arguments of `main` (MPI-1).
            let code = unsafe { (self.init_thread)(none, ptr::null_mut(), self.serialized, &raw mut level) };
            self.check("MPI_Init_thread", code)?;
        } else {
            level = self.flag("MPI_Query_thread", self.query_thread)?;
        }
        if level < self.serialized {
            return Err(Error::Threads);
        }
        let mut messages = H::ZERO;
        // SAFETY: MPI is initialised; the world is a communicator (MPI-1).
        self.check("MPI_Comm_dup", unsafe {
            (self.comm_dup)(self.world, &raw mut messages)
        })?;
        // SAFETY: both handles are of this library (MPI-1).
        self.check("MPI_Comm_set_errhandler", unsafe {
            (self.comm_set_errhandler)(messages, self.errors_return)
        })?;
        let _ = self.messages.set(messages);
        Ok(ours)
    }

    fn place(&self) -> Result<(u32, u32)> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: a communicator of this library (MPI-1).
        self.check("MPI_Comm_rank", unsafe {
            (self.comm_rank)(self.messages(), &raw mut rank)
        })?;
        // SAFETY: as above.
        self.check("MPI_Comm_size", unsafe {
            (self.comm_size)(self.messages(), &raw mut size)
        })?;
        Ok((rank.cast_unsigned(), size.cast_unsigned()))
    }

    fn finish(&self) {
        if matches!(self.flag("MPI_Finalized", self.finalized), Ok(0)) {
            // SAFETY: MPI is initialised and not finalised (MPI-4). The barrier is for MPICH 4.0.2, where a process may wait in
            // MPI_Finalize for ever if others are ahead of it: 4 of 4 times in a C program on 3 + 1 ranks, with it 1 of 4.
            let _ = unsafe { ((self.barrier)(self.messages()), (self.finalize)()) };
        }
    }

    fn all_gather(&self, mine: &[u8], all: &mut [u8]) -> Result<()> {
        let (each, x, y) = (count(mine.len())?, mine.as_ptr().cast(), all.as_mut_ptr().cast());
        // SAFETY: `all` has room for as many as there are processes; the world made it so.
        let code = unsafe { (self.allgather)(x, each, self.byte, y, each, self.byte, self.messages()) };
        self.check("MPI_Allgather", code)
    }

    fn broadcast(&self, data: &mut [u8]) -> Result<()> {
        let bytes = count(data.len())?;
        // SAFETY: `data` is written by MPI during the call only.
        let code = unsafe { (self.bcast)(data.as_mut_ptr().cast(), bytes, self.byte, 0, self.messages()) };
        self.check("MPI_Bcast", code)
    }

    fn send(&self, data: &Buffer, to: c_int, tag: c_int) -> Result<Request> {
        let (bytes, mut request) = (count(data.len())?, H::ZERO);
        let from = data.bytes().as_ptr().cast();
        // SAFETY: the buffer outlives the request (MPI-2).
        let code =
            unsafe { (self.isend)(from, bytes, self.byte, to, tag, self.messages(), &raw mut request) };
        self.check("MPI_Isend", code)?;
        Ok(request.request())
    }

    fn receive(&self, data: &mut Buffer, from: c_int, tag: c_int) -> Result<Request> {
        let (bytes, mut request) = (count(data.len())?, H::ZERO);
        let into = data.bytes_mut().as_mut_ptr().cast();
        // SAFETY: the buffer outlives the request, and nobody looks into it before (MPI-2).
        let code = unsafe {
            (self.irecv)(
                into,
                bytes,
                self.byte,
                from,
                tag,
                self.messages(),
                &raw mut request,
            )
        };
        self.check("MPI_Irecv", code)?;
        Ok(request.request())
    }

    fn progress(&self) -> Result<()> {
        let (mut there, mut status) = (0, Status([0; 8]));
        // SAFETY: any rank and tag will do, because nothing is done with the answer; room for a status (MPI-1).
        let code = unsafe { (self.iprobe)(0, 0, self.messages(), &raw mut there, &raw mut status) };
        self.check("MPI_Iprobe", code)
    }

    fn test(&self, request: &mut Request) -> Result<Option<usize>> {
        let Some(request) = H::of(request) else {
            return Ok(None);
        };
        let (mut done, mut status) = (0, Status([0; 8]));
        // SAFETY: a request of this library, and room for its status (MPI-1).
        let code = unsafe { (self.test)(request, &raw mut done, &raw mut status) };
        self.check("MPI_Test", code)?;
        if done == 0 {
            return Ok(None);
        }
        let mut bytes = 0;
        // SAFETY: MPI has filled the status in. That of a send has a count of no meaning, which nobody uses.
        let code = unsafe { (self.get_count)(&raw const status, self.byte, &raw mut bytes) };
        self.check("MPI_Get_count", code)?;
        Ok(Some(usize::try_from(bytes).unwrap_or(0)))
    }
}

/// Has `call` called when the process exits.
pub(crate) fn at_exit(call: extern "C" fn()) {
    unsafe extern "C" {
        fn atexit(call: extern "C" fn()) -> c_int;
    }
    // SAFETY: the C function of that name and signature. The library behind `call` is never unloaded (MPI-2).
    let _ = unsafe { atexit(call) };
}

#[cfg(test)]
mod tests;
