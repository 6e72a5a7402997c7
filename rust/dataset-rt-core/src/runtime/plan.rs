//! Turns positions into the records to be read.

use std::sync::Arc;

use crate::error::Result;
use crate::identifier::Position;
use crate::order::PassCache;
use crate::population::Population;
use crate::store::{CacheSet, PlannedRecord};

/// A run: neighbouring draws of one reader that are read together and delivered in order.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The records to read, in draw order.
    pub records: Vec<PlannedRecord>,
    /// Payload bytes of all records together.
    pub payload_bytes: u64,
}

/// Names the rows of draws, with the memory of its own that this takes.
#[derive(Debug)]
pub struct Drawer {
    population: Arc<Population>,
    passes: PassCache,
    rows: Vec<u64>,
}

impl Drawer {
    /// Draws from `population`.
    #[must_use]
    pub fn new(population: Arc<Population>) -> Self {
        Self { population, passes: PassCache::default(), rows: Vec::new() }
    }

    /// The population.
    #[must_use]
    pub fn population(&self) -> &Arc<Population> {
        &self.population
    }

    /// The records of the draws `first`, `first + step`, …, `count` of them; the last must be below 2^64.
    pub fn records(&mut self, first: Position, step: u64, count: usize) -> impl Iterator<Item = Result<u64>> + '_ {
        self.rows.resize(count, 0);
        self.population.sampler().fill(first, step, &mut self.passes, &mut self.rows);
        let population = &self.population;
        self.rows.iter().map(move |row| population.record(*row))
    }
}

/// Plans the reading of `records` until their payloads pass `most_bytes`; one always goes. It ends before a record whose
/// index entry is wrong, so that those before it are delivered first.
///
/// # Errors
/// What is wrong with the first record.
pub fn plan(caches: &CacheSet, records: impl Iterator<Item = Result<u64>>, most_bytes: u64) -> Result<Run> {
    let mut run = Run::default();
    for record in records {
        let planned = record.and_then(|record| {
            let (cache, place, sample) = caches.locate(record)?;
            Ok(PlannedRecord { cache: place, sample, entry: cache.entry(sample)? })
        });
        let planned = match planned {
            Ok(planned) => planned,
            Err(error) if run.records.is_empty() => return Err(error),
            Err(_) => break,
        };
        let bytes = run.payload_bytes.saturating_add(planned.entry.payload_bytes);
        if bytes > most_bytes && !run.records.is_empty() {
            break;
        }
        run.payload_bytes = bytes;
        run.records.push(planned);
    }
    Ok(run)
}
