//! The active table: which rows are sampled from, how they are numbered and what they are worth.

mod canonical;
mod compare;
mod digest;
mod first_table;
mod population_table;
mod population_weights;
mod stored_columns;
mod table;

use std::sync::Arc;

use arrow_array::{Float64Array, RecordBatch};
use arrow_schema::SchemaRef;

use crate::error::{Error, Result};
use crate::format::Digest;
use crate::identifier::SampleId;
use crate::order::{Mode, Sampler, Weights};
use crate::store::{CacheSet, PerProcess};
use canonical::{Renumbering, renumber};
use digest::{RowHasher, digest_of_rows};
use population_weights::PopulationWeights;
use table::{CheckedTable, check_table};

pub use first_table::{FirstTable, table_schema};
pub use population_table::population_table;

/// An immutable sampling population over opened caches, with the sampler that draws from it.
///
/// The rows of the *table* are numbered as the user sees them. The rows of the *population* are the same ones in the
/// numbering that draws refer to: the canonical order for the shuffled modes, the table's for the ordered one. Either
/// names a *record* of the caches.
#[derive(Debug)]
pub struct Population {
    caches: Arc<CacheSet>,
    rows: Rows,
    sampler: Sampler,
    digest: PerProcess<Digest>,
}

#[derive(Debug)]
enum Rows {
    /// Every sample once, with weight 1: first table row and first record of each cache, in the order given.
    Whole { starts: Vec<(u64, u64)> },
    /// An edited table.
    Table {
        /// Record of each population row.
        records: Vec<u64>,
        /// Population row of each table row, where the numberings differ.
        population_rows: Option<Vec<u32>>,
        /// Weight of each table row.
        weights: Float64Array,
    },
}

impl Population {
    /// All samples of the caches, each with weight 1. O(caches).
    ///
    /// # Errors
    /// As [`Sampler::new`].
    pub fn whole(caches: Arc<CacheSet>, mode: Mode, seed: u64) -> Result<Self> {
        let mut next_row = 0;
        let mut starts = Vec::new();
        for (cache, base) in caches.given() {
            starts.push((next_row, base));
            next_row += cache.samples();
        }
        let sampler = Sampler::new(mode, seed, Weights::equal(caches.records())?)?;
        Ok(Self { caches, rows: Rows::Whole { starts }, sampler, digest: PerProcess::new() })
    }

    /// The rows of an edited table, with the columns `cache_id`, `sample_id`, all stored ones and `weight` by name.
    /// O(n); reads all metadata of the caches to compare the stored columns.
    ///
    /// # Errors
    /// [`Error::Metadata`] naming the first row that breaks a rule; [`Error::Config`] for unequal weights where the
    /// mode draws without replacement.
    pub fn from_table(
        caches: Arc<CacheSet>,
        mode: Mode,
        seed: u64,
        schema: &SchemaRef,
        batches: &[RecordBatch],
    ) -> Result<Self> {
        let CheckedTable { records, weights } = check_table(&caches, schema, batches)?;
        let renumbering = match mode {
            Mode::Ordered => None,
            _ => renumber(&records, weights.values(), caches.records()),
        };
        let (records, population_rows) = match renumbering {
            None => (records, None),
            Some(Renumbering { records, population_rows }) => (records, Some(population_rows)),
        };
        let in_order = PopulationWeights::new(weights.values(), population_rows.as_deref());
        let sampler_weights = match mode {
            // Weights play no part in ordered reading.
            Mode::Ordered => Weights::equal(records.len() as u64)?,
            _ => Weights::build(records.len(), |row| in_order.get(row))?,
        };
        let sampler = Sampler::new(mode, seed, sampler_weights)?;
        let digest = PerProcess::new();
        digest.get_or_init(|| digest_of_rows(&caches, &records, &in_order));
        drop(in_order);
        let rows = Rows::Table { records, population_rows, weights };
        Ok(Self { caches, rows, sampler, digest })
    }

    /// A population as [`Population::parts`] took it apart in another process: records, and their weights unless all
    /// are equal, in the population's numbering. O(n).
    ///
    /// # Errors
    /// [`Error::Config`] for records that the caches do not have, or weights that cannot be.
    pub fn from_parts(
        caches: Arc<CacheSet>,
        mode: Mode,
        seed: u64,
        records: Vec<u64>,
        weights: Vec<f64>,
        digest: Digest,
    ) -> Result<Self> {
        if let Some(wrong) = records.iter().find(|record| **record >= caches.records()) {
            return Err(Error::config(format!("record must be in [0, {}), got {wrong}", caches.records())));
        }
        let weight = |row: usize| match weights.as_slice() {
            [one] => *one,
            weights => weights.get(row).copied().unwrap_or(f64::NAN),
        };
        let sampler_weights = match mode {
            Mode::Ordered => Weights::equal(records.len() as u64)?,
            _ => Weights::build(records.len(), weight)?,
        };
        let sampler = Sampler::new(mode, seed, sampler_weights)?;
        let weights: Float64Array = (0..records.len()).map(weight).collect::<Vec<f64>>().into();
        let rows = Rows::Table { records, population_rows: None, weights };
        let held = PerProcess::new();
        held.get_or_init(|| digest);
        Ok(Self { caches, rows, sampler, digest: held })
    }

    /// What [`Population::from_parts`] needs beside caches, mode and seed: `None` for a whole population, otherwise the
    /// records and the weights (a single one where all are equal) in the population's numbering.
    #[must_use]
    pub fn parts(&self) -> Option<(&[u64], Vec<f64>)> {
        let Rows::Table { records, population_rows, weights } = &self.rows else { return None };
        Some((records, PopulationWeights::new(weights.values(), population_rows.as_deref()).into_parts()))
    }

    /// The caches that the rows come from.
    #[must_use]
    pub fn caches(&self) -> &Arc<CacheSet> {
        &self.caches
    }

    /// What draws from the rows.
    #[must_use]
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// The number of rows, at least 1.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.sampler.rows()
    }

    /// Whether the rows are those of the first table.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self.rows, Rows::Whole { .. })
    }

    /// The record of a population row. O(1) for edited tables, O(log caches) otherwise.
    ///
    /// # Errors
    /// [`Error::Config`] where there is no such row.
    pub fn record(&self, row: u64) -> Result<u64> {
        let record = match &self.rows {
            Rows::Whole { starts } if self.sampler.mode() == Mode::Ordered => whole_record(starts, row),
            Rows::Whole { .. } => Some(row),
            Rows::Table { records, .. } => usize::try_from(row).ok().and_then(|row| records.get(row)).copied(),
        };
        record.filter(|_| row < self.rows()).ok_or_else(|| self.no_such_row(row))
    }

    /// The record of a table row.
    ///
    /// # Errors
    /// [`Error::Config`] where there is no such row.
    pub fn table_record(&self, row: u64) -> Result<u64> {
        if row >= self.rows() {
            return Err(self.no_such_row(row));
        }
        match &self.rows {
            Rows::Whole { starts } => whole_record(starts, row).ok_or_else(|| self.no_such_row(row)),
            Rows::Table { population_rows: None, .. } => self.record(row),
            Rows::Table { population_rows: Some(population_rows), .. } => {
                let place = usize::try_from(row).ok().and_then(|row| population_rows.get(row));
                self.record(place.map_or(u64::MAX, |row| u64::from(*row)))
            }
        }
    }

    /// BLAKE3 over (`cache_id`, `sample_id`, weight) of every row in the population's numbering. O(n) at its first use
    /// for a whole population; edited tables bring it along.
    pub fn digest(&self) -> Digest {
        if let Some(digest) = self.digest.inherited() {
            return *digest;
        }
        *self.digest.get_or_init(|| self.compute_digest())
    }

    fn compute_digest(&self) -> Digest {
        match &self.rows {
            Rows::Whole { .. } => {
                let in_order: Vec<_> = match self.sampler.mode() {
                    Mode::Ordered => self.caches.given().map(|(cache, _)| cache).collect(),
                    _ => self.caches.by_id().iter().collect(),
                };
                let mut rows = RowHasher::default();
                for cache in in_order {
                    for sample in 0..cache.samples() {
                        rows.add(cache.cache_id(), SampleId(sample), 1.0);
                    }
                }
                rows.finish()
            }
            Rows::Table { records, population_rows, weights } => {
                let in_order = PopulationWeights::new(weights.values(), population_rows.as_deref());
                digest_of_rows(&self.caches, records, &in_order)
            }
        }
    }

    fn no_such_row(&self, row: u64) -> Error {
        Error::config(format!("row must be in [0, {}), got {row}", self.rows()))
    }
}

fn whole_record(starts: &[(u64, u64)], row: u64) -> Option<u64> {
    let place = starts.partition_point(|(first, _)| *first <= row).checked_sub(1)?;
    starts.get(place).map(|(first, base)| base + (row - first))
}
