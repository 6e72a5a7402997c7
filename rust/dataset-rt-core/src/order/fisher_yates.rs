//! Passes over small populations: a shuffled table for each.

use super::philox::{PASS, philox4x64_10};

/// Most rows that are shuffled in a table: its entries then fit 16 bits, and 128 KiB hold it.
pub(super) const MOST_ROWS: u64 = 1 << 16;

/// Fills `table` with pass `pass` over `rows` rows, at most [`MOST_ROWS`].
///
/// Source: Fisher and Yates' shuffle in Durstenfeld's form (CACM 7, 1964), from the last place down. The deviation is
/// where the random places come from: the word for place i is a function of pass and i alone.
pub(super) fn shuffle(table: &mut Vec<u16>, rows: u64, seed: u64, pass: u64) {
    table.clear();
    table.extend((0..=u16::MAX).zip(0..rows).map(|(row, _)| row));
    for place in (1..rows).rev() {
        let [word, ..] = philox4x64_10([pass, place, 1, 0], [seed, PASS]);
        let (_, other) = word.carrying_mul(place + 1, 0);
        // Both are below 2^16 and inside the table.
        if let (Ok(place), Ok(other)) = (usize::try_from(place), usize::try_from(other)) {
            table.swap(place, other);
        }
    }
}
