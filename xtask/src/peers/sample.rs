//! One measured line: what every benchmark prints, whoever wrote it.
//!
//! Columns are found by their name in the header, so a benchmark may add some.

use super::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The columns every benchmark prints, in the order ours prints them.
pub(crate) const COLUMNS: &str = "peer,np,op,mode,bytes,iters,min_us,med_us,p99_us,mean_us,busbw_med_GBs,\
                                  busbw_max_GBs,verify,epoch,pp_before_ns,pp_after_ns";

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Op {
    AllReduce,
    Barrier,
    AllGather,
    ReduceScatter,
    Broadcast,
    AllToAll,
}

impl Op {
    /// All of them, the most wanted first.
    pub(crate) const ALL: [Op; 6] = [
        Op::AllReduce,
        Op::Barrier,
        Op::AllGather,
        Op::ReduceScatter,
        Op::Broadcast,
        Op::AllToAll,
    ];

    /// The modes in which it can be measured: a barrier has no buffer, a broadcast has one.
    pub(crate) fn modes(self) -> &'static [Mode] {
        match self {
            Op::Barrier => &[Mode::Oop],
            Op::Broadcast => &[Mode::Inp, Mode::Use],
            _ => &[Mode::Oop, Mode::Inp, Mode::Use],
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Op::AllReduce => "all_reduce",
            Op::Barrier => "barrier",
            Op::AllGather => "all_gather",
            Op::ReduceScatter => "reduce_scatter",
            Op::Broadcast => "broadcast",
            Op::AllToAll => "all_to_all",
        })
    }
}

impl FromStr for Op {
    type Err = String;

    /// Also as MPI spells it: `allreduce`, `bcast`.
    fn from_str(text: &str) -> std::result::Result<Op, String> {
        match text.replace(['_', '-'], "").as_str() {
            "allreduce" => Ok(Op::AllReduce),
            "barrier" => Ok(Op::Barrier),
            "allgather" => Ok(Op::AllGather),
            "reducescatter" => Ok(Op::ReduceScatter),
            "broadcast" | "bcast" => Ok(Op::Broadcast),
            "alltoall" => Ok(Op::AllToAll),
            _ => Err(format!(
                "`{text}` is no operation; use {}",
                Op::ALL.map(|op| op.to_string()).join(", ")
            )),
        }
    }
}

/// How the buffers of successive calls relate; `xtask/peers/harness.h` defines each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Mode {
    Oop,
    Inp,
    Use,
}

impl Mode {
    pub(crate) const ALL: [Mode; 3] = [Mode::Oop, Mode::Inp, Mode::Use];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mode::Oop => "oop",
            Mode::Inp => "inp",
            Mode::Use => "use",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Mode, String> {
        Mode::ALL
            .into_iter()
            .find(|mode| mode.to_string() == text)
            .ok_or_else(|| format!("`{text}` is no mode; use oop, inp or use"))
    }
}

/// The median of one run of one benchmark at one size, and where it ran.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Who was measured.
    pub(crate) peer: String,
    pub(crate) ranks: u32,
    pub(crate) op: Op,
    pub(crate) mode: Mode,
    pub(crate) bytes: u64,
    /// The median over the calls of this run.
    pub(crate) median_us: f64,
    /// Whether every element was right.
    pub(crate) right: bool,
    /// Core to core, before and after the calls.
    pub(crate) hop_before_ns: f64,
    pub(crate) hop_after_ns: f64,
    /// The version of the library, if the file says.
    pub(crate) version: String,
}

/// Where the columns we read are, in one file.
#[derive(Debug)]
struct Header {
    peer: usize,
    ranks: usize,
    op: usize,
    mode: usize,
    bytes: usize,
    median: usize,
    verify: usize,
    before: usize,
    after: usize,
    version: Option<usize>,
}

impl Header {
    fn parse(text: &str) -> std::result::Result<Header, String> {
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        let find = |name: &str| names.iter().position(|n| *n == name);
        let need = |name: &str| find(name).ok_or_else(|| format!("the header has no column `{name}`"));
        Ok(Header {
            peer: need("peer")?,
            ranks: need("np")?,
            op: need("op")?,
            mode: need("mode")?,
            bytes: need("bytes")?,
            median: need("med_us")?,
            verify: need("verify")?,
            before: need("pp_before_ns")?,
            after: need("pp_after_ns")?,
            version: find("version"),
        })
    }

    fn sample(&self, line: &str) -> std::result::Result<Sample, String> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let text = |i: usize| {
            fields
                .get(i)
                .copied()
                .ok_or_else(|| format!("only {} fields", fields.len()))
        };
        let sample = Sample {
            peer: text(self.peer)?.to_owned(),
            ranks: number(text(self.ranks)?)?,
            op: text(self.op)?.parse()?,
            mode: text(self.mode)?.parse()?,
            bytes: number(text(self.bytes)?)?,
            median_us: number(text(self.median)?)?,
            right: text(self.verify)?.eq_ignore_ascii_case("ok"),
            hop_before_ns: number(text(self.before)?)?,
            hop_after_ns: number(text(self.after)?)?,
            version: self
                .version
                .and_then(|i| fields.get(i))
                .copied()
                .unwrap_or_default()
                .to_owned(),
        };
        if !(sample.median_us.is_finite() && sample.median_us > 0.0) {
            return Err(format!("a median of {} us", sample.median_us));
        }
        Ok(sample)
    }
}

fn number<T: FromStr>(text: &str) -> std::result::Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

/// The lines of `csv` as fields in the order of [`COLUMNS`], and `peer` as their name. A benchmark that
/// prints no header has printed these columns; one that lacks a column leaves it empty.
pub(crate) fn in_our_columns(csv: &str, peer: &str) -> Vec<String> {
    let ours: Vec<&str> = COLUMNS.split(',').collect();
    let mut columns = ours.clone();
    let mut lines = Vec::new();
    for line in csv
        .lines()
        .filter(|line| line.contains(',') && !line.starts_with('#'))
    {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if is_header(line) {
            columns = fields;
            continue;
        }
        let field = |name: &&str| match columns.iter().position(|column| column == name) {
            _ if *name == "peer" => peer,
            Some(i) => fields.get(i).copied().unwrap_or_default(),
            None => "",
        };
        lines.push(ours.iter().map(field).collect::<Vec<_>>().join(","));
    }
    lines
}

/// Whether a line is a header rather than a sample.
fn is_header(line: &str) -> bool {
    line.split(',').any(|name| name.trim() == "med_us")
}

/// The samples of a CSV. Empty lines and lines that start with `#` are passed over; a header may come
/// again, as it does when files are joined.
///
/// # Errors
/// The first line that is not a sample.
pub(crate) fn parse(csv: &str) -> Result<Vec<Sample>> {
    let mut header = None;
    let mut samples = Vec::new();
    for (i, line) in csv.lines().enumerate() {
        let bad = |why| Error::BadLine { line: i + 1, why };
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match &header {
            Some(header) if !is_header(line) => samples.push(Header::sample(header, line).map_err(bad)?),
            _ => header = Some(Header::parse(line).map_err(bad)?),
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str =
        "ompi4,2,all_reduce,use,65536,166,45.854,46.886,219.2,325.7,1.398,1.429,ok,1794777732,241,239";

    #[test]
    fn a_line_of_our_harness_is_understood() {
        let samples = parse(&format!("{COLUMNS}\n{LINE}\n")).unwrap();
        assert_eq!(
            samples,
            [Sample {
                peer: "ompi4".into(),
                ranks: 2,
                op: Op::AllReduce,
                mode: Mode::Use,
                bytes: 65536,
                median_us: 46.886,
                right: true,
                hop_before_ns: 241.0,
                hop_after_ns: 239.0,
                version: String::new(),
            }]
        );
    }

    #[test]
    fn columns_are_found_by_name_wherever_they_are() {
        let csv = "version,med_us,peer,np,op,mode,bytes,verify,pp_before_ns,pp_after_ns,extra\n\
                   4.1,1.5,x,4,bcast,inp,8,BAD,60,61,?\n";
        let sample = parse(csv).unwrap().remove(0);
        assert_eq!(
            (sample.version.as_str(), sample.op, sample.right),
            ("4.1", Op::Broadcast, false)
        );
        assert_eq!((sample.median_us, sample.hop_after_ns), (1.5, 61.0));
    }

    #[test]
    fn comments_empty_lines_and_repeated_headers_are_passed_over() {
        let csv = format!("# made today\n{COLUMNS}\n\n{LINE}\n{COLUMNS}\n{LINE}\n");
        assert_eq!(parse(&csv).unwrap().len(), 2);
    }

    #[test]
    fn what_is_not_a_sample_is_refused_with_its_line() {
        let refused = |line: &str| parse(&format!("{COLUMNS}\n{line}\n")).unwrap_err().to_string();
        assert_eq!(refused("ompi4,2"), "line 2: only 2 fields");
        assert!(refused(&LINE.replace("46.886", "fast")).contains("`fast` is not a number"));
        assert!(refused(&LINE.replace("46.886", "NaN")).contains("a median of NaN us"));
        assert!(refused(&LINE.replace("46.886", "0.000")).contains("a median of 0 us"));
        assert!(refused(&LINE.replace("all_reduce", "all_reduze")).contains("is no operation"));
        assert!(refused(&LINE.replace("use", "abuse")).contains("is no mode"));
        assert_eq!(
            parse("a,b,c\n").unwrap_err().to_string(),
            "line 1: the header has no column `peer`"
        );
    }

    #[test]
    fn lines_are_brought_into_our_columns_under_the_name_we_ran_them_by() {
        assert_eq!(
            in_our_columns(LINE, "ompi4-sm"),
            [LINE.replace("ompi4,", "ompi4-sm,")]
        );
        let other = "# a comment\nop,algo,mode,med_us\nall_reduce,ring,inp,2.5\n";
        assert_eq!(in_our_columns(other, "us"), ["us,,all_reduce,inp,,,,2.5,,,,,,,,"]);
    }

    #[test]
    fn operations_are_known_by_the_names_of_mpi_too() {
        for (text, op) in [
            ("allreduce", Op::AllReduce),
            ("bcast", Op::Broadcast),
            ("reduce-scatter", Op::ReduceScatter),
        ] {
            assert_eq!(text.parse(), Ok(op));
        }
        for op in Op::ALL {
            assert_eq!(op.to_string().parse(), Ok(op));
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(.|\n){0,200}") {
            let _ = parse(&text);
            let _ = parse(&format!("{COLUMNS}\n{text}"));
        }

        #[test]
        fn numbers_survive(ranks in 1u32..999, bytes: u64, median in 0.001f64..1e9, hops in (0u32..9999, 0u32..9999)) {
            let (before, after) = hops;
            let line = format!("p,{ranks},barrier,oop,{bytes},1,1,{median},1,1,0,0,ok,0,{before},{after}");
            let sample = parse(&format!("{COLUMNS}\n{line}")).unwrap().remove(0);
            prop_assert_eq!((sample.ranks, sample.bytes, sample.median_us), (ranks, bytes, median));
            prop_assert_eq!((sample.hop_before_ns, sample.hop_after_ns), (before.into(), after.into()));
        }
    }
}
