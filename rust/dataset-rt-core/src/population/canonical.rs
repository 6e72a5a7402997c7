//! The canonical order of a shuffled population: ascending record, then weight; equal rows keep the table's order.

/// Table rows in canonical order, or `None` where the table is in that order already.
///
/// Records ascend exactly as (`cache_id`, `sample_id`) do. Looks first whether anything is to be done, O(n). Then it
/// counts the records, O(n + records), or sorts, O(n log n), where the table names few of many records.
#[must_use]
pub fn canonical_order(records: &[u64], weights: &[f64], record_count: u64) -> Option<Vec<u32>> {
    let keys = || records.iter().copied().zip(weights.iter().copied());
    if keys().zip(keys().skip(1)).all(|(one, next)| one.0 < next.0 || (one.0 == next.0 && one.1 <= next.1)) {
        return None;
    }
    let mut order = match usize::try_from(record_count) {
        Ok(count) if count / 8 <= records.len() => by_counting(records, count),
        _ => by_sorting(records),
    };
    let record = |row: &u32| records.get(*row as usize).copied();
    let weight = |row: &u32| weights.get(*row as usize).copied().unwrap_or_default();
    for repeats in order.chunk_by_mut(|one, next| record(one) == record(next)) {
        if repeats.len() > 1 {
            repeats.sort_by(|one, next| weight(one).total_cmp(&weight(next)));
        }
    }
    Some(order)
}

fn by_counting(records: &[u64], count: usize) -> Vec<u32> {
    let place = |record: &u64| usize::try_from(*record).unwrap_or(usize::MAX);
    let mut starts = vec![0_u32; count + 1];
    for record in records {
        if let Some(start) = starts.get_mut(place(record).saturating_add(1)) {
            *start += 1;
        }
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += *start;
        *start = sum;
    }
    let mut order = vec![0; records.len()];
    for (row, record) in (0_u32..).zip(records) {
        if let Some(start) = starts.get_mut(place(record)) {
            if let Some(slot) = order.get_mut(*start as usize) {
                *slot = row;
            }
            *start += 1;
        }
    }
    order
}

fn by_sorting(records: &[u64]) -> Vec<u32> {
    let mut keyed: Vec<(u64, u32)> = records.iter().copied().zip(0..).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::canonical_order;

    proptest! {
        #[test]
        fn it_is_a_stable_sort_by_record_then_weight(
            rows in prop::collection::vec((0_u64..20, 1_u8..4), 0..60),
            spread in prop_oneof![Just(1_u64), Just(1 << 40)],
        ) {
            let records: Vec<u64> = rows.iter().map(|(record, _)| record * spread).collect();
            let weights: Vec<f64> = rows.iter().map(|(_, weight)| f64::from(*weight)).collect();
            let mut expected: Vec<u32> = (0..).take(rows.len()).collect();
            expected.sort_by_key(|row| rows.get(*row as usize).copied());
            let found = canonical_order(&records, &weights, 20 * spread);
            let in_order = expected.iter().copied().eq((0..).take(rows.len()));
            prop_assert_eq!(found.is_none(), in_order);
            prop_assert_eq!(found.unwrap_or_else(|| expected.clone()), expected);
        }
    }
}
