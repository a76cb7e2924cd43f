#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringwork_native::fuzzing::bootstrap_packets(bytes));
