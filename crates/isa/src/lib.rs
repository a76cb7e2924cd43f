#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod activations;
mod algorithm;
mod attribution;
mod barrier;
mod block;
mod collective;
mod contributions;
mod core;
mod counted;
mod dtype;
mod epoch;
mod erased;
mod error;
mod fingerprint;
mod float;
mod host_port;
mod ids;
mod nearest;
mod op;
mod packet;
mod port_layout;
mod product;
mod queue;
mod region;
mod signal;
mod sources;
pub mod stepped;
mod task;
mod team_memory;
mod tile;
mod tile_ops;

pub use algorithm::Algorithm;
pub use attribution::{Attributed, Attribution};
pub use barrier::Barrier;
pub use block::{
    Block, BlockSpan, ByteRows, Clipped, Consecutive, Place, Readable, Writable, block_operands,
};
pub use collective::{Collective, Counts, LeastWork, Origin, Share};
pub use contributions::{Contributions, Difference, Piece, Wrong};
pub use core::{Core, Work, others};
pub use counted::Counted;
pub use dtype::{Dtype, Element, elements};
pub use elements::*;
pub use epoch::Epoch;
pub use erased::{AnyTile, ElementType, Erased, TileValues};
pub use error::{Error, ErrorKind, Result, Site, Waited};
pub use fingerprint::{Fingerprint, Operation};
pub use float::Float;
pub use host_port::{HostPort, Received, Reply, Request};
pub use ids::{Device, Level, MAX_RANKS, Rank, Segment};
pub use nearest::nearest;
pub use op::ReduceOp;
pub use packet::{
    FLAGGED_BYTES, LINE_BYTES, LINE_WORDS, Packets, is_beside_flag, packet_lines, packet_payload,
};
pub use port_layout::{Direction, Header, MessageKind, PortCell, PortLayout, Returns};
pub use product::{product, product_in_blocks};
pub use queue::{Copying, Pending, Port, QueueEnd, QueueSignal, Queues, Receiving, Sending, Ticket};
pub use region::{
    Access, CanRead, CanWrite, In, InOut, Out, Read, ReadWrite, Region, Shared, Span, Window, Write,
    part_range,
};
pub use signal::{Compare, Notify, OwnSignal, SIGNAL_STRIDE_BYTES, Signal, Signals};
pub use sources::{Destinations, OnAll, OnOthers, Sources};
pub use task::{
    Arg, Argument, KernelId, Param, Parameter, Tag, Task, Value, decode, dtype_of, float_needed,
    signature_hash,
};
pub use team_memory::{MAX_GRID_SIDES, TeamMemory, TeamParts};
pub use tile::Tile;
pub use tile_ops::TileOps;
