//! Gives every metadata column its kind while rows come in, and refuses what does not fit.

use crate::error::{Error, Result};
use crate::format::{Column, ColumnKind, Value, broken_column_rule};

/// The columns of a source, as far as its rows have shown them.
///
/// The first row names the columns and their order; a column's kind is that of its first value that is not null,
/// unless a schema gave it before. A refused row leaves no trace here.
#[derive(Clone, Debug)]
pub struct RowTyper {
    source_name: String,
    /// None until the first row or a schema names the columns.
    names: Option<Vec<String>>,
    states: Vec<ColumnState>,
    /// The states as a row that is being taken leaves them, kept apart until all its fields are taken.
    next_states: Vec<ColumnState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ColumnState {
    kind: Option<ColumnKind>,
    has_nulls: bool,
}

impl RowTyper {
    /// Columns are not known yet, or are those of `schema`.
    ///
    /// # Errors
    /// [`Error::Source`] for a name that a column cannot have.
    pub fn new(source_name: &str, schema: Option<Vec<(String, ColumnKind)>>) -> Result<Self> {
        let mut typer =
            Self { source_name: source_name.to_owned(), names: None, states: Vec::new(), next_states: Vec::new() };
        if let Some(schema) = schema {
            let names: Vec<&str> = schema.iter().map(|(name, _)| name.as_str()).collect();
            typer.names = Some(typer.checked_names(&names, None)?);
            typer.states = schema.iter().map(|(_, kind)| ColumnState { kind: Some(*kind), has_nulls: false }).collect();
        }
        Ok(typer)
    }

    /// The names of the columns in order, once they are known.
    #[must_use]
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// Takes the row of `sample`, whose fields are `names` with `values` in the same order, and appends its encoding
    /// for the content digest to `out`.
    ///
    /// # Errors
    /// [`Error::Source`] naming the sample and the field; then nothing was appended and no kind was fixed.
    pub fn encode(&mut self, sample: u64, names: &[&str], values: &[Value], out: &mut Vec<u8>) -> Result<()> {
        let first = match &self.names {
            Some(expected) => {
                self.check_names(expected, sample, names)?;
                None
            }
            None => Some(self.checked_names(names, Some(sample))?),
        };
        self.next_states.clear();
        self.next_states.extend_from_slice(&self.states);
        self.next_states.resize(names.len(), ColumnState::default());
        let start = out.len();
        for ((state, value), name) in self.next_states.iter_mut().zip(values).zip(names) {
            if let Err((expected, found)) = state.take(value, out) {
                out.truncate(start);
                let (source_name, field) = (self.source_name.clone(), Some((*name).to_owned()));
                return Err(Error::Source { source_name, sample: Some(sample), field, expected, found });
            }
        }
        std::mem::swap(&mut self.states, &mut self.next_states);
        if first.is_some() {
            self.names = first;
        }
        Ok(())
    }

    /// The columns as the manifest names them. One that never had a value is a String column.
    #[must_use]
    pub fn finish(self) -> Vec<Column> {
        let names = self.names.unwrap_or_default();
        names
            .into_iter()
            .zip(self.states)
            .map(|(name, state)| Column {
                name,
                kind: state.kind.unwrap_or(ColumnKind::String),
                has_nulls: state.has_nulls,
            })
            .collect()
    }

    fn checked_names(&self, names: &[&str], sample: Option<u64>) -> Result<Vec<String>> {
        for (place, name) in names.iter().enumerate() {
            let refuse = |expected: String, found: String| Error::Source {
                source_name: self.source_name.clone(),
                sample,
                field: Some((*name).to_owned()),
                expected,
                found,
            };
            if let Some(rule) = broken_column_rule(name) {
                return Err(refuse(format!("a key that can be a column's name, which must {rule}"), shortened(name)));
            }
            if names.iter().take(place).any(|earlier| earlier == name) {
                return Err(refuse("each column once".to_owned(), "it twice".to_owned()));
            }
        }
        Ok(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn check_names(&self, expected: &[String], sample: u64, names: &[&str]) -> Result<()> {
        if expected.iter().eq(names) {
            return Ok(());
        }
        let missing = expected.iter().map(String::as_str).find(|name| !names.contains(name));
        let additional = names.iter().copied().find(|name| !expected.iter().any(|known| known == name));
        Err(Error::Source {
            source_name: self.source_name.clone(),
            sample: Some(sample),
            field: missing.or(additional).map(str::to_owned),
            expected: format!("the metadata keys {expected:?} on every sample"),
            found: format!("{names:?}"),
        })
    }
}

impl ColumnState {
    /// Encodes `value` as this column's, or says what was expected and what came.
    fn take(&mut self, value: &Value, out: &mut Vec<u8>) -> std::result::Result<(), (String, String)> {
        let Some(found) = value.kind() else {
            self.has_nulls = true;
            return Value::Null.encode(out).map_err(|error| ("None".to_owned(), error.to_string()));
        };
        let value = match *self.kind.get_or_insert(found) {
            expected if expected == found => value,
            ColumnKind::Float64 => match value {
                Value::Int64(integer) => match exact_float(*integer) {
                    Some(float) => &Value::Float64(float),
                    None => return Err(("an integer that a Float64 holds exactly".to_owned(), integer.to_string())),
                },
                _ => return Err(kinds(ColumnKind::Float64, value)),
            },
            expected => return Err(kinds(expected, value)),
        };
        value.encode(out).map_err(|error| ("a value that can be stored".to_owned(), error.to_string()))
    }
}

/// The beginning of a text, quoted.
fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() <= MOST {
        return format!("{text:?}");
    }
    format!("{:?}…", text.chars().take(MOST).collect::<String>())
}

fn kinds(expected: ColumnKind, value: &Value) -> (String, String) {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Boolean(value) => format!("the bool {value}"),
        Value::Int64(value) => format!("the int {value}"),
        Value::Float64(value) => format!("the float {value}"),
        Value::String(value) => format!("the str {}", shortened(value)),
        Value::Date(days) => format!("a date ({days} days after 1970-01-01)"),
        Value::Datetime(micros) => format!("a datetime ({micros} µs after 1970-01-01)"),
    };
    (format!("{} (the kind of this column's first value or of metadata_schema) or None", expected.name()), found)
}

/// The float with exactly this value, where there is one.
fn exact_float(integer: i64) -> Option<f64> {
    // Every integer of up to 53 significant bits is a float: trailing zeros do not count.
    let magnitude = integer.unsigned_abs();
    let significant = u64::BITS.saturating_sub(magnitude.leading_zeros() + magnitude.trailing_zeros());
    #[expect(clippy::cast_precision_loss, reason = "exact: at most 53 significant bits, as checked")]
    let float = integer as f64;
    (significant <= f64::MANTISSA_DIGITS).then_some(float)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::{RowTyper, exact_float};
    use crate::format::{ColumnKind, Value};

    #[test]
    fn integers_become_floats_only_exactly() {
        assert_eq!(exact_float(0), Some(0.0));
        assert_eq!(exact_float(-(1 << 53)), Some(-9_007_199_254_740_992.0));
        assert_eq!(exact_float((1 << 53) + 1), None);
        assert_eq!(exact_float((1 << 53) + 2), Some(9_007_199_254_740_994.0));
        assert_eq!(exact_float(i64::MIN), Some(-9_223_372_036_854_775_808.0));
        assert_eq!(exact_float(i64::MAX), None);
    }

    #[test]
    fn a_refused_row_fixes_no_kind() {
        let mut typer = RowTyper::new("train", None).unwrap();
        let mut out = Vec::new();
        typer.encode(0, &["a", "b"], &[Value::Null, Value::Int64(1)], &mut out).unwrap();
        let length = out.len();
        let wrong = [Value::Boolean(true), Value::String("x".to_owned())];
        let error = typer.encode(1, &["a", "b"], &wrong, &mut out).unwrap_err();
        assert!(error.to_string().contains("sample 1, field \"b\": expected Int64"), "{error}");
        assert_eq!(out.len(), length);
        typer.encode(1, &["a", "b"], &[Value::String("x".to_owned()), Value::Null], &mut out).unwrap();
        let columns = typer.finish();
        assert_eq!(
            columns.iter().map(|column| column.kind).collect::<Vec<_>>(),
            [ColumnKind::String, ColumnKind::Int64]
        );
        assert!(columns.iter().all(|column| column.has_nulls));
    }

    #[test]
    fn a_column_without_values_is_a_string_column() {
        let mut typer = RowTyper::new("train", None).unwrap();
        typer.encode(0, &["a"], &[Value::Null], &mut Vec::new()).unwrap();
        assert_eq!(typer.finish().first().unwrap().kind, ColumnKind::String);
    }
}
