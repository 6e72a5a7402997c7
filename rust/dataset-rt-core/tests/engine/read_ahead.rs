//! Draws are delivered in order, whatever reads them, and errors stand where their samples do.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use dataset_rt_core::Error;
use dataset_rt_core::order::{Mode, Remainder, Window, World};
use dataset_rt_core::population::Population;
use dataset_rt_core::runtime::{BatchSlots, Drawer, ReadAhead, ReadLimits, Runtime};
use dataset_rt_core::store::{CacheSet, IoMode};
use dataset_rt_core::{Position, Result};

use crate::support::{
    Caller, Row, Settings, drain, exit, fork, open, open_to_read, payload, pool, tree, vouch, wait_for, whole, window,
};

const SAMPLES: u64 = 300;

fn cache(root: &Path) -> Arc<CacheSet> {
    open(&[&Settings::default().build(root, "train", SAMPLES)]).unwrap()
}

/// What the draws of a window must deliver, found one by one.
fn oracle(population: &Arc<Population>, window: &Window) -> Vec<Row> {
    let mut drawer = Drawer::new(Arc::clone(population));
    let caches = Arc::clone(population.caches());
    (0..window.count())
        .map(|place| {
            let record = drawer.records(window.position(place), 1, 1).unwrap().next().unwrap().unwrap();
            let (cache, _, sample) = caches.locate(record).unwrap();
            (cache.cache_id().0, sample.0, payload(sample.0))
        })
        .collect()
}

#[test]
fn draws_come_in_order_at_any_prefetch_and_number_of_threads() {
    let root = tempfile::tempdir().unwrap();
    let caches = cache(root.path());
    for mode in [Mode::Ordered, Mode::Replacement, Mode::Permutation] {
        let population = whole(&caches, mode);
        for (rank, size) in [(0, 1), (1, 3)] {
            let world = World::new(rank, size, Remainder::Uneven).unwrap();
            let window = Window::deal(Position(41), 500, world).unwrap();
            let expected = oracle(&population, &window);
            for workers in [1, 2, 5] {
                let pool = pool(workers);
                for (prefetch, bytes) in [(1, 1 << 20), (8, 1 << 20), (64, 1 << 20), (256, 1 << 20), (256, 1)] {
                    let limits = ReadLimits::samples(prefetch, bytes, true);
                    let count = window.count();
                    let mut ahead = ReadAhead::new(Arc::clone(&population), window, count, limits, pool.clone());
                    let (rows, error) = drain(&mut ahead, &population, &mut Caller::default());
                    assert!(error.is_none());
                    assert!(rows == expected, "{mode:?}, {workers} workers, prefetch {prefetch}");
                    assert!(ahead.next(&mut BatchSlots::for_run, &mut Caller::default()).unwrap().is_none());
                }
            }
        }
    }
}

#[test]
fn batches_have_their_size_but_for_the_last() {
    let root = tempfile::tempdir().unwrap();
    let caches = cache(root.path());
    let population = whole(&caches, Mode::Replacement);
    for (workers, size, expected) in [(1, 64, 5), (3, 64, 5), (3, 1, 300), (3, 1_000_000, 1), (3, u64::MAX, 1)] {
        let limits = ReadLimits::batches(size, 256, 1 << 20, true);
        let mut ahead = ReadAhead::new(Arc::clone(&population), window(SAMPLES), SAMPLES, limits, pool(workers));
        let (mut place, mut batches) = (0, 0);
        while let Some((first, run)) = ahead.next(&mut BatchSlots::for_run, &mut Caller::default()).unwrap() {
            let draws = run.run().records.len() as u64;
            assert_eq!((first, draws), (place, size.min(SAMPLES - place)));
            place += draws;
            batches += 1;
        }
        assert_eq!((place, batches), (SAMPLES, expected));
    }
}

/// Damages one byte of the record of `sample`, and gives a function that mends it.
fn damage(caches: &CacheSet, sample: u64) -> impl FnOnce() + use<> {
    let cache = &caches.by_id()[0];
    let entry = cache.entry(&caches.guard().unwrap(), dataset_rt_core::SampleId(sample), &mut None).unwrap();
    let shard = cache.shard_path(entry.shard);
    let bytes = fs::read(&shard).unwrap();
    let mut wrong = bytes.clone();
    wrong[usize::try_from(entry.offset).unwrap()] ^= 1;
    fs::write(&shard, wrong).unwrap();
    move || fs::write(&shard, bytes).unwrap()
}

#[test]
fn an_error_comes_after_all_samples_before_it_and_again_and_goes_when_mended() {
    let root = tempfile::tempdir().unwrap();
    let caches = cache(root.path());
    let population = whole(&caches, Mode::Ordered);
    let expected = oracle(&population, &window(SAMPLES));
    for workers in [1, 3] {
        let pool = pool(workers);
        for (prefetch, bytes) in [(1, 1 << 20), (8, 1 << 20), (64, 1 << 20), (256, 1 << 20), (64, 200)] {
            for sample in [0, 1, 7, 63, 130, 298] {
                let sample = if payload(sample).is_empty() { sample + 1 } else { sample };
                let mend = damage(&caches, sample);
                let limits = ReadLimits::samples(prefetch, bytes, true);
                let mut ahead = ReadAhead::new(Arc::clone(&population), window(SAMPLES), SAMPLES, limits, pool.clone());
                let (mut rows, error) = drain(&mut ahead, &population, &mut Caller::default());
                let context = format!("{workers} workers, prefetch {prefetch}, sample {sample}");
                assert_eq!(rows.len() as u64, sample, "{context}");
                let message = error.unwrap().to_string();
                for _ in 0..3 {
                    let again = ahead.next(&mut BatchSlots::for_run, &mut Caller::default()).unwrap_err();
                    assert!(matches!(again, Error::RecordCheck { sample: found, .. } if found == sample), "{context}");
                    assert_eq!(again.to_string(), message);
                }
                mend();
                let (rest, error) = drain(&mut ahead, &population, &mut Caller::default());
                assert!(error.is_none(), "{context}");
                rows.extend(rest);
                assert!(rows == expected, "{context}");
            }
        }
    }
}

#[test]
fn unchecked_reads_deliver_what_is_there() {
    let root = tempfile::tempdir().unwrap();
    let caches = cache(root.path());
    let population = whole(&caches, Mode::Ordered);
    let mend = damage(&caches, 1);
    let limits = ReadLimits::samples(8, 1 << 20, false);
    let mut ahead = ReadAhead::new(Arc::clone(&population), window(3), 3, limits, None);
    let (rows, error) = drain(&mut ahead, &population, &mut Caller::default());
    assert!(error.is_none());
    let mut wrong = payload(1);
    wrong[0] ^= 1;
    assert_eq!(rows[1].2, wrong);
    mend();
}

#[test]
fn a_wrong_index_entry_is_an_error_at_its_sample_and_for_its_whole_batch() {
    let root = tempfile::tempdir().unwrap();
    let path = Settings::default().build(root.path(), "train", SAMPLES);
    let file = path.join("index.bin");
    let mut index = fs::read(&file).unwrap();
    index[32 + 40 * 77 + 28] = 9;
    fs::write(&file, index).unwrap();
    // Otherwise the index as a whole is refused at the first entry.
    vouch(&path, |_| ());
    let caches = open(&[&path]).unwrap();
    let population = whole(&caches, Mode::Ordered);
    for workers in [1, 3] {
        for (limits, delivered) in [
            (ReadLimits::samples(256, 1 << 20, true), 77),
            (ReadLimits::samples(1, 1 << 20, true), 77),
            (ReadLimits::batches(10, 256, 1 << 20, true), 70),
        ] {
            let mut ahead = ReadAhead::new(Arc::clone(&population), window(SAMPLES), SAMPLES, limits, pool(workers));
            let (rows, error) = drain(&mut ahead, &population, &mut Caller::default());
            assert_eq!(rows.len(), delivered);
            assert!(matches!(error, Some(Error::IndexEntry { sample: 77, field: "codec", .. })));
            let again = ahead.next(&mut BatchSlots::for_run, &mut Caller::default()).unwrap_err();
            assert!(matches!(again, Error::IndexEntry { sample: 77, .. }));
        }
    }
}

#[test]
fn a_failed_batch_fails_again_and_those_before_it_are_delivered() {
    let root = tempfile::tempdir().unwrap();
    let caches = cache(root.path());
    let population = whole(&caches, Mode::Ordered);
    let mend = damage(&caches, 77);
    let limits = ReadLimits::batches(10, 256, 1 << 20, true);
    let mut ahead = ReadAhead::new(Arc::clone(&population), window(SAMPLES), SAMPLES, limits, pool(3));
    let (rows, error) = drain(&mut ahead, &population, &mut Caller::default());
    assert_eq!(rows.len(), 70);
    assert!(matches!(error, Some(Error::RecordCheck { sample: 77, .. })));
    let (rows, error) = drain(&mut ahead, &population, &mut Caller::default());
    assert_eq!(rows.len(), 0);
    assert!(matches!(error, Some(Error::RecordCheck { sample: 77, .. })));
    mend();
    let (rows, error) = drain(&mut ahead, &population, &mut Caller::default());
    assert_eq!((rows.len(), error.is_none()), (230, true));
}

#[test]
fn a_caller_that_stops_can_go_on_and_loses_nothing() {
    let root = tempfile::tempdir().unwrap();
    let caches = cache(root.path());
    let population = whole(&caches, Mode::Replacement);
    let expected = oracle(&population, &window(SAMPLES));
    for workers in [1, 3] {
        let limits = ReadLimits::samples(16, 1 << 20, true);
        let mut ahead = ReadAhead::new(Arc::clone(&population), window(SAMPLES), SAMPLES, limits, pool(workers));
        let mut rows = Vec::new();
        let mut stops = 0;
        loop {
            // It stops at every first question, goes on at the call after.
            let (some, error) = drain(&mut ahead, &population, &mut Caller::stopping_at(1));
            rows.extend(some);
            match error {
                Some(error) => assert!(matches!(error, Error::Interrupted)),
                None => break,
            }
            stops += 1;
            assert!(stops <= 2 * SAMPLES, "it never ends");
        }
        assert!(rows == expected, "{workers} workers");
        assert!(workers > 1 || stops > 0);
    }
}

#[test]
fn memory_that_is_refused_is_an_error_and_asked_for_again() {
    let root = tempfile::tempdir().unwrap();
    let caches = cache(root.path());
    let population = whole(&caches, Mode::Ordered);
    let limits = ReadLimits::samples(16, 1 << 20, true);
    let mut ahead = ReadAhead::new(Arc::clone(&population), window(SAMPLES), SAMPLES, limits, pool(2));
    let mut refuse = |_: &_| -> Result<BatchSlots> { Err(Error::config("no memory")) };
    for _ in 0..2 {
        let error = ahead.next(&mut refuse, &mut Caller::default()).unwrap_err();
        assert_eq!(error.to_string(), "no memory");
    }
    let (rows, error) = drain(&mut ahead, &population, &mut Caller::default());
    assert!(error.is_none());
    assert_eq!(rows, oracle(&population, &window(SAMPLES)));
}

#[test]
fn cancelling_ends_it_and_returns_only_what_a_thread_still_reads() {
    let root = tempfile::tempdir().unwrap();
    let caches = cache(root.path());
    let population = whole(&caches, Mode::Replacement);
    for round in 0..200 {
        let limits = ReadLimits::samples(64, 1 << 20, true);
        let mut ahead = ReadAhead::new(Arc::clone(&population), window(SAMPLES), SAMPLES, limits, pool(3));
        for _ in 0..round % 4 {
            ahead.next(&mut BatchSlots::for_run, &mut Caller::default()).unwrap().unwrap();
        }
        let leftovers = ahead.cancel();
        let deadline = Instant::now() + Duration::from_secs(10);
        for task in &leftovers {
            while !task.withdraw() {
                assert!(Instant::now() < deadline, "a cancelled read goes on");
                std::thread::yield_now();
            }
            assert!(task.take_done().is_none());
        }
        assert!(ahead.next(&mut BatchSlots::for_run, &mut Caller::default()).unwrap().is_none());
    }
}

#[test]
fn a_busy_pool_is_not_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let caches = cache(root.path());
    let population = whole(&caches, Mode::Permutation);
    let pool = pool(2).unwrap();
    let mut releases = Vec::new();
    let (started, begun) = channel();
    for _ in 0..pool.threads() {
        let (release, released) = channel::<()>();
        releases.push(release);
        let started = started.clone();
        pool.submit(Box::new(move |_| {
            started.send(()).unwrap();
            let _ = released.recv();
        }));
    }
    for _ in 0..pool.threads() {
        begun.recv().unwrap();
    }
    // Every thread is held, so all of this is read by the caller; it would hang for ever if it waited.
    let limits = ReadLimits::samples(64, 1 << 20, true);
    let mut ahead = ReadAhead::new(Arc::clone(&population), window(SAMPLES), SAMPLES, limits, Some(Arc::clone(&pool)));
    let (rows, error) = drain(&mut ahead, &population, &mut Caller::default());
    assert!(error.is_none());
    assert!(rows == oracle(&population, &window(SAMPLES)));
    drop(releases);
}

#[test]
fn a_job_that_panics_costs_no_thread() {
    let pool = pool(2).unwrap();
    for _ in 0..8 {
        pool.submit(Box::new(|_| std::panic::resume_unwind(Box::new("a job's own panic"))));
    }
    let (sender, receiver) = channel();
    pool.submit(Box::new(move |_| sender.send(7).unwrap()));
    assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Ok(7));
}

#[test]
fn two_readers_on_one_pool_both_advance() {
    let root = tempfile::tempdir().unwrap();
    let caches = cache(root.path());
    let population = whole(&caches, Mode::Replacement);
    let expected = oracle(&population, &window(SAMPLES));
    let pool = pool(2);
    let limits = ReadLimits::samples(8, 1 << 20, true);
    let reader = || ReadAhead::new(Arc::clone(&population), window(SAMPLES), SAMPLES, limits, pool.clone());
    let (mut one, mut two) = (reader(), reader());
    for _ in 0..3 {
        one.next(&mut BatchSlots::for_run, &mut Caller::default()).unwrap().unwrap();
    }
    let (rows, error) = drain(&mut two, &population, &mut Caller::default());
    assert!(error.is_none() && rows == expected);
    let (rows, error) = drain(&mut one, &population, &mut Caller::default());
    assert!(error.is_none() && expected.ends_with(&rows) && !rows.is_empty());
}

#[test]
fn a_closed_runtime_leaves_the_work_to_the_caller() {
    let runtime = Runtime::new(Some(2)).unwrap();
    assert_eq!(runtime.pool().unwrap().threads(), 2);
    runtime.close();
    assert!(runtime.pool().is_none());
    assert!(Runtime::new(Some(1)).unwrap().pool().is_none());
    assert!(matches!(Runtime::new(Some(0)), Err(Error::Config { .. })));
}

/// Runs `work` in a forked child, and fails unless it succeeds there within ten seconds.
fn in_child(work: impl FnOnce() -> bool) {
    let child = fork();
    if child == 0 {
        exit(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false));
    }
    wait_for(child);
}

#[test]
fn a_forked_child_goes_on_alone_and_the_parent_too() {
    let root = tempfile::tempdir().unwrap();
    let caches = cache(root.path());
    let population = whole(&caches, Mode::Replacement);
    let expected = oracle(&population, &window(SAMPLES));
    let pool = pool(3);
    for taken in [0, 1, 3] {
        let limits = ReadLimits::samples(64, 1 << 20, true);
        let mut ahead = ReadAhead::new(Arc::clone(&population), window(SAMPLES), SAMPLES, limits, pool.clone());
        let mut before = 0;
        for _ in 0..taken {
            let (_, run) = ahead.next(&mut BatchSlots::for_run, &mut Caller::default()).unwrap().unwrap();
            before += run.run().records.len();
        }
        in_child(|| {
            let (rows, error) = drain(&mut ahead, &population, &mut Caller::default());
            error.is_none() && rows == expected[before..]
        });
        let (rows, error) = drain(&mut ahead, &population, &mut Caller::default());
        assert!(error.is_none() && rows == expected[before..]);
    }
}

#[test]
fn a_forked_child_that_drops_a_runtime_waits_for_no_thread_of_its_parent() {
    let runtime = Runtime::new(Some(2)).unwrap();
    assert!(runtime.pool().is_some());
    let mut runtime = Some(runtime);
    in_child(|| {
        let inherited = runtime.take().unwrap();
        let started = inherited.pool().is_some();
        drop(inherited);
        started
    });
    assert_eq!(runtime.unwrap().pool().unwrap().threads(), 2);
}

/// Has the system forget what it holds of the files below a folder; they were written through to the disk before.
fn evict(folder: &Path) {
    for name in tree(folder).keys() {
        let file = fs::File::open(folder.join(name)).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

#[test]
fn runs_are_announced_until_all_is_in_memory_and_again_after_a_read_of_a_disk() {
    // On the disk of the checkout: a folder for temporary files may lie in memory.
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = Settings { max_shard_bytes: 1 << 20, ..Settings::default() }.build(root.path(), "train", SAMPLES);
    for (workers, io) in [(1, IoMode::Auto), (2, IoMode::Auto), (1, IoMode::Mapped), (1, IoMode::Positioned)] {
        evict(&path);
        let caches = open_to_read(&[&path], io).unwrap();
        let population = whole(&caches, Mode::Ordered);
        let limits = ReadLimits::samples(4, 1 << 20, true);
        let reader = || ReadAhead::new(Arc::clone(&population), window(SAMPLES), SAMPLES, limits, pool(workers));
        let mut ahead = reader();
        assert!(caches.temperature().is_cold());
        let (rows, error) = drain(&mut ahead, &population, &mut Caller::default());
        assert!(error.is_none());
        assert_eq!(rows, oracle(&population, &window(SAMPLES)));
        assert!(!caches.temperature().is_cold(), "{io:?}");
        if io == IoMode::Positioned {
            // What is mapped is not evicted.
            evict(&path);
            let mut ahead = reader();
            // The first payload is empty, and no read.
            for _ in 0..2 {
                ahead.next(&mut BatchSlots::for_run, &mut Caller::default()).unwrap().unwrap();
            }
            assert!(caches.temperature().is_cold(), "{io:?}");
            let (rows, error) = drain(&mut ahead, &population, &mut Caller::default());
            assert!(error.is_none());
            assert_eq!(rows, oracle(&population, &window(SAMPLES))[2..]);
            assert!(!caches.temperature().is_cold(), "{io:?}");
        }
    }
}
