//! Numbers that must not be mixed up with one another, each in a type of its own.

use std::fmt;

/// Number of a sample inside its cache: `0..samples`, in the order in which the source gave them.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SampleId(pub u64);

/// Identity of a cache: the first eight bytes of its content digest with the top bit cleared.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CacheId(pub u64);

/// Number of a draw in the endless stream; the whole state of sampling.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Position(pub u64);

impl fmt::Display for SampleId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for CacheId {
    /// Sixteen hexadecimal digits, as the manifest prints it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
