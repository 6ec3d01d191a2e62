//! Bodies: split-invariance, and agreement with httparse about where a chunked body ends.
//!
//! The first two bytes are places where the rest is cut.

#![no_main]

use estrade_http1::framing::Framing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [first, second, bytes @ ..] = input else {
        return;
    };
    let cuts = [usize::from(*first), usize::from(*second)];
    for framing in [
        Framing::ChunkSize,
        Framing::Length(u64::from(*first)),
        Framing::UntilClose,
    ] {
        let checked = estrade_http1::invariants::check_body(framing, bytes, &cuts);
        assert_eq!(checked, Ok(()));
    }
});
