//! What fuzzing starts from and what it once found, tried again on every run.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a claim that does not hold panics"
)]

#[path = "../../fuzz/src/lib.rs"]
mod claims;

use std::fs;
use std::path::Path;

/// Tries a claim on every kept file of its name, and on every file with a byte changed or its end cut off.
fn replay(name: &str, check: fn(&[u8]) -> bool) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let mut files = 0;
    for folder in ["seeds", "regressions"] {
        let Ok(entries) = fs::read_dir(fuzz.join(folder).join(name)) else { continue };
        for entry in entries {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            files += 1;
            let taken = check(&bytes);
            assert!(taken || folder != "seeds", "{name}: a seed is refused, so nothing behind is reached");
            for place in 0..bytes.len() {
                check(&bytes[..place]);
                for flip in [0x01, 0x80, 0xFF] {
                    let mut wrong = bytes.clone();
                    wrong[place] ^= flip;
                    check(&wrong);
                }
            }
        }
    }
    assert!(files > 0, "no file to try {name} on");
}

#[test]
fn manifests_are_refused_or_keep_their_rules() {
    replay("manifest", claims::manifest::check);
}

#[test]
fn indexes_are_refused_or_keep_their_rules() {
    replay("index", claims::index::check);
}

#[test]
fn metadata_files_are_refused_or_keep_their_rules() {
    replay("metadata", claims::metadata::check);
}

#[test]
fn records_are_refused_or_fill_their_payload() {
    replay("record", claims::record::check);
}
