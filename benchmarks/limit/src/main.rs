//! How fast records can be copied at all: bare loops over one file of records of one size.
//!
//! `limit copy|pread ordered|shuffled FILE SIZE THREADS` prints records a second. `copy` copies out of a mapping,
//! `pread` asks the system for each record. Nothing is checked, stored or handed on: what a reader adds costs extra.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use memmap2::Mmap;

/// Bytes that a thread copies into before it begins again: as much as a reader keeps in flight.
const RING_BYTES: usize = 1 << 20;
/// An epoch is repeated until this much time has passed, so that small files give a figure too.
const AT_LEAST: Duration = Duration::from_millis(300);

/// How records are fetched.
enum Source {
    /// Copied out of a mapping.
    Mapped(Mmap),
    /// Read by one system call each.
    Positioned(File),
}

impl Source {
    /// Opens a file by the way that the word names.
    fn open(way: &str, file: File) -> Result<Self, Box<dyn Error>> {
        match way {
            // SAFETY: nobody changes the file while a benchmark reads it.
            #[expect(unsafe_code, reason = "a mapping is what is measured")]
            "copy" => Ok(Self::Mapped(unsafe { Mmap::map(&file)? })),
            "pread" => Ok(Self::Positioned(file)),
            other => Err(format!("the way must be copy or pread, got {other}").into()),
        }
    }

    /// Fills `target` with the record that begins at `offset`.
    fn fetch(&self, offset: usize, target: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Mapped(mapping) => {
                let record = mapping.get(offset..offset + target.len());
                target.copy_from_slice(record.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            Self::Positioned(file) => file.read_exact_at(target, offset as u64),
        }
    }
}

/// Fetches the records at these offsets, one after another.
fn fetch_all(source: &Source, offsets: &[usize], size: usize) -> io::Result<()> {
    let mut ring = vec![0; size * (RING_BYTES / size).max(1)];
    for batch in offsets.chunks(ring.len() / size) {
        for (offset, target) in batch.iter().zip(ring.chunks_exact_mut(size)) {
            source.fetch(*offset, target)?;
        }
        black_box(&ring);
    }
    Ok(())
}

/// One epoch by several threads, each with its share of the offsets.
fn epoch(source: &Source, offsets: &[usize], size: usize, threads: usize) -> io::Result<()> {
    std::thread::scope(|scope| {
        let shares = offsets.chunks(offsets.len().div_ceil(threads));
        let running: Vec<_> = shares.map(|share| scope.spawn(move || fetch_all(source, share, size))).collect();
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a thread panicked"))?)
    })
}

/// The `SplitMix64` generator: enough to draw record numbers.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Offsets of `count` records, in order or drawn with replacement.
fn offsets(order: &str, count: usize, size: usize) -> Result<Vec<usize>, Box<dyn Error>> {
    let mut state = 1;
    match order {
        "ordered" => Ok((0..count).map(|number| number * size).collect()),
        "shuffled" => (0..count).map(|_| Ok(usize::try_from(draw(&mut state) % count as u64)? * size)).collect(),
        other => Err(format!("the order must be ordered or shuffled, got {other}").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [way, order, path, size, threads] = arguments.as_slice() else {
        return Err("arguments: copy|pread ordered|shuffled FILE SIZE THREADS".into());
    };
    let (size, threads) = (size.parse::<usize>()?, threads.parse::<usize>()?);
    let file = File::open(path)?;
    let count = usize::try_from(file.metadata()?.len())?.checked_div(size).unwrap_or(0);
    if count == 0 || threads == 0 {
        return Err(format!("at least one record and one thread are needed, got {count} and {threads}").into());
    }
    let offsets = offsets(order, count, size)?;
    let source = Source::open(way, file)?;
    // Not counted: the mapping's pages are looked up for the first time.
    epoch(&source, &offsets, size, threads)?;
    let begun = Instant::now();
    let mut records = 0;
    while begun.elapsed() < AT_LEAST {
        epoch(&source, &offsets, size, threads)?;
        records += count;
    }
    println!("{}", records as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}
