//! The weights of a table in the population's numbering.

use std::borrow::Cow;

/// Weights by population row, copied only where the numbering differs from the table's and the weights differ at all.
#[derive(Debug)]
pub enum PopulationWeights<'table> {
    /// Every row has this weight.
    Equal(f64),
    /// One weight a row.
    Each(Cow<'table, [f64]>),
}

impl<'table> PopulationWeights<'table> {
    /// The weights of table rows, renumbered where `population_rows` says so. O(n).
    #[must_use]
    pub fn new(weights: &'table [f64], population_rows: Option<&[u32]>) -> Self {
        if let Some(first) = weights.first().filter(|first| weights.iter().all(|weight| weight == *first)) {
            return Self::Equal(*first);
        }
        let Some(population_rows) = population_rows else { return Self::Each(Cow::Borrowed(weights)) };
        let mut in_order = vec![f64::NAN; weights.len()];
        for (row, weight) in population_rows.iter().zip(weights) {
            if let Some(slot) = in_order.get_mut(*row as usize) {
                *slot = *weight;
            }
        }
        Self::Each(Cow::Owned(in_order))
    }

    /// The weight of a population row; not a number where there is no such row.
    #[must_use]
    pub fn get(&self, row: usize) -> f64 {
        match self {
            Self::Equal(weight) => *weight,
            Self::Each(weights) => weights.get(row).copied().unwrap_or(f64::NAN),
        }
    }

    /// One weight where all are equal, otherwise one a row.
    #[must_use]
    pub fn into_parts(self) -> Vec<f64> {
        match self {
            Self::Equal(weight) => vec![weight],
            Self::Each(weights) => weights.into_owned(),
        }
    }
}
