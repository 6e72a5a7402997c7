//! Which rows a population has, how they are numbered, and which tables are refused.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, LargeStringArray, RecordBatch, StringArray, UInt64Array,
};
use dataset_rt_core::format::{Digest, Value};
use dataset_rt_core::order::{Mode, PassCache};
use dataset_rt_core::population::{FirstTable, Population, population_table};
use dataset_rt_core::store::CacheSet;
use dataset_rt_core::{Error, Position, Result};

use crate::support::{Caller, Feed, Settings, open, whole};

const MODES: [Mode; 3] = [Mode::Ordered, Mode::Replacement, Mode::Permutation];

/// Two caches, of 5 and 7 samples, with an integer and a string column; the larger identity is given first.
fn caches(root: &Path) -> Arc<CacheSet> {
    let mut paths = Vec::new();
    for (name, count) in [("one", 5), ("two", 7)] {
        let mut feed = Feed::new(&["label", "name"], move |sample| {
            let name = if sample == 1 { Value::Null } else { Value::String(format!("{name} {sample}")) };
            Ok((sample < count).then(|| (vec![], vec![Value::Int64(i64::try_from(sample).unwrap()), name])))
        });
        paths.push(Settings::default().write(root, name, &mut feed, &mut Caller::default()).unwrap().path);
    }
    let mut set = open(&[&paths[0], &paths[1]]).unwrap();
    if set.given().next().unwrap().1 == 0 {
        set = open(&[&paths[1], &paths[0]]).unwrap();
    }
    assert!(set.given().next().unwrap().1 > 0);
    set
}

/// A row of a table: cache by its place in the order of identities, sample, weight.
type Row = (usize, u64, f64);

fn identity(caches: &CacheSet, place: usize) -> u64 {
    caches.by_id()[place].cache_id().0
}

fn stored_name(caches: &CacheSet, row: &Row) -> Option<String> {
    let name = &caches.by_id()[row.0].manifest().source_name;
    (row.1 != 1).then(|| format!("{name} {}", row.1))
}

/// A table's columns by name.
type Columns = Vec<(&'static str, ArrayRef)>;

fn columns(caches: &CacheSet, rows: &[Row]) -> Columns {
    let labels = rows.iter().map(|row| i64::try_from(row.1).unwrap());
    vec![
        ("cache_id", Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| identity(caches, row.0))))),
        ("sample_id", Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.1)))),
        ("label", Arc::new(Int64Array::from_iter_values(labels))),
        ("name", Arc::new(rows.iter().map(|row| stored_name(caches, row)).collect::<LargeStringArray>())),
        ("weight", Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| row.2)))),
    ]
}

fn from_columns(caches: &Arc<CacheSet>, mode: Mode, columns: Vec<(&str, ArrayRef)>) -> Result<Population> {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)));
    let batch = batch.unwrap();
    // In two pieces, as a table of several chunks comes.
    let half = batch.num_rows() / 2;
    let pieces = [batch.slice(0, half), batch.slice(half, batch.num_rows() - half)];
    Population::from_table(Arc::clone(caches), mode, 7, &batch.schema(), &pieces)
}

fn table(caches: &Arc<CacheSet>, mode: Mode, rows: &[Row]) -> Population {
    from_columns(caches, mode, columns(caches, rows)).unwrap()
}

fn record(caches: &CacheSet, row: &Row) -> u64 {
    caches.record(caches.by_id()[row.0].cache_id(), dataset_rt_core::SampleId(row.1)).unwrap()
}

fn records(population: &Population) -> Vec<u64> {
    (0..population.rows()).map(|row| population.record(row).unwrap()).collect()
}

fn draws(population: &Population) -> Vec<u64> {
    let mut cache = PassCache::new();
    let row = |k| population.sampler().row(Position(k), &mut cache);
    (0..200).map(row).collect::<Vec<_>>().into_iter().map(|row| population.record(row).unwrap()).collect()
}

/// The digest, written down once more.
fn digest_of(caches: &CacheSet, rows: &[Row]) -> Digest {
    let bytes: Vec<u8> = rows
        .iter()
        .flat_map(|row| [identity(caches, row.0), row.1, row.2.to_bits()])
        .flat_map(u64::to_le_bytes)
        .collect();
    Digest::of(&bytes)
}

fn all_rows() -> Vec<Row> {
    let count = |place: usize, count: u64| (0..count).map(move |sample| (place, sample, 1.0));
    count(0, 5).chain(count(1, 7)).collect()
}

#[test]
fn a_whole_population_has_every_sample_in_the_order_of_its_mode() {
    let root = tempfile::tempdir().unwrap();
    let caches = caches(root.path());
    let sizes: Vec<u64> = caches.by_id().iter().map(|cache| cache.samples()).collect();
    let rows = |place: usize| (0..sizes[place]).map(move |sample| (place, sample, 1.0));
    let canonical: Vec<Row> = rows(0).chain(rows(1)).collect();
    let given: Vec<Row> = rows(1).chain(rows(0)).collect();
    for mode in MODES {
        let population = whole(&caches, mode);
        let expected = if mode == Mode::Ordered { &given } else { &canonical };
        let expected_records: Vec<u64> = expected.iter().map(|row| record(&caches, row)).collect();
        assert_eq!(records(&population), expected_records, "{mode:?}");
        assert_eq!(population.digest(), digest_of(&caches, expected), "{mode:?}");
        assert!(population.is_whole() && population.parts().is_none());
        let table_records: Vec<u64> = (0..12).map(|row| population.table_record(row).unwrap()).collect();
        assert_eq!(table_records, given.iter().map(|row| record(&caches, row)).collect::<Vec<_>>());
        for result in [population.record(12), population.table_record(12), population.record(u64::MAX)] {
            assert!(matches!(result, Err(Error::Config { .. })));
        }
        // The first table, given back unchanged, is the same population.
        let first = FirstTable::new(Arc::clone(&caches));
        let schema = first.schema();
        let batches: Vec<RecordBatch> = first.map(|batch| batch.unwrap()).collect();
        let same = Population::from_table(Arc::clone(&caches), mode, 7, &schema, &batches).unwrap();
        assert_eq!(same.digest(), population.digest());
        assert_eq!(draws(&same), draws(&population));
        assert_eq!(records(&same), records(&population));
    }
}

#[test]
fn the_order_of_paths_and_rows_plays_no_part_where_draws_are_shuffled() {
    let root = tempfile::tempdir().unwrap();
    let caches = caches(root.path());
    let paths: Vec<_> = caches.paths().map(Path::to_path_buf).collect();
    let reversed = open(&[&paths[1], &paths[0]]).unwrap();
    let sizes: Vec<u64> = caches.by_id().iter().map(|cache| cache.samples()).collect();
    let mut rows: Vec<Row> = all_rows().into_iter().filter(|row| row.1 < sizes[row.0]).collect();
    let mut weights = [0.5, 2.0, 1.0].into_iter().cycle();
    rows.iter_mut().for_each(|row| row.2 = weights.next().unwrap());
    // Repeats, with other weights and the same.
    rows.extend([(0, 3, 0.25), (0, 3, 8.0), (1, 0, 0.125), (1, 0, 0.125)]);
    let mut canonical = rows.clone();
    canonical.sort_by(|one, other| one.partial_cmp(other).unwrap());
    let expected = table(&caches, Mode::Replacement, &canonical);
    assert_eq!(records(&expected), canonical.iter().map(|row| record(&caches, row)).collect::<Vec<_>>());
    assert_eq!(expected.digest(), digest_of(&caches, &canonical));

    for rotation in 0..rows.len() {
        rows.rotate_left(1);
        rows.swap(0, rotation / 2);
        for set in [&caches, &reversed] {
            let shuffled = table(set, Mode::Replacement, &rows);
            assert_eq!(shuffled.digest(), expected.digest());
            assert_eq!(records(&shuffled), records(&expected));
            assert_eq!(draws(&shuffled), draws(&expected));
            let table_records: Vec<u64> =
                (0..rows.len() as u64).map(|row| shuffled.table_record(row).unwrap()).collect();
            assert_eq!(table_records, rows.iter().map(|row| record(set, row)).collect::<Vec<_>>());

            let ordered = table(set, Mode::Ordered, &rows);
            assert_eq!(ordered.digest(), digest_of(set, &rows));
            assert_eq!(records(&ordered), table_records);
        }
    }
}

#[test]
fn what_was_taken_apart_draws_the_same_elsewhere() {
    let root = tempfile::tempdir().unwrap();
    let caches = caches(root.path());
    let weighted = [(1, 2, 3.0), (0, 4, 0.5), (0, 1, 2.0), (0, 4, 0.25)];
    let equal = [(1, 2, 3.0), (0, 4, 3.0), (0, 1, 3.0), (0, 4, 3.0)];
    for (mode, rows) in [
        (Mode::Ordered, weighted),
        (Mode::Replacement, weighted),
        (Mode::Replacement, equal),
        (Mode::Permutation, equal),
        (Mode::Ordered, equal),
    ] {
        let population = table(&caches, mode, &rows);
        let (records_of, weights) = population.parts().unwrap();
        assert_eq!(weights.len(), if rows == equal { 1 } else { 4 });
        let again = |records: Vec<u64>| {
            let digest = population.digest();
            Population::from_parts(Arc::clone(&caches), mode, 7, records, weights.clone(), digest)
        };
        let copy = again(records_of.to_vec()).unwrap();
        assert_eq!(draws(&copy), draws(&population), "{mode:?}");
        assert_eq!(copy.digest(), population.digest());
        assert_eq!(copy.parts(), population.parts());
        let rows_of = |population: &Population| format!("{:?}", population_table(population).unwrap());
        assert_eq!(rows_of(&copy), rows_of(&population));
        assert!(matches!(again(vec![0, 99, 1, 2]), Err(Error::Config { .. })));
    }
}

#[test]
fn unequal_weights_are_refused_without_replacement() {
    let root = tempfile::tempdir().unwrap();
    let caches = caches(root.path());
    let rows = [(0, 0, 1.0), (0, 1, 2.0)];
    let error = from_columns(&caches, Mode::Permutation, columns(&caches, &rows)).unwrap_err();
    assert!(matches!(&error, Error::Config { message } if message.contains("weight")), "{error}");
}

#[test]
fn other_encodings_of_equal_values_and_further_columns_are_accepted() {
    let root = tempfile::tempdir().unwrap();
    let caches = caches(root.path());
    let rows = [(0, 0, 1.0), (1, 1, 1.0), (0, 3, 1.0)];
    let expected = table(&caches, Mode::Replacement, &rows);
    let mut others = columns(&caches, &rows);
    others[1].1 = Arc::new(Int32Array::from(vec![0, 1, 3]));
    others[2].1 = Arc::new(Int32Array::from(vec![0, 1, 3]));
    others[3].1 = Arc::new(rows.iter().map(|row| stored_name(&caches, row)).collect::<StringArray>());
    others[4].1 = Arc::new(Int32Array::from(vec![1, 1, 1]));
    others.push(("loss", Arc::new(StringArray::from(vec![Some("x"), None, Some("y")]))));
    others.reverse();
    let found = from_columns(&caches, Mode::Replacement, others).unwrap();
    assert_eq!((found.digest(), draws(&found)), (expected.digest(), draws(&expected)));
}

#[test]
fn a_table_that_breaks_a_rule_is_refused_with_its_first_wrong_row() {
    let root = tempfile::tempdir().unwrap();
    let caches = caches(root.path());
    let rows = [(0, 0, 1.0), (0, 2, 1.0), (1, 1, 1.0), (1, 2, 1.0)];
    let refusal = |change: &dyn Fn(&mut Columns)| {
        let mut changed = columns(&caches, &rows);
        change(&mut changed);
        match from_columns(&caches, Mode::Replacement, changed) {
            Err(Error::Metadata { message }) => message,
            other => panic!("{other:?}"),
        }
    };
    let replaced = |place: usize, array: ArrayRef| refusal(&|columns| columns[place].1 = array.clone());
    let says = |message: String, parts: &[&str]| {
        assert!(parts.iter().all(|part| message.contains(part)), "{message:?} must say {parts:?}");
    };

    let unknown = caches.by_id()[0].cache_id().0 ^ 1;
    let mut ids: Vec<u64> = rows.iter().map(|row| identity(&caches, row.0)).collect();
    ids[2] = unknown;
    says(replaced(0, Arc::new(UInt64Array::from(ids))), &["row 2", "cache_id", &unknown.to_string()]);
    says(replaced(1, Arc::new(UInt64Array::from(vec![0, 2, 1, 70]))), &["row 3", "sample_id", "70"]);
    says(replaced(1, Arc::new(Int64Array::from(vec![0, -2, 1, 2]))), &["row 1", "sample_id", "negative"]);
    says(replaced(1, Arc::new(UInt64Array::from(vec![Some(0), Some(2), None, None]))), &["row 2", "null"]);
    says(replaced(1, Arc::new(Float64Array::from(vec![0.0; 4]))), &["sample_id", "integers"]);
    says(replaced(2, Arc::new(Int64Array::from(vec![0, 2, 1, 3]))), &["row 3", "label", "value 2", "got 3"]);
    says(replaced(2, Arc::new(Int64Array::from(vec![Some(0), None, Some(1), Some(2)]))), &["row 1", "null"]);
    says(replaced(2, Arc::new(Float64Array::from(vec![0.0, 2.0, 1.0, 2.0]))), &["label", "Int64", "Float64"]);
    let mut names: Vec<Option<String>> = rows.iter().map(|row| stored_name(&caches, row)).collect();
    assert_eq!(names[2], None);
    names[2] = Some(String::new());
    says(replaced(3, Arc::new(LargeStringArray::from(names))), &["row 2", "name", "null"]);
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let weights = Float64Array::from(vec![1.0, 1.0, weight, weight]);
        says(replaced(4, Arc::new(weights)), &["row 2", "weight", "positive"]);
    }
    says(replaced(4, Arc::new(Float64Array::from(vec![Some(1.0), None, Some(1.0), None]))), &["row 1", "null"]);
    says(replaced(4, Arc::new(StringArray::from(vec!["1"; 4]))), &["weight", "numbers"]);
    for (place, name) in ["cache_id", "sample_id", "label", "name", "weight"].into_iter().enumerate() {
        let message = refusal(&|columns| drop(columns.remove(place)));
        says(message, &["column", name]);
    }
    says(refusal(&|columns| columns.iter_mut().for_each(|(_, array)| *array = array.slice(0, 0))), &["one row"]);
    says(refusal(&|columns| columns.push(columns[2].clone())), &["label", "twice"]);
}

#[test]
fn caches_that_do_not_go_together_are_refused_by_name() {
    let root = tempfile::tempdir().unwrap();
    let one = Settings::default().build(root.path(), "one", 3);
    let mut feed = Feed::new(&["label"], |sample| Ok((sample < 3).then(|| (vec![], vec![Value::Boolean(true)]))));
    let two = Settings::default().write(root.path(), "two", &mut feed, &mut Caller::default()).unwrap().path;
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = Settings::default().build(elsewhere.path(), "one", 3);
    let error = open(&[&one, &two]).unwrap_err();
    assert!(matches!(&error, Error::Metadata { message } if message.contains("one") && message.contains("two")));
    let error = open(&[&one, &one]).unwrap_err();
    assert!(matches!(&error, Error::Config { message } if message.contains("each cache once")), "{error}");
    let error = open(&[&one, &copy]).unwrap_err();
    assert!(matches!(&error, Error::Config { message } if message.contains("cache_id")), "{error}");
    assert!(matches!(open(&[]), Err(Error::Config { .. })));
}
