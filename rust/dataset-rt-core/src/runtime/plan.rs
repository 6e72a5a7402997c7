//! Turns positions into the records to be read.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::identifier::Position;
use crate::order::PassCache;
use crate::population::Population;
use crate::store::{CacheSet, OpenFile, PlannedRecord, announce};

/// How many index entries ahead the processor is asked for one.
const ENTRIES_AHEAD: usize = 8;

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
    ///
    /// # Errors
    /// [`Error::Config`] where there is no memory for so many.
    pub fn records(
        &mut self,
        first: Position,
        step: u64,
        count: u64,
    ) -> Result<impl Iterator<Item = Result<u64>> + '_> {
        resize(&mut self.rows, count)?;
        self.population.sampler().fill(first, step, &mut self.passes, &mut self.rows);
        let population = &self.population;
        Ok(self.rows.iter().map(move |row| population.record(*row)))
    }
}

/// Gives `numbers` a length, or says that there is no memory for it.
///
/// # Errors
/// [`Error::Config`] naming the length.
pub fn resize(numbers: &mut Vec<u64>, length: u64) -> Result<()> {
    let too_many =
        || Error::config(format!("{length} draws at a time do not fit this process's memory; ask for fewer"));
    let length = usize::try_from(length).map_err(|_| too_many())?;
    numbers.try_reserve_exact(length.saturating_sub(numbers.len())).map_err(|_| too_many())?;
    numbers.resize(length, 0);
    Ok(())
}

/// Plans the reading of `records` until their payloads pass `most_bytes`; one always goes. It ends before a record whose
/// index entry is wrong, so that those before it are delivered first. Without a bound (`u64::MAX`) all records are wanted
/// together, as for a batch, and a run of some of them would be wrong: then one that is wrong is an error.
///
/// # Errors
/// What is wrong with the first record, or with any where there is no bound.
pub fn plan(caches: &CacheSet, records: impl Iterator<Item = Result<u64>>, most_bytes: u64) -> Result<Run> {
    // The processor fetches the entries of all records while the first ones are read: they lie anywhere in the index.
    let mut wrong = None;
    let located = records.map_while(|record| match record.and_then(|record| caches.locate(record)) {
        Ok((cache, place, sample)) => {
            cache.prefetch_entry(sample, None);
            Some((cache, place, sample))
        }
        Err(error) => {
            wrong = Some(error);
            None
        }
    });
    let located: Vec<_> = located.collect();
    let guard = caches.guard()?;
    let mut run = Run { records: Vec::with_capacity(located.len()), payload_bytes: 0 };
    let mut index: (usize, Option<Arc<OpenFile>>) = (0, None);
    for (number, (cache, place, sample)) in located.iter().enumerate() {
        if index.0 != *place {
            index = (*place, None);
        }
        // An index that is not held is open from its first entry on.
        if let (Some(file), Some((_, ahead, sample))) = (&index.1, located.get(number + ENTRIES_AHEAD))
            && ahead == place
        {
            cache.prefetch_entry(*sample, Some(file));
        }
        let entry = match cache.entry(&guard, *sample, &mut index.1) {
            Ok(entry) => entry,
            Err(error) if run.records.is_empty() || most_bytes == u64::MAX => return Err(error),
            Err(_) => return Ok(announced(caches, run)),
        };
        let bytes = run.payload_bytes.saturating_add(entry.payload_bytes);
        if bytes > most_bytes && !run.records.is_empty() {
            return Ok(announced(caches, run));
        }
        run.payload_bytes = bytes;
        run.records.push(PlannedRecord { cache: *place, sample: *sample, entry });
    }
    match wrong {
        Some(error) if run.records.is_empty() || most_bytes == u64::MAX => Err(error),
        _ => Ok(announced(caches, run)),
    }
}

/// A run that the system knows of, where that helps.
fn announced(caches: &CacheSet, run: Run) -> Run {
    announce(caches, &run.records);
    run
}
