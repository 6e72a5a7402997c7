//! A write that fails leaves nothing behind, and several at once make one cache.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dataset_rt_core::format::{Codec, Value};
use dataset_rt_core::runtime::find_published;
use dataset_rt_core::store::{Attempt, BuildingFolder, NameLock};
use dataset_rt_core::{Error, Result};

use crate::support::{
    Caller, Feed, NAMES, Settings, assert_only, exit, fork, open, payload, pool, read_all, source, tree, values,
    wait_for,
};

const SAMPLES: u64 = 400;

fn write(settings: &Settings, root: &Path, caller: &mut Caller) -> Result<bool> {
    Ok(settings.write(root, "train", &mut source(SAMPLES), caller)?.reused)
}

fn every_setting() -> impl Iterator<Item = Settings> {
    let codecs = [Codec::None, Codec::Zstd];
    codecs.into_iter().flat_map(|codec| {
        [(1, 64), (3, 64), (3, 2)].map(|(workers, prefetch_size)| Settings {
            codec,
            workers,
            prefetch_size,
            ..Settings::default()
        })
    })
}

#[test]
fn a_source_that_fails_leaves_nothing_and_can_be_written_again() {
    for settings in every_setting() {
        for failing in [0, 1, 70, SAMPLES - 1, SAMPLES] {
            let root = tempfile::tempdir().unwrap();
            let mut feed = Feed::new(&NAMES, |sample| {
                if sample == failing {
                    Err(Error::config("the source broke"))
                } else {
                    Ok(Some((payload(sample), values(sample))))
                }
            });
            let error = settings.write(root.path(), "train", &mut feed, &mut Caller::default()).unwrap_err();
            assert_eq!(error.to_string(), "the source broke");
            assert_only(root.path(), &[]);
            assert!(find_published(root.path(), "train").unwrap().is_none());
            assert!(!write(&settings, root.path(), &mut Caller::default()).unwrap());
            assert_only(root.path(), &["train"]);
        }
    }
}

#[test]
fn a_refused_sample_is_named_and_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let mut feed = Feed::new(&["label"], |sample| {
        let value = if sample == 130 { Value::String("x".to_owned()) } else { Value::Int64(1) };
        Ok((sample < SAMPLES).then(|| (payload(sample), vec![value])))
    });
    let error = Settings::default().write(root.path(), "train", &mut feed, &mut Caller::default()).unwrap_err();
    assert!(matches!(error, Error::Source { sample: Some(130), .. }), "{error}");
    assert_only(root.path(), &[]);
}

#[test]
fn a_source_without_samples_is_an_error_and_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let error = Settings::default().write(root.path(), "train", &mut source(0), &mut Caller::default()).unwrap_err();
    assert!(matches!(error, Error::Source { .. }), "{error}");
    assert_only(root.path(), &[]);
}

#[test]
fn names_that_cannot_be_are_refused_before_anything_is_made() {
    let root = tempfile::tempdir().unwrap();
    for name in ["", ".hidden", "a/b", "a\\b", "a.", "a ", "..", "e\u{301}", &"x".repeat(201)] {
        let result = Settings::default().write(root.path(), name, &mut source(3), &mut Caller::default());
        assert!(matches!(result, Err(Error::Config { .. })), "{name:?}");
    }
    assert!(fs::read_dir(root.path()).unwrap().next().is_none());
}

#[test]
fn a_caller_that_stops_at_any_question_leaves_nothing_or_a_whole_cache() {
    for settings in every_setting() {
        let mut stopped = 0;
        for question in 1.. {
            let root = tempfile::tempdir().unwrap();
            let mut caller = Caller::stopping_at(question);
            match write(&settings, root.path(), &mut caller) {
                Ok(reused) => {
                    assert!(!reused && caller.asked < question);
                    break;
                }
                Err(error) => assert!(matches!(error, Error::Interrupted), "{error}"),
            }
            stopped += 1;
            let whole = root.path().join("train").exists();
            assert_only(root.path(), if whole { &["train"] } else { &[] });
            // A second try succeeds, with the cache that was published before the caller stopped or with a new one.
            assert_eq!(write(&settings, root.path(), &mut Caller::default()).unwrap(), whole);
            let caches = open(&[&root.path().join("train")]).unwrap();
            assert_eq!(read_all(&caches, None).unwrap().len() as u64, SAMPLES);
        }
        // At least the shard, the index, the metadata, the manifest and the publishing are asked about.
        assert!(stopped >= 5, "{stopped}");
    }
}

#[test]
fn something_else_in_the_caches_place_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("train")).unwrap();
    fs::write(root.path().join("train/notes.txt"), b"mine").unwrap();
    fs::write(root.path().join("file"), b"mine").unwrap();
    std::os::unix::fs::symlink("nowhere", root.path().join("link")).unwrap();
    for name in ["train", "file", "link"] {
        let error = Settings::default().write(root.path(), name, &mut source(3), &mut Caller::default()).unwrap_err();
        assert!(matches!(&error, Error::CacheNotFound { path, .. } if path.ends_with(name)), "{error}");
    }
    assert_only(root.path(), &["file", "link", "train"]);
    assert_eq!(fs::read(root.path().join("train/notes.txt")).unwrap(), b"mine");
}

#[test]
fn what_appears_in_the_caches_place_meanwhile_is_not_replaced() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("train");
    let mut feed = Feed::new(&[], |sample| {
        if sample == 5 {
            fs::create_dir(&place).unwrap();
        }
        Ok((sample < 10).then(|| (vec![1], vec![])))
    });
    let error = Settings::default().write(root.path(), "train", &mut feed, &mut Caller::default()).unwrap_err();
    assert!(matches!(error, Error::CacheNotFound { .. }), "{error}");
    assert_only(root.path(), &["train"]);
}

#[test]
fn the_loser_of_the_rename_takes_the_winners_cache() {
    // As where a file system does not lock: the winner publishes while the loser builds.
    let root = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let winner = Settings::default().build(elsewhere.path(), "train", 10);
    let mut feed = Feed::new(&NAMES, |sample| {
        if sample == 5 {
            fs::rename(&winner, root.path().join("train")).unwrap();
        }
        Ok((sample < 10).then(|| (payload(sample), values(sample))))
    });
    let written = Settings::default().write(root.path(), "train", &mut feed, &mut Caller::default()).unwrap();
    assert!(written.reused);
    assert_only(root.path(), &["train"]);
    assert_eq!(read_all(&open(&[&written.path]).unwrap(), None).unwrap().len(), 10);
}

#[test]
fn threads_that_race_for_one_name_make_one_cache() {
    let root = tempfile::tempdir().unwrap();
    let (written, pulled) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut feed = Feed::new(&NAMES, |sample| {
                    pulled.fetch_add(usize::from(sample < SAMPLES), Ordering::Relaxed);
                    Ok((sample < SAMPLES).then(|| (payload(sample), values(sample))))
                });
                let done = Settings::default().write(root.path(), "train", &mut feed, &mut Caller::default()).unwrap();
                written.fetch_add(usize::from(!done.reused), Ordering::Relaxed);
            });
        }
    });
    assert_eq!(written.into_inner(), 1);
    assert_eq!(pulled.into_inner() as u64, SAMPLES);
    assert_only(root.path(), &["train"]);
}

#[test]
fn a_wait_for_another_writer_says_for_whom_and_can_be_stopped() {
    let root = tempfile::tempdir().unwrap();
    // Taken by another thread: a thread that waits for itself is refused.
    let taken = thread::scope(|scope| scope.spawn(|| NameLock::attempt(root.path(), "train").unwrap()).join().unwrap());
    let Attempt::Held(lock) = taken else { panic!("the lock is free") };
    // The first question comes after the sweep, then one for each look at the lock.
    let mut caller = Caller::stopping_at(4);
    let error = write(&Settings::default(), root.path(), &mut caller).unwrap_err();
    assert!(matches!(error, Error::Interrupted));
    assert_eq!(caller.waited, 3);
    drop(lock);
    assert!(!write(&Settings::default(), root.path(), &mut Caller::default()).unwrap());
}

#[test]
fn a_writer_that_waited_for_one_that_died_sweeps_what_it_left() {
    let root = tempfile::tempdir().unwrap();
    let Attempt::Held(lock) = NameLock::attempt(root.path(), "train").unwrap() else { panic!("the lock is free") };
    // What a killed process leaves: its folder stays, its lock goes.
    let building = BuildingFolder::create(root.path(), "train").unwrap();
    fs::write(building.path().join("index.bin"), b"half").unwrap();
    std::mem::forget(building);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut caller = Caller::default();
            let reused = write(&Settings::default(), root.path(), &mut caller).unwrap();
            (reused, caller.waited)
        });
        thread::sleep(Duration::from_millis(200));
        drop(lock);
        let (reused, waited) = waiting.join().unwrap();
        assert!(!reused && waited > 0);
    });
    assert_only(root.path(), &["train"]);
}

/// Where the processes that the tests below start are to write.
const ROOT: &str = "DATASET_RT_TEST_ROOT";

/// Where such a process names the child that its source forks.
const CHILD: &str = "DATASET_RT_TEST_CHILD";

/// Not a test by itself: what a process does that [`process`] started.
#[test]
fn a_started_process_writes() {
    let Some(root) = env::var_os(ROOT) else { return };
    let child_file = env::var_os(CHILD);
    let mut feed = Feed::new(&NAMES, |sample| {
        thread::sleep(Duration::from_micros(200));
        if let Some(file) = child_file.as_ref().filter(|_| sample == 100) {
            let child = fork();
            if child == 0 {
                // A worker of the source, which outlives its writer.
                thread::sleep(Duration::from_secs(30));
                exit(true);
            }
            fs::write(file, b"forked").unwrap();
            thread::sleep(Duration::from_secs(30));
        }
        Ok((sample < SAMPLES).then(|| (payload(sample), values(sample))))
    });
    Settings::default().write(Path::new(&root), "train", &mut feed, &mut Caller::default()).unwrap();
}

fn process(root: &Path) -> Child {
    command(root).spawn().unwrap()
}

fn command(root: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "write_failures::a_started_process_writes"])
        .env(ROOT, root)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

#[test]
fn a_child_that_outlives_its_killed_writer_keeps_no_lock() {
    let root = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("child");
    let mut killed = command(root.path()).env(CHILD, &file).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !file.exists() {
        assert!(Instant::now() < deadline, "the process never forks");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(matches!(NameLock::attempt(root.path(), "train").unwrap(), Attempt::Busy { .. }));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut caller = Caller::default();
    assert!(!write(&Settings::default(), root.path(), &mut caller).unwrap());
    assert_eq!(caller.waited, 0);
    assert_only(root.path(), &["train"]);
}

#[test]
fn a_child_that_the_source_forked_and_that_fails_hangs_not_and_harms_nothing() {
    for workers in [1, 3] {
        let root = tempfile::tempdir().unwrap();
        let (mut children, parent) = (Vec::new(), std::process::id());
        let mut feed = Feed::new(&NAMES, |sample| {
            if sample % 100 == 50 {
                let child = fork();
                if child == 0 {
                    return Err(Error::config("the child broke"));
                }
                children.push(child);
            }
            Ok((sample < SAMPLES).then(|| (payload(sample), values(sample))))
        });
        let settings = Settings { workers, ..Settings::default() };
        let result = settings.write(root.path(), "train", &mut feed, &mut Caller::default());
        if std::process::id() != parent {
            exit(result.is_err());
        }
        assert!(!result.unwrap().reused);
        assert_eq!(children.len(), 4);
        children.into_iter().for_each(wait_for);
        assert_only(root.path(), &["train"]);
        let caches = open(&[&root.path().join("train")]).unwrap();
        assert_eq!(read_all(&caches, None).unwrap().len() as u64, SAMPLES);
    }
}

#[test]
fn processes_that_race_for_one_name_all_succeed_with_one_cache() {
    let root = tempfile::tempdir().unwrap();
    let processes: Vec<Child> = (0..8).map(|_| process(root.path())).collect();
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    assert_only(root.path(), &["train"]);
    let elsewhere = tempfile::tempdir().unwrap();
    let alone = Settings::default().build(elsewhere.path(), "train", SAMPLES);
    assert!(tree(&root.path().join("train")) == tree(&alone));
}

#[test]
fn a_killed_writer_leaves_no_cache_or_a_whole_one_and_the_next_cleans_up() {
    let (mut whole, mut none) = (0, 0);
    for round in 0..30_u64 {
        let root = tempfile::tempdir().unwrap();
        let mut killed = process(root.path());
        // From before the folder is made until after the rename.
        let deadline = Instant::now() + Duration::from_millis(5 + round * 6);
        while Instant::now() < deadline && !root.path().join("train").exists() {
            thread::sleep(Duration::from_millis(1));
        }
        killed.kill().unwrap();
        killed.wait().unwrap();
        let path = root.path().join("train");
        if path.exists() {
            whole += 1;
            assert_eq!(read_all(&open(&[&path]).unwrap(), None).unwrap().len() as u64, SAMPLES);
        } else {
            none += 1;
        }
        write(&Settings::default(), root.path(), &mut Caller::default()).unwrap();
        assert_only(root.path(), &["train"]);
        assert_eq!(read_all(&open(&[&path]).unwrap(), pool(2)).unwrap().len() as u64, SAMPLES);
    }
    assert!(none > 0, "no process was killed in time; {whole} were done");
}
