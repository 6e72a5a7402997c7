//! A source, a caller and a reader that the tests share.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use dataset_rt_core::format::{Codec, Column, Compression, Digest, Manifest, Value};
use dataset_rt_core::order::{Mode, Remainder, Window, World};
use dataset_rt_core::population::Population;
use dataset_rt_core::runtime::{
    BatchSlots, Outside, PendingSample, Pool, ReadAhead, ReadLimits, Runtime, SampleBatch, SampleFeed, VerifyObserver,
    WriteLimits, WriteObserver, Written, assemble, batch_schema, write_cache,
};
use dataset_rt_core::store::{Cache, CacheOptions, CacheSet, IoMode, RowTyper};
use dataset_rt_core::{Error, Position, Result};

/// One draw as it was delivered: cache, sample, payload.
pub type Row = (u64, u64, Vec<u8>);

pub const NAMES: [&str; 6] = ["label", "name", "score", "flag", "day", "time"];

/// The payload of a sample: of every length up to 300 bytes, none for some, half of them hard to compress.
pub fn payload(sample: u64) -> Vec<u8> {
    let length = if sample % 5 == 4 { 0 } else { usize::try_from(sample * 37 % 301).unwrap() };
    if sample.is_multiple_of(2) {
        format!("sample {sample}; ").bytes().cycle().take(length).collect()
    } else {
        let mut state = sample + 1;
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        (0..length).map(|_| byte()).collect()
    }
}

/// The metadata of a sample, with every kind of column.
pub fn values(sample: u64) -> Vec<Value> {
    let number = i64::try_from(sample).unwrap();
    vec![
        Value::Int64(number - 3),
        if sample.is_multiple_of(7) { Value::Null } else { Value::String(format!("é{sample}")) },
        // Floats, and integers among them: the first value decides the kind.
        match sample {
            _ if sample % 11 == 3 => Value::Float64(f64::NAN),
            _ if sample.is_multiple_of(10) => Value::Float64(f64::from(i32::try_from(sample).unwrap())),
            _ => Value::Int64(number),
        },
        Value::Boolean(sample.is_multiple_of(3)),
        Value::Date(i32::try_from(sample).unwrap()),
        Value::Datetime(number * 1_000_003),
    ]
}

/// A source whose samples are made by number.
pub struct Feed<M> {
    names: Vec<&'static str>,
    typer: RowTyper,
    make: M,
    next: u64,
}

impl<M: FnMut(u64) -> Result<Option<(Vec<u8>, Vec<Value>)>>> Feed<M> {
    pub fn new(names: &[&'static str], make: M) -> Self {
        Self { names: names.to_vec(), typer: RowTyper::new("test", None).unwrap(), make, next: 0 }
    }
}

impl<M: FnMut(u64) -> Result<Option<(Vec<u8>, Vec<Value>)>>> SampleFeed for Feed<M> {
    type Payload = Vec<u8>;

    fn pull(&mut self, most_samples: u64, most_bytes: u64) -> Result<Option<SampleBatch<Vec<u8>>>> {
        let mut batch = SampleBatch { samples: Vec::new(), fields: Vec::new(), payload_bytes: 0 };
        while (batch.samples.len() as u64) < most_samples && batch.payload_bytes < most_bytes {
            let Some((payload, values)) = (self.make)(self.next)? else { break };
            let start = batch.fields.len();
            self.typer.encode(self.next, &self.names, &values, &mut batch.fields)?;
            batch.payload_bytes += payload.len() as u64;
            batch.samples.push(PendingSample { payload, fields: start..batch.fields.len() });
            self.next += 1;
        }
        Ok(if batch.samples.is_empty() { None } else { Some(batch) })
    }

    fn columns(&self) -> Vec<Column> {
        self.typer.clone().finish()
    }
}

/// The source of the first `count` samples.
pub fn source(count: u64) -> impl SampleFeed {
    Feed::new(&NAMES, move |sample| Ok((sample < count).then(|| (payload(sample), values(sample)))))
}

/// A caller that never stops, or at the `stop_at`-th question whether to go on.
#[derive(Debug, Default)]
pub struct Caller {
    pub asked: u64,
    pub stop_at: Option<u64>,
    pub samples: u64,
    pub bytes: u64,
    pub waited: u64,
}

impl Caller {
    pub fn stopping_at(question: u64) -> Self {
        Self { stop_at: Some(question), ..Self::default() }
    }
}

impl Outside for Caller {
    fn run(&mut self, work: &mut (dyn FnMut() + Send)) -> Result<()> {
        work();
        self.asked += 1;
        if self.stop_at == Some(self.asked) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

impl WriteObserver for Caller {
    fn progress(&mut self, samples: u64, payload_bytes: u64) -> Result<()> {
        self.samples += samples;
        self.bytes += payload_bytes;
        Ok(())
    }

    fn waiting(&mut self, holder: &str) -> Result<()> {
        assert!(holder.contains("process"), "{holder}");
        self.waited += 1;
        Ok(())
    }
}

impl VerifyObserver for Caller {
    fn progress(&mut self, bytes: u64) -> Result<()> {
        self.bytes += bytes;
        Ok(())
    }
}

/// How a cache is written.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub codec: Codec,
    pub max_shard_bytes: u64,
    pub workers: usize,
    pub prefetch_size: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { codec: Codec::None, max_shard_bytes: 4_000, workers: 2, prefetch_size: 64 }
    }
}

impl Settings {
    pub fn options(&self, name: &str) -> CacheOptions {
        CacheOptions {
            source_name: name.to_owned(),
            attributes: BTreeMap::new(),
            compression: Compression::new(self.codec, None).unwrap(),
            max_shard_bytes: self.max_shard_bytes,
            validate: true,
        }
    }

    pub fn write(&self, root: &Path, name: &str, feed: &mut impl SampleFeed, caller: &mut Caller) -> Result<Written> {
        let runtime = Runtime::new(Some(self.workers)).unwrap();
        let limits = WriteLimits { prefetch_size: self.prefetch_size, prefetch_bytes: 1 << 20 };
        write_cache(&runtime, root, self.options(name), limits, feed, caller)
    }

    /// The folder of a cache of the first `count` samples.
    pub fn build(&self, root: &Path, name: &str, count: u64) -> PathBuf {
        let written = self.write(root, name, &mut source(count), &mut Caller::default()).unwrap();
        assert!(!written.reused);
        written.path
    }
}

/// Both ways to read files. On Linux, that is: elsewhere mapped files are not guarded, and both read by position.
pub const IO_MODES: [IoMode; 2] = [IoMode::Mapped, IoMode::Positioned];

pub fn open(paths: &[&Path]) -> Result<Arc<CacheSet>> {
    open_to_read(paths, IoMode::Auto)
}

pub fn open_to_read(paths: &[&Path], io: IoMode) -> Result<Arc<CacheSet>> {
    let caches: Result<Vec<_>> = paths.iter().map(|path| Ok(Arc::new(Cache::open(path, io)?))).collect();
    Ok(Arc::new(CacheSet::new(caches?)?))
}

pub fn whole(caches: &Arc<CacheSet>, mode: Mode) -> Arc<Population> {
    Arc::new(Population::whole(Arc::clone(caches), mode, 7).unwrap())
}

pub fn pool(workers: usize) -> Option<Arc<Pool>> {
    Runtime::new(Some(workers)).unwrap().pool()
}

/// A window of `count` draws from position 0 for one reader.
pub fn window(count: u64) -> Window {
    Window::deal(Position(0), count, World::new(0, 1, Remainder::Extend).unwrap()).unwrap()
}

/// Reads a whole window: the rows until its end or its first error, and that error.
pub fn drain(
    ahead: &mut ReadAhead<BatchSlots>,
    population: &Population,
    caller: &mut dyn Outside,
) -> (Vec<Row>, Option<Error>) {
    let schema = batch_schema(&population.caches().columns());
    let mut rows = Vec::new();
    loop {
        match ahead.next(&mut BatchSlots::for_run, caller) {
            Ok(Some((_, filled))) => {
                let batch = match assemble(population.caches(), &schema, filled) {
                    Ok(batch) => batch,
                    Err(error) => return (rows, Some(error)),
                };
                let cache_ids = batch["cache_id"].as_primitive::<UInt64Type>();
                let sample_ids = batch["sample_id"].as_primitive::<UInt64Type>();
                let data = batch["data"].as_binary::<i64>();
                rows.extend(
                    (0..batch.num_rows())
                        .map(|row| (cache_ids.value(row), sample_ids.value(row), data.value(row).to_vec())),
                );
            }
            Ok(None) => return (rows, None),
            Err(error) => return (rows, Some(error)),
        }
    }
}

/// Every sample of the caches in the order given.
pub fn read_all(caches: &Arc<CacheSet>, pool: Option<Arc<Pool>>) -> Result<Vec<Row>> {
    let population = whole(caches, Mode::Ordered);
    let count = population.rows();
    let limits = ReadLimits::samples(256, 1 << 20, true);
    let mut ahead = ReadAhead::new(Arc::clone(&population), window(count), count, limits, pool);
    match drain(&mut ahead, &population, &mut Caller::default()) {
        (rows, None) => Ok(rows),
        (_, Some(error)) => Err(error),
    }
}

/// Every file below a folder, by its path in it.
pub fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Checks that nothing but lock files, an empty building folder and the caches `names` is below `root`.
pub fn assert_only(root: &Path, names: &[&str]) {
    let mut found: Vec<String> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.retain(|name| name != ".building" && name != ".locks");
    found.sort();
    assert_eq!(found, names);
    if let Ok(mut building) = fs::read_dir(root.join(".building")) {
        assert!(building.next().is_none());
    }
}

/// Forks; 0 in the child, which must end with [`exit`].
#[expect(unsafe_code, reason = "forking has no safe interface")]
pub fn fork() -> i32 {
    // SAFETY: what a child of a process with threads may and may not do is what the callers test; it ends with _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    child
}

/// Ends a forked child at once, without the harness's own exit.
#[expect(unsafe_code, reason = "_exit has no safe interface")]
pub fn exit(right: bool) -> ! {
    // SAFETY: ends the process, whatever state it is in.
    unsafe { libc::_exit(i32::from(!right)) }
}

/// Waits for a forked child, and fails unless it succeeds within ten seconds.
#[expect(unsafe_code, reason = "a child that was forked by hand is waited for by hand")]
pub fn wait_for(child: i32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut status = 0;
        // SAFETY: asks about one child of this process, and writes to `status` alone.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            assert_eq!(status, 0, "the child failed");
            return;
        }
        if Instant::now() > deadline {
            // SAFETY: ends that child, which was not waited for yet, so that its number is nobody else's.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The manifest of a cache.
pub fn manifest(path: &Path) -> Manifest {
    let file = path.join("manifest.json");
    Manifest::parse(&fs::read(&file).unwrap(), &file).unwrap()
}

/// Forges a manifest that vouches for the files as they are, and for what `change` makes of it.
pub fn vouch(path: &Path, change: impl FnOnce(&mut Manifest)) {
    let mut forged = manifest(path);
    for (name, file) in &mut forged.files {
        let bytes = fs::read(path.join(name)).unwrap();
        (file.bytes, file.blake3) = (bytes.len() as u64, Digest::of(&bytes));
    }
    change(&mut forged);
    fs::write(path.join("manifest.json"), forged.to_bytes()).unwrap();
}
