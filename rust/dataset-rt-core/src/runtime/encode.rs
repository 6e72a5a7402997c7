//! Compresses and hashes batches of samples on any thread.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::format::{Codec, Compression, Encoder, xxh3_64, xxh3_128};
use crate::store::{CacheWriter, EncodedSample};

/// A sample as it came from its source.
#[derive(Debug)]
pub struct PendingSample<P> {
    /// The payload.
    pub payload: P,
    /// Where its metadata fields lie in [`SampleBatch::fields`].
    pub fields: Range<usize>,
}

/// Neighbouring samples of a source.
#[derive(Debug)]
pub struct SampleBatch<P> {
    /// The samples in order.
    pub samples: Vec<PendingSample<P>>,
    /// The metadata fields of all samples, in the content digest's encoding.
    pub fields: Vec<u8>,
    /// Payload bytes of all samples together.
    pub payload_bytes: u64,
}

/// What encoding adds to a batch: with it, the batch only has to be appended.
#[derive(Debug)]
pub struct EncodedBatch {
    records: Vec<Encoded>,
    /// The compressed records end to end.
    compressed: Vec<u8>,
}

#[derive(Debug)]
struct Encoded {
    codec: Codec,
    /// Where the record lies in the compressed bytes, unless it is stored as it came.
    compressed: Range<usize>,
    payload_hash: u128,
    stored_hash: u64,
}

/// Encoders that are reused from batch to batch, one for each thread that encodes at the same time.
pub struct Encoders {
    compression: Compression,
    idle: Mutex<Vec<Encoder>>,
}

impl fmt::Debug for Encoders {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Encoders").field("compression", &self.compression).finish_non_exhaustive()
    }
}

impl Encoders {
    /// Encoders for one compression.
    #[must_use]
    pub fn new(compression: Compression) -> Self {
        Self { compression, idle: Mutex::new(Vec::new()) }
    }

    /// Compresses and hashes a batch.
    ///
    /// # Errors
    /// What the compressor says.
    pub fn encode<P: AsRef<[u8]>>(&self, batch: &SampleBatch<P>) -> Result<EncodedBatch> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut encoder = match idle {
            Some(encoder) => encoder,
            None => Encoder::new(self.compression)?,
        };
        let mut compressed = Vec::new();
        let mut records = Vec::with_capacity(batch.samples.len());
        for sample in &batch.samples {
            let payload = sample.payload.as_ref();
            let payload_hash = xxh3_128(payload);
            let (codec, stored) = encoder.encode(payload)?;
            let stored_hash = xxh3_64(stored);
            let start = compressed.len();
            if codec != Codec::None {
                compressed.extend_from_slice(stored);
            }
            records.push(Encoded { codec, compressed: start..compressed.len(), payload_hash, stored_hash });
        }
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(encoder);
        Ok(EncodedBatch { records, compressed })
    }
}

impl EncodedBatch {
    /// Appends the samples of `batch`, which this was made from, to a cache.
    ///
    /// # Errors
    /// As [`CacheWriter::append`].
    pub fn append_to<P: AsRef<[u8]>>(&self, batch: &SampleBatch<P>, writer: &mut CacheWriter) -> Result<()> {
        for (sample, encoded) in batch.samples.iter().zip(&self.records) {
            let payload = sample.payload.as_ref();
            let stored = match encoded.codec {
                Codec::None => payload,
                _ => self.compressed.get(encoded.compressed.clone()).unwrap_or_default(),
            };
            writer.append(&EncodedSample {
                fields: batch.fields.get(sample.fields.clone()).unwrap_or_default(),
                payload_bytes: payload.len() as u64,
                payload_hash: encoded.payload_hash,
                codec: encoded.codec,
                stored,
                stored_hash: encoded.stored_hash,
            })?;
        }
        Ok(())
    }
}
