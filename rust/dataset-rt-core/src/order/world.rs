//! The ranks of a distributed run, and how an epoch is divided among them.

use std::fmt;

use crate::{Error, Result};

/// What happens where the number of ranks does not divide an epoch.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Remainder {
    /// The epoch is lengthened by the draws that follow in the stream, until all ranks have equally many.
    Extend,
    /// The epoch is shortened until all ranks have equally many; the next one begins with the draws left.
    Drop,
    /// The first ranks take one draw more.
    Uneven,
}

impl Remainder {
    const ALL: [Self; 3] = [Self::Extend, Self::Drop, Self::Uneven];

    /// The rule's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Extend => "extend",
            Self::Drop => "drop",
            Self::Uneven => "uneven",
        }
    }

    /// The rule of that name.
    ///
    /// # Errors
    /// [`Error::Config`], with the names that exist, for any other.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|remainder| remainder.name() == name).ok_or_else(|| {
            let [first, second, third] = Self::ALL.map(Self::name);
            Error::config(format!("remainder must be {first:?}, {second:?} or {third:?}, got {name:?}"))
        })
    }
}

impl fmt::Display for Remainder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// One rank among all, and the rule that they divide epochs by.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct World {
    rank: u64,
    size: u64,
    remainder: Remainder,
}

impl World {
    /// Rank `rank` of `size`.
    ///
    /// # Errors
    /// [`Error::Config`] for a world without ranks and for a rank that is not in it.
    pub fn new(rank: u64, size: u64, remainder: Remainder) -> Result<Self> {
        if size == 0 {
            return Err(Error::config("world_size must be at least 1, got 0"));
        }
        if rank >= size {
            return Err(Error::config(format!("rank must be in [0, {size}), got {rank}")));
        }
        Ok(Self { rank, size, remainder })
    }

    /// The world of a single process.
    #[must_use]
    pub const fn single() -> Self {
        Self { rank: 0, size: 1, remainder: Remainder::Extend }
    }

    /// This rank.
    #[must_use]
    pub const fn rank(self) -> u64 {
        self.rank
    }

    /// Number of ranks, at least 1.
    #[must_use]
    pub const fn size(self) -> u64 {
        self.size
    }

    /// The rule where the number of ranks does not divide an epoch.
    #[must_use]
    pub const fn remainder(self) -> Remainder {
        self.remainder
    }

    /// How many draws this rank takes of an epoch of `length`.
    #[must_use]
    pub const fn count(self, length: u64) -> u64 {
        match self.remainder {
            Remainder::Extend => length.div_ceil(self.size),
            Remainder::Drop => length / self.size,
            Remainder::Uneven => length / self.size + if self.rank < length % self.size { 1 } else { 0 },
        }
    }

    /// The most draws that any rank takes of an epoch of `length`.
    #[must_use]
    pub const fn most(self, length: u64) -> u64 {
        match self.remainder {
            Remainder::Extend | Remainder::Uneven => length.div_ceil(self.size),
            Remainder::Drop => length / self.size,
        }
    }

    /// How far an epoch of `length` moves the position: the draws of all ranks together.
    ///
    /// Stops at `u64::MAX`; [`Window::deal`](super::Window::deal) refuses what lies beyond.
    #[must_use]
    pub const fn stride(self, length: u64) -> u64 {
        match self.checked_stride(length) {
            Some(stride) => stride,
            None => u64::MAX,
        }
    }

    pub(super) const fn checked_stride(self, length: u64) -> Option<u64> {
        match self.remainder {
            Remainder::Extend | Remainder::Drop => self.most(length).checked_mul(self.size),
            Remainder::Uneven => Some(length),
        }
    }

    /// Whether epochs of `length` can be divided among the ranks.
    ///
    /// # Errors
    /// [`Error::Config`] for a length of 0, and under [`Remainder::Drop`] for one that leaves the ranks nothing.
    pub fn check_epoch_len(self, length: u64) -> Result<()> {
        if length == 0 {
            return Err(Error::config("epoch_len must be at least 1, got 0"));
        }
        if self.most(length) == 0 {
            return Err(Error::config(format!(
                "epoch_len must be at least the world size {} with remainder=\"drop\", got {length}; \
                 use remainder=\"extend\" or \"uneven\", fewer ranks, or more rows or a longer epoch",
                self.size
            )));
        }
        Ok(())
    }
}
