//! Weights as integers, and the search for the row under a point.

use super::scale::{binary_exponent, floor_scaled, scale};
use crate::{Error, Result};

/// The integer weights add up to about two to this exponent: far above any row count, and safely below 2^63.
const SUM_EXPONENT: i32 = 61;
/// Up to this many rows of one guide entry are walked through; more are bisected.
const WALK: usize = 8;
/// Draws looked up together, so that the memory waits of several overlap.
const BLOCK: usize = 64;

/// Validated weights of a population: integers whose running totals decide which row a random point hits.
///
/// Equal weights need no table. Others take 10 to 12 bytes a row: the running totals (8 bytes), and a guide (4 bytes
/// for each of at least half as many stretches as there are rows) that says where in them to look, so that a search
/// takes constant time on average, and logarithmic time at worst, however uneven the weights are. The guide is the
/// indexed search of Chen and Asau, "On generating random variates from an empirical distribution", AIIE Transactions
/// 6, 1974, with stretches of a power of two in place of a division.
#[derive(Debug)]
pub struct Weights {
    rows: u64,
    total: u64,
    table: Option<Table>,
}

#[derive(Debug)]
struct Table {
    /// Inclusive running totals of the integer weights.
    cumulative: Box<[u64]>,
    /// Entry b is the row under the point `b << shift`; one entry more names the last row.
    guide: Box<[u32]>,
    shift: u32,
}

impl Weights {
    /// Equal weights for `rows` rows.
    ///
    /// # Errors
    /// [`Error::Metadata`] without rows.
    pub fn equal(rows: u64) -> Result<Self> {
        if rows == 0 {
            return Err(Error::metadata("the table must have at least one row, got none"));
        }
        Ok(Self { rows, total: rows, table: None })
    }

    /// Weights of `rows` rows, where `value` gives the weight of each in the order of the population.
    ///
    /// Asks `value` two times for each row and takes O(rows). The doubles are scaled by powers of two alone and added
    /// one after another in the order of the population, so the same weights give the same integers everywhere. Each
    /// integer is at least 1: no positive weight is too small beside others to be drawn at all.
    ///
    /// # Errors
    /// [`Error::Metadata`] without rows; for the first row whose weight is not positive and finite; for weights that
    /// differ over more than `u32::MAX` rows.
    pub fn build(rows: usize, value: impl Fn(usize) -> f64) -> Result<Self> {
        let mut largest = 0.0_f64;
        let mut smallest = f64::INFINITY;
        for row in 0..rows {
            let weight = value(row);
            if !(weight > 0.0 && weight < f64::INFINITY) {
                return Err(Error::metadata(format!("row {row}: weight must be positive and finite, got {weight}")));
            }
            largest = largest.max(weight);
            smallest = smallest.min(weight);
        }
        let all = Self::equal(rows as u64)?;
        if smallest == largest {
            return Ok(all);
        }
        if u32::try_from(rows).is_err() {
            return Err(Error::metadata(format!(
                "a table with unequal weights must have at most {} rows, got {rows}; make the weights equal",
                u32::MAX
            )));
        }
        let table = Table::build(rows, value, largest);
        let total = table.cumulative.last().copied().unwrap_or(0);
        Ok(Self { total, table: Some(table), ..all })
    }

    /// Number of rows, at least 1.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Sum of the integer weights, below 2^63 where they differ; the number of rows where they are equal.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether all weights are equal.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.table.is_none()
    }

    /// The first row whose running total exceeds `point`, which must be below [`Self::total`] (else: the last row).
    ///
    /// Constant time on average over the points, logarithmic at worst.
    #[must_use]
    #[inline]
    pub fn row(&self, point: u64) -> u64 {
        match &self.table {
            None => point.min(self.rows - 1),
            Some(table) => {
                let bounds = table.bounds(point);
                table.search(point, bounds, table.total_at(bounds.0))
            }
        }
    }

    /// Puts into the place of each point what [`Self::row`] says of it, faster than one by one.
    ///
    /// In a large table nearly all of a search is waiting for memory; a block of searches waits for all of it at once.
    pub fn rows_under(&self, points: &mut [u64]) {
        let Some(table) = &self.table else {
            for point in points {
                *point = self.row(*point);
            }
            return;
        };
        for block in points.chunks_mut(BLOCK) {
            let mut bounds = [(0, 0); BLOCK];
            let mut totals = [0; BLOCK];
            for (bounds, point) in bounds.iter_mut().zip(block.iter()) {
                *bounds = table.bounds(*point);
            }
            for (total, bounds) in totals.iter_mut().zip(&bounds).take(block.len()) {
                *total = table.total_at(bounds.0);
            }
            for ((point, bounds), total) in block.iter_mut().zip(bounds).zip(totals) {
                *point = table.search(*point, bounds, total);
            }
        }
    }

    /// The integer weight of a row; 0 past the last one.
    #[must_use]
    pub fn integer_weight(&self, row: u64) -> u64 {
        if row >= self.rows {
            return 0;
        }
        let Some(table) = &self.table else { return 1 };
        let total = |row: u64| usize::try_from(row).ok().and_then(|row| table.cumulative.get(row)).copied();
        let before = row.checked_sub(1).and_then(total).unwrap_or(0);
        total(row).unwrap_or(before) - before
    }

    /// Bytes on the heap: none for equal weights, otherwise 10 to 12 a row and a few more.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.as_ref().map_or(0, |table| size_of_val(&*table.cumulative) + size_of_val(&*table.guide))
    }
}

impl Table {
    /// The table of validated weights that are not all equal.
    fn build(rows: usize, value: impl Fn(usize) -> f64, largest: f64) -> Self {
        let down = -binary_exponent(largest);
        let mut sum = 0.0_f64;
        // The scaled doubles lie, as bits, where their running totals will: one allocation.
        let mut cumulative: Vec<u64> = (0..rows)
            .map(|row| {
                let scaled = scale(value(row), down);
                sum += scaled;
                scaled.to_bits()
            })
            .collect();
        let up = SUM_EXPONENT - binary_exponent(sum);
        let mut total = 0_u64;
        for entry in &mut cumulative {
            total += floor_scaled(f64::from_bits(*entry), up).max(1);
            *entry = total;
        }
        // The smallest stretches of which there are at most as many as rows: then there are more than half as many.
        let mut shift = 0;
        while (total - 1) >> shift >= rows as u64 {
            shift += 1;
        }
        let mut guide = Vec::with_capacity(usize::try_from(((total - 1) >> shift) + 2).unwrap_or(0));
        let mut stretch = 0_u64;
        for (row, cumulative) in (0_u32..).zip(&cumulative) {
            while stretch <= (cumulative - 1) >> shift {
                guide.push(row);
                stretch += 1;
            }
        }
        guide.push(u32::try_from(rows - 1).unwrap_or(u32::MAX));
        Self { cumulative: cumulative.into_boxed_slice(), guide: guide.into_boxed_slice(), shift }
    }

    /// The first and the last row that `point` may fall on.
    #[inline]
    fn bounds(&self, point: u64) -> (u32, u32) {
        let last = self.guide.len() - 2;
        let stretch = usize::try_from(point >> self.shift).unwrap_or(last).min(last);
        match self.guide.get(stretch..) {
            Some([first, last, ..]) => (*first, *last),
            _ => (0, 0),
        }
    }

    #[inline]
    fn total_at(&self, row: u32) -> u64 {
        self.cumulative.get(row as usize).copied().unwrap_or(u64::MAX)
    }

    /// The row under `point`, given its bounds and the running total at the first of them.
    #[inline]
    fn search(&self, point: u64, (first, last): (u32, u32), total: u64) -> u64 {
        if point < total {
            return u64::from(first);
        }
        // The last row's total need not be looked at: it exceeds the point, or the point is out of range.
        let between = self.cumulative.get(first as usize + 1..last as usize).unwrap_or(&[]);
        let below = if between.len() <= WALK {
            between.iter().take_while(|total| **total <= point).count()
        } else {
            between.partition_point(|total| *total <= point)
        };
        (u64::from(first) + 1 + below as u64).min(u64::from(last))
    }
}
