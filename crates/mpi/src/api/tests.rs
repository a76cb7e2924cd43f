//! The numbers of each dialect, compared with the headers of the libraries that are installed.

use super::*;
use std::process::Command;

/// Compilers of MPI programs, separated by colons.
const COMPILERS: &str = "RINGWORK_MPI_COMPILERS";

const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(void) {
#ifdef OPEN_MPI
    int family = 0;
#elif defined(MPICH_VERSION) || defined(MPICH_NAME)
    int family = 1;
#else
    int family = 2;
#endif
    printf("%d %d %d %d %d %lld %lld %lld", family, (int)sizeof(MPI_Status), (int)sizeof(MPI_Comm), MPI_THREAD_SERIALIZED,
        MPI_MAX_LIBRARY_VERSION_STRING > MPI_MAX_ERROR_STRING ? MPI_MAX_LIBRARY_VERSION_STRING : MPI_MAX_ERROR_STRING,
        (long long)MPI_COMM_WORLD, (long long)MPI_BYTE, (long long)MPI_ERRORS_RETURN);
}
"#;

/// What the program prints.
fn numbers(compiler: &str, folder: &std::path::Path) -> Vec<i64> {
    let (source, program) = (folder.join("numbers.c"), folder.join("numbers"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut words = compiler.split_whitespace();
    let compiled = Command::new(words.next().unwrap())
        .args(words)
        .args([source.as_os_str(), "-o".as_ref(), program.as_os_str()])
        .status();
    assert!(
        compiled.as_ref().is_ok_and(std::process::ExitStatus::success),
        "{compiler}: {compiled:?}"
    );
    let printed = Command::new(&program).output().unwrap().stdout;
    let printed = String::from_utf8(printed).unwrap();
    printed.split(' ').map(|word| word.parse().unwrap()).collect()
}

/// The numbers of a family: the size of a handle, the level of threads, world, byte and error handler.
fn known(family: i64) -> (usize, c_int, Option<[i64; 3]>) {
    match family {
        // The addresses of variables: there are no numbers.
        0 => (8, SERIALIZED, None),
        1 => (4, SERIALIZED, Some(MPICH.map(i64::from))),
        _ => (8, STANDARD_SERIALIZED, Some(STANDARD.map(|number| number as i64))),
    }
}

#[test]
#[ignore = "needs the headers of an MPI, whose compilers RINGWORK_MPI_COMPILERS names"]
fn the_numbers_are_those_of_every_header_with_mpi() {
    let compilers = std::env::var(COMPILERS).expect(COMPILERS);
    let folder = std::env::temp_dir().join(format!("ringwork-mpi-numbers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for compiler in compilers.split(':') {
        let read = numbers(compiler, &folder);
        let (handle, serialized, handles) = known(read[0]);
        let bytes = |index: usize| usize::try_from(read[index]).unwrap();
        assert!(bytes(1) <= size_of::<Status>(), "{compiler}: MPI_Status");
        assert_eq!(bytes(2), handle, "{compiler}: MPI_Comm");
        assert_eq!(
            read[3],
            i64::from(serialized),
            "{compiler}: MPI_THREAD_SERIALIZED"
        );
        assert!(bytes(4) < TEXT_BYTES, "{compiler}: longest text");
        if let Some(handles) = handles {
            assert_eq!(&read[5..], handles, "{compiler}: world, byte, error handler");
        }
        println!("{compiler}: the numbers are the same");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
