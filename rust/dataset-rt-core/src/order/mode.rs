//! The three ways to draw.

use std::fmt;

use crate::{Error, Result};

/// How a stream draws from its population.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Mode {
    /// The rows as they stand, over and over; weights play no part.
    Ordered,
    /// Each draw for itself, by weight.
    Replacement,
    /// Every row once in each pass; the weights must be equal.
    Permutation,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Ordered, Self::Replacement, Self::Permutation];

    /// The mode's name in saved states.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::Replacement => "with_replacement",
            Self::Permutation => "without_replacement",
        }
    }

    /// The mode of that name.
    ///
    /// # Errors
    /// [`Error::Config`], with the names that exist, for any other.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| {
            let [first, second, third] = Self::ALL.map(Self::name);
            Error::config(format!("mode must be {first:?}, {second:?} or {third:?}, got {name:?}"))
        })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}
