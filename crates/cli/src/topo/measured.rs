//! Tables of measured times: what nccl-tests, rccl-tests and `ringwork bench` print, and CSV.
//!
//! A table has a line with the names of its columns. Among them are one for the size (`size`, `bytes`) and one for the time in
//! microseconds (`time`, `us`, `time_us`, `med_us`); there may be one for the operation (`op`) and the `algorithm`.

use ringwork::isa::Collective;

/// One measured time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) collective: Collective,
    /// How it was done, if the table says.
    pub(super) algorithm: Option<String>,
    pub(super) bytes: usize,
    pub(super) us: f64,
}

const SIZES: [&str; 2] = ["size", "bytes"];
const TIMES: [&str; 4] = ["time", "us", "time_us", "med_us"];

/// Where the columns are.
struct Columns {
    comma: bool,
    bytes: usize,
    us: usize,
    op: Option<usize>,
    algorithm: Option<usize>,
}

/// The times in a table, in the order of the lines. `default` is the operation of a table without a column for it.
///
/// # Errors
/// What cannot be read, with the line.
pub(super) fn read(file: &str, text: &str, default: Option<Collective>) -> Result<Vec<Measured>, String> {
    let mut columns: Option<Columns> = None;
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let cells = cells(line);
        if let Some(found) = columns_of(line, &cells) {
            columns = columns.or(Some(found));
            continue;
        }
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let Some(columns) = &columns else {
            // What a program says before its table.
            continue;
        };
        let Some(bytes) = cells.get(columns.bytes).and_then(|cell| cell.parse().ok()) else {
            if columns.comma {
                return Err(format!(
                    "{file}:{number}: there is no size in column {}",
                    columns.bytes + 1
                ));
            }
            continue;
        };
        let us = cells.get(columns.us).and_then(|cell| cell.parse::<f64>().ok());
        let Some(us) = us.filter(|us| us.is_finite() && *us > 0.0) else {
            return Err(format!(
                "{file}:{number}: there is no time in column {}; it must be microseconds, more than 0",
                columns.us + 1
            ));
        };
        let named = columns.op.and_then(|at| cells.get(at));
        let collective = match (named, default) {
            (Some(name), _) => name
                .parse::<Collective>()
                .map_err(|why| format!("{file}:{number}: {why}"))?,
            (None, Some(default)) => default,
            (None, None) => Collective::AllReduce,
        };
        let algorithm = columns.algorithm.and_then(|at| cells.get(at));
        all.push(Measured {
            collective,
            algorithm: algorithm.map(|name| (*name).to_owned()),
            bytes,
            us,
        });
    }
    if columns.is_none() {
        return Err(format!(
            "{file}: no line names its columns; a table needs one such as `bytes,us`, or nccl-tests' `# size count ... time`"
        ));
    }
    all.retain(|one| one.bytes > 0 && default.is_none_or(|only| only == one.collective));
    if all.is_empty() {
        return Err(format!("{file}: there is no time of this operation in the table"));
    }
    Ok(all)
}

/// The cells of a line, between commas or blanks; the `#` before names of columns is none.
fn cells(line: &str) -> Vec<&str> {
    let line = line.trim().trim_start_matches('#');
    if line.contains(',') {
        line.split(',').map(str::trim).collect()
    } else {
        line.split_whitespace().collect()
    }
}

fn columns_of(line: &str, cells: &[&str]) -> Option<Columns> {
    let place = |names: &[&str]| cells.iter().position(|cell| names.contains(cell));
    Some(Columns {
        comma: line.contains(','),
        bytes: place(&SIZES)?,
        us: place(&TIMES)?,
        op: place(&["op"]),
        algorithm: place(&["algorithm", "algo"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_nccl_tests_and_csv_are_read() {
        let nccl = "# nThread 1 nGpus 8\n#\n#       size         count      type   redop    root     time   algbw   busbw #wrong     time\n\
                    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)\n\
                    \x20       1024           256     float     sum      -1    13.67    0.07    0.13      0    13.31\n\
                    \x20  268435456      67108864     float     sum      -1   1540.4  174.26  304.96      0   1541.0\n\
                    # Out of bounds values : 0 OK\n";
        let read_nccl = read("t", nccl, None).unwrap();
        assert_eq!(read_nccl.len(), 2);
        assert_eq!((read_nccl[1].bytes, read_nccl[1].us), (268_435_456, 1540.4));
        let csv = "op,bytes,us\nall_gather,1024,12.5\nall_reduce,1024,17\n";
        let read_csv = read("t", csv, None).unwrap();
        assert_eq!(read_csv[0].collective, Collective::AllGather);
        assert_eq!(read("t", csv, Some(Collective::AllReduce)).unwrap().len(), 1);
    }

    #[test]
    fn what_is_not_a_table_is_refused_with_its_line() {
        let refused = |text: &str| read("t.csv", text, None).unwrap_err();
        assert!(refused("hello\n").contains("no line names its columns"));
        assert!(refused("bytes,us\n1024,fast\n").starts_with("t.csv:2: there is no time in column 2"));
        assert!(refused("bytes,us\n1024,-1\n").starts_with("t.csv:2: there is no time in column 2"));
        assert!(refused("bytes,us\nbig,1\n").starts_with("t.csv:2: there is no size in column 1"));
        assert!(refused("op,bytes,us\nall_redcue,8,1\n").starts_with("t.csv:2: `all_redcue`"));
        assert!(refused("bytes,us\n").contains("there is no time of this operation"));
    }
}
