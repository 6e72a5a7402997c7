//! The canonical order of a shuffled population: ascending record, then weight; equal rows keep the table's order.

/// How a table's rows are renumbered for the canonical order.
#[derive(Debug, Eq, PartialEq)]
pub struct Renumbering {
    /// Record of each population row, ascending.
    pub records: Vec<u64>,
    /// Population row of each table row.
    pub population_rows: Vec<u32>,
}

/// The renumbering of a table, or `None` where it is in canonical order already.
///
/// Records ascend exactly as (`cache_id`, `sample_id`) do. Looks first whether anything is to be done, O(n). Then it
/// counts the records, O(n + records), or sorts, O(n log n), where the table names few of many records.
#[must_use]
pub fn renumber(records: &[u64], weights: &[f64], record_count: u64) -> Option<Renumbering> {
    let keys = || records.iter().copied().zip(weights.iter().copied());
    if keys().zip(keys().skip(1)).all(|(one, next)| one.0 < next.0 || (one.0 == next.0 && one.1 <= next.1)) {
        return None;
    }
    Some(match usize::try_from(record_count) {
        Ok(count) if count / 8 <= records.len() => by_counting(records, weights, count),
        _ => by_sorting(records, weights),
    })
}

/// Every table row's place follows from how many rows have smaller records. Reads the table in order, and writes each
/// result in order: only the counters are visited at random.
fn by_counting(records: &[u64], weights: &[f64], count: usize) -> Renumbering {
    let place = |record: u64| usize::try_from(record).unwrap_or(usize::MAX);
    let mut counters = vec![0_u32; count];
    for record in records {
        if let Some(counter) = counters.get_mut(place(*record)) {
            *counter += 1;
        }
    }
    let mut sorted = Vec::with_capacity(records.len());
    let (mut next, mut has_repeats) = (0, false);
    for (record, counter) in (0_u64..).zip(&mut counters) {
        let rows = *counter;
        has_repeats |= rows > 1;
        match rows {
            0 => {}
            1 => sorted.push(record),
            _ => sorted.extend(std::iter::repeat_n(record, rows as usize)),
        }
        *counter = next;
        next += rows;
    }
    let mut population_rows = Vec::with_capacity(records.len());
    for record in records {
        if let Some(counter) = counters.get_mut(place(*record)) {
            population_rows.push(*counter);
            *counter += 1;
        }
    }
    let mut renumbering = Renumbering { records: sorted, population_rows };
    if has_repeats {
        order_repeats(&mut renumbering, weights);
    }
    renumbering
}

fn by_sorting(records: &[u64], weights: &[f64]) -> Renumbering {
    let mut keyed: Vec<(u64, u32)> = records.iter().copied().zip(0..).collect();
    keyed.sort_unstable();
    let mut population_rows = vec![0; records.len()];
    for (row, (_, table_row)) in (0_u32..).zip(&keyed) {
        if let Some(slot) = population_rows.get_mut(*table_row as usize) {
            *slot = row;
        }
    }
    let mut renumbering =
        Renumbering { records: keyed.into_iter().map(|(record, _)| record).collect(), population_rows };
    order_repeats(&mut renumbering, weights);
    renumbering
}

/// Puts the rows of one record in the order of their weights.
fn order_repeats(renumbering: &mut Renumbering, weights: &[f64]) {
    let mut table_rows = inverse(&renumbering.population_rows);
    let weight = |row: &u32| weights.get(*row as usize).copied().unwrap_or_default();
    let mut start = 0;
    for repeats in renumbering.records.chunk_by(|one, next| one == next) {
        let end = start + repeats.len();
        if repeats.len() > 1
            && let Some(rows) = table_rows.get_mut(start..end)
        {
            // Stable: rows of equal weight stay in the table's order.
            rows.sort_by(|one, next| weight(one).total_cmp(&weight(next)));
        }
        start = end;
    }
    renumbering.population_rows = inverse(&table_rows);
}

/// The permutation that undoes `permutation`.
#[must_use]
pub fn inverse(permutation: &[u32]) -> Vec<u32> {
    let mut inverse = vec![0; permutation.len()];
    for (place, value) in (0_u32..).zip(permutation) {
        if let Some(slot) = inverse.get_mut(*value as usize) {
            *slot = place;
        }
    }
    inverse
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Renumbering, inverse, renumber};

    proptest! {
        #[test]
        fn it_is_a_stable_sort_by_record_then_weight(
            rows in prop::collection::vec((0_u64..20, 1_u8..4), 0..60),
            spread in prop_oneof![Just(1_u64), Just(1 << 40)],
        ) {
            let records: Vec<u64> = rows.iter().map(|(record, _)| record * spread).collect();
            let weights: Vec<f64> = rows.iter().map(|(_, weight)| f64::from(*weight)).collect();
            let mut table_rows: Vec<u32> = (0..).take(rows.len()).collect();
            table_rows.sort_by_key(|row| rows.get(*row as usize).copied());
            let expected = Renumbering {
                records: table_rows.iter().filter_map(|row| records.get(*row as usize).copied()).collect(),
                population_rows: inverse(&table_rows),
            };
            let in_order = table_rows.iter().copied().eq((0..).take(rows.len()));
            let found = renumber(&records, &weights, 20 * spread);
            prop_assert_eq!(found.is_none(), in_order);
            if let Some(found) = found {
                prop_assert_eq!(found, expected);
            }
        }
    }
}
