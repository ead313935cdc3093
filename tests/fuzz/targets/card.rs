#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drop(polysift_fuzz::card(data)));
