#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    dataset_rt_fuzz::record::check(bytes);
});
