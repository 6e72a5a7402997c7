//! The kinds of metadata column, and what a column may be called.

use std::collections::HashSet;

use arrow_schema::{DataType, TimeUnit};
use serde::{Deserialize, Serialize};

use super::name::shortened;
use crate::{Error, Result};

/// Names that a metadata table uses itself.
pub const RESERVED_COLUMNS: [&str; 4] = ["cache_id", "sample_id", "weight", "data"];

/// Longest name of a column in bytes of UTF-8.
pub const MAX_COLUMN_NAME_BYTES: usize = 1024;

/// Most columns of a cache. With the longest name it keeps Arrow's schema far below the 2 GiB and the 1,000,000 tables
/// at which Arrow's readers stop.
pub const MAX_COLUMNS: usize = 65_536;

/// What a column holds; the number is the content digest's.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[repr(u8)]
pub enum ColumnKind {
    /// True or false.
    Boolean = 1,
    /// Integers of 64 bits with a sign.
    Int64 = 2,
    /// Floating-point numbers of 64 bits.
    Float64 = 3,
    /// UTF-8.
    String = 4,
    /// Days since 1970-01-01.
    Date = 5,
    /// Microseconds since 1970-01-01T00:00, without a time zone.
    Datetime = 6,
}

impl ColumnKind {
    /// Every kind, by number.
    pub const ALL: [Self; 6] = [Self::Boolean, Self::Int64, Self::Float64, Self::String, Self::Date, Self::Datetime];

    /// The kind's name, which is Polars' name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boolean => "Boolean",
            Self::Int64 => "Int64",
            Self::Float64 => "Float64",
            Self::String => "String",
            Self::Date => "Date",
            Self::Datetime => "Datetime",
        }
    }

    /// The kind called `name`, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The Arrow type that stores it.
    #[must_use]
    pub const fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Int64 => DataType::Int64,
            Self::Float64 => DataType::Float64,
            Self::String => DataType::LargeUtf8,
            Self::Date => DataType::Date32,
            Self::Datetime => DataType::Timestamp(TimeUnit::Microsecond, None),
        }
    }
}

/// A metadata column of a cache.
// Its fields stand in the order of their names' bytes: the manifest is canonical by declaration.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Whether any of its values is null.
    pub has_nulls: bool,
    /// What it holds.
    pub kind: ColumnKind,
    /// What it is called.
    pub name: String,
}

/// Checks that a metadata column may be called `name`.
///
/// # Errors
///
/// [`Error::Metadata`] for a reserved name, one that is longer than [`MAX_COLUMN_NAME_BYTES`], or one with a NUL, which
/// Arrow's C interface cannot pass on.
pub fn check_column_name(name: &str) -> Result<()> {
    match broken_column_rule(name) {
        None => Ok(()),
        Some(rule) => {
            Err(Error::metadata(format!("column name must {rule}, got {}; rename the field", shortened(name))))
        }
    }
}

/// Checks that `columns` can be the columns of one cache: valid names, none of them twice, and not too many.
///
/// # Errors
///
/// [`Error::Metadata`] with the first rule that is broken.
pub fn check_columns(columns: &[Column]) -> Result<()> {
    if columns.len() > MAX_COLUMNS {
        return Err(Error::metadata(format!(
            "a cache must have at most {MAX_COLUMNS} metadata columns, got {}; pack some of them into the payload",
            columns.len()
        )));
    }
    let mut names = HashSet::with_capacity(columns.len());
    for Column { name, .. } in columns {
        check_column_name(name)?;
        if !names.insert(name) {
            return Err(Error::metadata(format!("column names must differ, got {} twice", shortened(name))));
        }
    }
    Ok(())
}

/// The rule that `name` breaks, as what a column's name must do; `None` for a good name.
#[must_use]
pub fn broken_column_rule(name: &str) -> Option<String> {
    if RESERVED_COLUMNS.contains(&name) {
        Some(format!("be none of the reserved {}", RESERVED_COLUMNS.join(", ")))
    } else if name.len() > MAX_COLUMN_NAME_BYTES {
        Some(format!("have at most {MAX_COLUMN_NAME_BYTES} bytes of UTF-8, not {}", name.len()))
    } else if name.contains('\0') {
        Some("hold no NUL character".to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use super::*;

    fn column(name: impl Into<String>) -> Column {
        Column { has_nulls: false, kind: ColumnKind::Int64, name: name.into() }
    }

    #[test]
    fn kinds_are_found_by_their_names() {
        for kind in ColumnKind::ALL {
            assert_eq!(ColumnKind::from_name(kind.name()), Some(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{:?}", kind.name()));
        }
        assert_eq!(ColumnKind::from_name("int64"), None);
        assert_eq!(ColumnKind::ALL.map(|kind| kind as u8), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn each_rule_for_a_name_is_named_with_the_value() {
        check_columns(&[column("label"), column(""), column("Weight"), column("x".repeat(1024))]).unwrap();
        let long = "x".repeat(1025);
        let reserved = "be none of the reserved cache_id, sample_id, weight, data";
        let refused = [
            ("cache_id", reserved),
            ("sample_id", reserved),
            ("weight", reserved),
            ("data", reserved),
            (long.as_str(), "have at most 1024 bytes of UTF-8, not 1025"),
            ("a\0b", "hold no NUL character"),
        ];
        for (name, rule) in refused {
            let message = check_columns(&[column("label"), column(name)]).unwrap_err().to_string();
            assert_eq!(message, format!("column name must {rule}, got {}; rename the field", shortened(name)));
        }
    }

    #[test]
    fn a_name_twice_and_too_many_columns_are_refused() {
        let message = check_columns(&[column("a"), column("b"), column("a")]).unwrap_err().to_string();
        assert_eq!(message, "column names must differ, got \"a\" twice");
        let columns: Vec<_> = (0..=MAX_COLUMNS).map(|number| column(number.to_string())).collect();
        let message = check_columns(&columns).unwrap_err().to_string();
        assert_eq!(
            message,
            "a cache must have at most 65536 metadata columns, got 65537; pack some of them into the payload"
        );
    }
}
