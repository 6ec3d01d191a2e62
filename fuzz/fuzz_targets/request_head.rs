//! Heads of requests: split-invariance, and agreement with hyper's parser and with the scanner for bare LFs.
//!
//! The first two bytes are places where the rest is cut.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [first, second, bytes @ ..] = input else {
        return;
    };
    let cuts = [usize::from(*first), usize::from(*second)];
    for checked in [
        estrade_http1::invariants::check_request_head(bytes, &cuts),
        estrade_http1::invariants::check_request(bytes, &cuts),
    ] {
        assert_eq!(checked, Ok(()));
    }
});
