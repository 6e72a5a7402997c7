//! Compares the stored columns of a table with what is stored.

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayAccessor, ArrayRef, ArrowPrimitiveType};
use arrow_buffer::NullBuffer;
use arrow_cast::display::array_value_to_string;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, TimeUnit};

use super::stored_columns::StoredPlace;
use crate::error::{Error, Result};
use crate::format::{Column, ColumnKind};

/// A value that is not the stored one.
#[derive(Debug)]
pub struct Difference {
    /// Row in the array.
    pub row: usize,
    /// The stored value, printed.
    pub expected: String,
    /// The table's value, printed.
    pub found: String,
}

/// Brings a table's column to the type of its kind, where every value stays what it is.
///
/// Accepted are narrower and unsigned integers, 32-bit floats, every string and dictionary encoding of strings
/// (Categorical and Enum among them), coarser datetimes, and an all-null column of no type.
///
/// # Errors
/// [`Error::Metadata`] naming the column, its stored kind and the type found.
pub fn to_stored_type(column: &Column, array: &ArrayRef) -> Result<ArrayRef> {
    let wanted = column.kind.data_type();
    let found = array.data_type();
    if *found == wanted {
        return Ok(array.clone());
    }
    let refused = || {
        Error::metadata(format!(
            "stored column {:?} must be {} as it is stored, got {found}; cast it back, or give the new column another name",
            column.name,
            column.kind.name(),
        ))
    };
    let text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    if column.kind == ColumnKind::String && text(found) {
        // Compared as it is: most tables of 10 million rows bring string views.
        return Ok(array.clone());
    }
    let related = match (column.kind, found) {
        (_, DataType::Null) => true,
        (ColumnKind::Int64, found) => found.is_integer(),
        (ColumnKind::Float64, found) => matches!(found, DataType::Float16 | DataType::Float32),
        (ColumnKind::String, DataType::Dictionary(_, values)) => text(values),
        (ColumnKind::Datetime, DataType::Timestamp(_, None)) => true,
        _ => false,
    };
    if !related {
        return Err(refused());
    }
    // What does not fit becomes null in a safe cast, and then counts as altered unless the stored value is null too.
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let cast = cast_with_options(array, &wanted, &options).map_err(|_| refused())?;
    if matches!(found, DataType::Timestamp(TimeUnit::Nanosecond, _)) {
        let back = cast_with_options(&cast, found, &options).map_err(|_| refused())?;
        if back.to_data() != array.to_data() {
            return Err(refused());
        }
    }
    if *found != DataType::Null
        && !matches!(found, DataType::Dictionary(_, _))
        && cast.null_count() != array.null_count()
    {
        return Err(refused());
    }
    Ok(cast)
}

/// The first row of `found` whose value is not the stored one at `places`. Nulls equal nulls and NaN equals NaN.
#[must_use]
pub fn first_difference(
    column: &Column,
    found: &ArrayRef,
    stored: &[&ArrayRef],
    places: &[StoredPlace],
) -> Option<Difference> {
    let row = match column.kind {
        ColumnKind::Boolean => {
            let stored: Vec<_> = stored.iter().map(|array| array.as_boolean()).collect();
            differing_value(found.as_boolean(), &stored, places)
        }
        ColumnKind::Int64 => differing_primitive::<Int64Type>(found, stored, places, |one, other| one == other),
        ColumnKind::Float64 => differing_primitive::<Float64Type>(found, stored, places, |one, other| {
            one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan())
        }),
        ColumnKind::Date => differing_primitive::<Date32Type>(found, stored, places, |one, other| one == other),
        ColumnKind::Datetime => {
            differing_primitive::<TimestampMicrosecondType>(found, stored, places, |one, other| one == other)
        }
        ColumnKind::String => {
            let stored: Vec<_> = stored.iter().map(|array| array.as_string::<i64>()).collect();
            match found.data_type() {
                DataType::Utf8View => differing_value(found.as_string_view(), &stored, places),
                DataType::Utf8 => differing_value(found.as_string::<i32>(), &stored, places),
                _ => differing_value(found.as_string::<i64>(), &stored, places),
            }
        }
    }?;
    let place = places.get(row)?;
    let print = |array: &dyn Array, row: usize| {
        if array.is_null(row) {
            "null".to_owned()
        } else {
            array_value_to_string(array, row).unwrap_or_else(|error| error.to_string())
        }
    };
    let expected = stored.get(place.batch).map(|array| print(array, place.row)).unwrap_or_default();
    Some(Difference { row, expected, found: print(found, row) })
}

/// The same for arrays of values that lie in plain slices, without a bounds check of Arrow's for each.
fn differing_primitive<T: ArrowPrimitiveType>(
    found: &ArrayRef,
    stored: &[&ArrayRef],
    places: &[StoredPlace],
    equal: impl Fn(T::Native, T::Native) -> bool,
) -> Option<usize> {
    let stored: Vec<(&[T::Native], Option<&NullBuffer>)> = stored
        .iter()
        .map(|array| {
            let array = array.as_primitive::<T>();
            (array.values().as_ref(), array.nulls())
        })
        .collect();
    let found = found.as_primitive::<T>();
    let nulls = found.nulls();
    found.values().iter().zip(places).enumerate().position(|(row, (one, place))| {
        let Some((values, stored_nulls)) = stored.get(place.batch) else { return true };
        let Some(other) = values.get(place.row) else { return true };
        let one_is_null = nulls.is_some_and(|nulls| nulls.is_null(row));
        let other_is_null = stored_nulls.is_some_and(|nulls| nulls.is_null(place.row));
        if one_is_null || other_is_null { one_is_null != other_is_null } else { !equal(*one, *other) }
    })
}

/// The same for arrays whose values are looked at one by one.
fn differing_value<V: PartialEq, A: ArrayAccessor<Item = V> + Copy, B: ArrayAccessor<Item = V> + Copy>(
    found: A,
    stored: &[B],
    places: &[StoredPlace],
) -> Option<usize> {
    places.iter().enumerate().position(|(row, place)| {
        let Some(stored) = stored.get(place.batch) else { return true };
        value(found, row) != value(*stored, place.row)
    })
}

fn value<A: ArrayAccessor>(array: A, row: usize) -> Option<A::Item> {
    (row < array.len() && array.is_valid(row)).then(|| array.value(row))
}
