//! YAML as a tree that knows its lines, and readers that know what may be written.
//!
//! ```
//! use ringwork_yaml::Tree;
//! let mut tree = Tree::parse("mine.yaml", "sizes: [1 KiB, 1 MiB]\nwire: {latency: 1 us}").unwrap();
//! tree.set("wire.latency", "2 us").unwrap();
//! let table = tree.reader().table(&["sizes", "wire"]).unwrap();
//! let wire = table.get("wire").unwrap().table(&["latency"]).unwrap();
//! assert_eq!(wire.get("latency").unwrap().text().unwrap(), "2 us");
//! assert_eq!(table.get("sizes").unwrap().list().unwrap()[1].bytes().unwrap(), 1 << 20);
//! ```
//!
//! Only the parser is from outside; keys, words and units are checked here, so that every complaint names
//! the file, the line, the key and its cure.
#![forbid(unsafe_code)]

mod error;
mod parse;
mod tree;
pub mod units;

pub use error::{ConfigError, Problem, instead};
pub use tree::{Reader, Table, Tree};
