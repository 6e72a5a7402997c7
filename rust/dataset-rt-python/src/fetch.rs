//! Random access: reads records now, in the calling thread.

use std::sync::Arc;

use dataset_rt_core::Result;
use dataset_rt_core::runtime::{
    BatchSlots, Filled, Run, SpareBuffers, Work, assemble, batch_schema, plan, read_in_pieces,
};
use dataset_rt_core::store::{PayloadSlots, RecordReader};
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use crate::errors::{exception, raised_or};
use crate::outside::WithoutGil;
use crate::sample::{CachedSample, Opened};
use crate::shared::Shared;
use crate::slots::BytesSlots;

/// How many samples are read between two looks at signals.
const RUN_DRAWS: usize = 256;

/// Reads records of opened caches.
pub struct Fetcher<'opened> {
    opened: &'opened Arc<Opened>,
    spare: &'opened Arc<SpareBuffers>,
    verify: bool,
}

impl<'opened> Fetcher<'opened> {
    pub fn new(shared: &'opened Shared) -> Self {
        Self { opened: &shared.opened, spare: &shared.spare, verify: shared.options.verify_reads }
    }

    pub fn sample(&self, py: Python<'_>, record: u64) -> PyResult<CachedSample> {
        let mut samples = self.samples(py, &[record])?;
        samples.pop().ok_or_else(|| exception(dataset_rt_core::Error::Internal { message: "no sample".to_owned() }))
    }

    pub fn samples(&self, py: Python<'_>, records: &[u64]) -> PyResult<Vec<CachedSample>> {
        let mut samples = Vec::with_capacity(records.len());
        let mut reader = RecordReader::default();
        for records in records.chunks(RUN_DRAWS) {
            let run = py.detach(|| self.plan(records)).map_err(exception)?;
            let work = Work::new(run, |run| BytesSlots::for_run(py, run)).map_err(exception)?;
            let (run, slots) = self.read(py, &mut reader, work)?.into_parts();
            samples.extend(
                run.records
                    .iter()
                    .zip(slots.into_objects())
                    .filter_map(|(record, data)| CachedSample::read(data, self.opened, record)),
            );
        }
        Ok(samples)
    }

    pub fn batch<'py>(&self, py: Python<'py>, records: &[u64]) -> PyResult<Bound<'py, PyAny>> {
        let run = py.detach(|| self.plan(records)).map_err(exception)?;
        let work = Work::new(run, |run| BatchSlots::from_spare(self.spare, run)).map_err(exception)?;
        let filled = self.read(py, &mut RecordReader::default(), work)?;
        let schema = batch_schema(&self.opened.caches.columns());
        let batch = py.detach(|| assemble(&self.opened.caches, &schema, filled)).map_err(exception)?;
        PyRecordBatch::new(batch).into_pyarrow(py)
    }

    /// Plans all of the records, whatever their size.
    fn plan(&self, records: &[u64]) -> Result<Run> {
        plan(&self.opened.caches, records.iter().map(|record| Ok(*record)), u64::MAX)
    }

    fn read<S: PayloadSlots>(&self, py: Python<'_>, reader: &mut RecordReader, work: Work<S>) -> PyResult<Filled<S>> {
        let mut outside = WithoutGil::new(py);
        let outcome = read_in_pieces(&self.opened.caches, work, self.verify, reader, &mut outside);
        match outcome.map_err(|stopped| raised_or(outside.raised, stopped.error))? {
            Ok(filled) => Ok(filled),
            Err(failed) => Err(exception(failed.0)),
        }
    }
}
