//! Several caches opened together, with their samples counted through.

use std::path::Path;
use std::sync::Arc;

use super::announce::Temperature;
use super::bus_guard::Guard;
use super::cache::Cache;
use crate::error::{Error, Result};
use crate::format::{Column, ColumnKind};
use crate::identifier::{CacheId, SampleId};

/// Opened caches with the same columns.
///
/// A *record* is a sample of one of them; records are numbered through all caches in ascending order of `cache_id`, so
/// that the numbers do not depend on the order in which the paths were given, and ascending record numbers are the
/// canonical order of the sampling population.
#[derive(Debug)]
pub struct CacheSet {
    by_id: Vec<Arc<Cache>>,
    /// Record number of each cache's first sample, and the number of records at the end.
    bases: Vec<u64>,
    /// The caches in the order given, as places in `by_id`.
    given: Vec<usize>,
    mapped: bool,
    temperature: Temperature,
}

impl CacheSet {
    /// Puts caches together, in the order given.
    ///
    /// # Errors
    /// [`Error::Config`] for no cache at all, for one cache twice and for two caches with one identity;
    /// [`Error::Metadata`] where the columns differ in names, order or kinds.
    pub fn new(caches: Vec<Arc<Cache>>) -> Result<Self> {
        let Some(first) = caches.first() else {
            return Err(Error::config("paths must name at least one cache, got none"));
        };
        for cache in &caches {
            check_columns(first, cache)?;
        }
        let mut order: Vec<(CacheId, usize)> =
            caches.iter().enumerate().map(|(place, cache)| (cache.cache_id(), place)).collect();
        order.sort_unstable();
        let mut by_id: Vec<Arc<Cache>> = Vec::with_capacity(caches.len());
        let mut bases = vec![0];
        let mut records = 0_u64;
        let mut given = vec![0; caches.len()];
        for (rank, (_, place)) in order.iter().enumerate() {
            let Some(cache) = caches.get(*place) else { continue };
            if let Some(previous) = by_id.last().filter(|previous| previous.cache_id() == cache.cache_id()) {
                return Err(one_identity_twice(previous, cache));
            }
            records = records
                .checked_add(cache.samples())
                .ok_or_else(|| Error::config("the caches hold more than 2^64 - 1 samples together"))?;
            bases.push(records);
            by_id.push(Arc::clone(cache));
            if let Some(slot) = given.get_mut(*place) {
                *slot = rank;
            }
        }
        let mapped = by_id.iter().any(|cache| cache.is_mapped());
        Ok(Self { by_id, bases, given, mapped, temperature: Temperature::default() })
    }

    /// The caches in ascending order of identity.
    #[must_use]
    pub fn by_id(&self) -> &[Arc<Cache>] {
        &self.by_id
    }

    /// What reads in this thread need, for a run of them: the guard of mapped files, if any cache is mapped.
    ///
    /// # Errors
    /// [`Error::Io`] where the system refuses the guard's handler.
    pub fn guard(&self) -> Result<Guard> {
        if self.mapped { Guard::arm() } else { Ok(Guard::unarmed()) }
    }

    /// Whether what is read lies in memory.
    #[must_use]
    pub fn temperature(&self) -> &Temperature {
        &self.temperature
    }

    /// The caches in the order given, each with the record number of its first sample.
    pub fn given(&self) -> impl Iterator<Item = (&Arc<Cache>, u64)> {
        self.given.iter().filter_map(|place| Some((self.by_id.get(*place)?, *self.bases.get(*place)?)))
    }

    /// The paths in the order given.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.given().map(|(cache, _)| cache.path())
    }

    /// The number of records.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.bases.last().copied().unwrap_or_default()
    }

    /// The stored columns, which all caches share; `has_nulls` where any of them holds nulls.
    #[must_use]
    pub fn columns(&self) -> Vec<Column> {
        let mut columns = self.by_id.first().map(|cache| cache.manifest().columns.clone()).unwrap_or_default();
        for cache in self.by_id.iter().skip(1) {
            for (column, other) in columns.iter_mut().zip(&cache.manifest().columns) {
                column.has_nulls |= other.has_nulls;
            }
        }
        columns
    }

    /// The cache of a record, as its place in [`CacheSet::by_id`], and its sample. O(log caches).
    ///
    /// # Errors
    /// [`Error::Config`] where there is no such record.
    pub fn locate(&self, record: u64) -> Result<(&Arc<Cache>, usize, SampleId)> {
        let after = if self.by_id.len() == 1 { 1 } else { self.bases.partition_point(|base| *base <= record) };
        let place = after.saturating_sub(1);
        match (self.by_id.get(place), self.bases.get(place), self.bases.get(after)) {
            (Some(cache), Some(base), Some(end)) if record < *end => Ok((cache, place, SampleId(record - base))),
            _ => Err(Error::config(format!("record must be in [0, {}), got {record}", self.records()))),
        }
    }

    /// The cache with this identity and the record number of its first sample. O(log caches).
    #[must_use]
    pub fn find(&self, cache_id: CacheId) -> Option<(&Arc<Cache>, u64)> {
        let place = self.by_id.binary_search_by_key(&cache_id, |cache| cache.cache_id()).ok()?;
        Some((self.by_id.get(place)?, *self.bases.get(place)?))
    }

    /// The record of a sample.
    ///
    /// # Errors
    /// [`Error::Config`] naming the identity that no cache of the set has.
    pub fn record(&self, cache_id: CacheId, sample: SampleId) -> Result<u64> {
        let Some((cache, base)) = self.find(cache_id) else {
            let known: Vec<String> = self.by_id.iter().map(|cache| cache.cache_id().0.to_string()).collect();
            let (found, known) = (cache_id.0, known.join(", "));
            return Err(Error::config(format!("cache_id must be one of {known}, got {found}")));
        };
        if sample.0 < cache.samples() {
            Ok(base + sample.0)
        } else {
            Err(Error::config(format!("sample_id must be in [0, {}), got {sample}", cache.samples())))
        }
    }
}

fn check_columns(first: &Cache, other: &Cache) -> Result<()> {
    let described = |cache: &Cache| -> Vec<(String, ColumnKind)> {
        cache.manifest().columns.iter().map(|column| (column.name.clone(), column.kind)).collect()
    };
    let (expected, found) = (described(first), described(other));
    if expected == found {
        return Ok(());
    }
    let list = |columns: &[(String, ColumnKind)]| {
        let columns: Vec<String> = columns.iter().map(|(name, kind)| format!("{name}: {}", kind.name())).collect();
        format!("[{}]", columns.join(", "))
    };
    Err(Error::metadata(format!(
        "caches that are opened together must have the same columns in the same order: {} has {}, {} has {}; open them \
         separately, or give their sources one metadata_schema and write them again",
        first.path().display(),
        list(&expected),
        other.path().display(),
        list(&found),
    )))
}

fn one_identity_twice(first: &Cache, second: &Cache) -> Error {
    let (cache_id, one, two) = (first.cache_id().0, first.given_path().display(), second.given_path().display());
    if first.path() == second.path() {
        Error::config(format!("paths must name each cache once, got {one} and {two}, which are the same folder"))
    } else {
        Error::config(format!(
            "caches that are opened together must differ in content or name: {one} and {two} both have cache_id \
             {cache_id}; open one of them"
        ))
    }
}
