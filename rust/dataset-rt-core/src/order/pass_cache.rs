//! What was computed for the last few passes.

use super::feistel::ROUNDS;

/// Passes kept: enough for two epochs read at once, each across the border of two passes.
const SLOTS: usize = 4;

/// Which pass of which permutation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PassKey {
    pub(super) rows: u64,
    pub(super) seed: u64,
    pub(super) pass: u64,
}

/// What a permutation computes once a pass: a table for small populations, round keys for large ones.
#[derive(Clone, Debug, Default)]
pub(super) struct PassData {
    pub(super) table: Vec<u16>,
    pub(super) round_keys: [u64; ROUNDS],
}

#[derive(Clone, Debug, Default)]
struct Slot {
    key: Option<PassKey>,
    data: PassData,
}

/// Memory of the last four passes, kept by whoever draws, so that samplers are immutable and shared between threads.
///
/// It affects speed alone: one cache may serve any number of samplers, and a new one gives the same rows. Holds at
/// most 512 KiB, and nothing until the first draw without replacement.
#[derive(Clone, Debug, Default)]
pub struct PassCache {
    /// Most recently used first.
    slots: [Slot; SLOTS],
}

impl PassCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The data of the pass, computed by `fill` (into the oldest pass's memory) if it is not here.
    #[inline]
    pub(super) fn pass(&mut self, key: PassKey, fill: impl FnOnce(&mut PassData)) -> &PassData {
        if self.slots[0].key != Some(key) {
            let slot = self.slots.iter().position(|slot| slot.key == Some(key)).unwrap_or(SLOTS - 1);
            if let Some(newer) = self.slots.get_mut(..=slot) {
                newer.rotate_right(1);
            }
            let newest = &mut self.slots[0];
            if newest.key != Some(key) {
                fill(&mut newest.data);
                newest.key = Some(key);
            }
        }
        &self.slots[0].data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_four_passes_are_not_computed_again() {
        let mut cache = PassCache::new();
        let mut computed = Vec::new();
        for pass in [1, 2, 3, 4, 1, 2, 3, 4, 5, 2, 3, 4, 1] {
            let key = PassKey { rows: 10, seed: 0, pass };
            let data = cache.pass(key, |data| {
                computed.push(pass);
                data.round_keys = [pass; ROUNDS];
            });
            assert_eq!(data.round_keys, [pass; ROUNDS]);
        }
        assert_eq!(computed, [1, 2, 3, 4, 5, 1]);
    }

    #[test]
    fn one_cache_tells_populations_and_seeds_apart() {
        let mut cache = PassCache::new();
        for (rows, seed) in [(10, 0), (11, 0), (10, 1), (10, 0)] {
            let data =
                cache.pass(PassKey { rows, seed, pass: 0 }, |data| data.round_keys = [rows, seed, 0, 0, 0, 0, 0, 0]);
            assert_eq!(data.round_keys[..2], [rows, seed]);
        }
    }
}
