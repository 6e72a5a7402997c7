//! Long work in pieces, between which the caller looks at signals.

use crate::error::{Error, Result};

/// Runs a piece of work for a caller that may release locks of its own meanwhile, and says whether to go on.
pub type RunPiece<'run> = dyn FnMut(&mut (dyn FnMut() + Send)) -> Result<()> + 'run;

/// Runs one piece of the work through `run`.
///
/// # Errors
/// What `work` or `run` returns.
pub fn piece<T: Send>(run: &mut RunPiece<'_>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let (mut work, mut result) = (Some(work), None);
    run(&mut || result = work.take().map(|work| work()))?;
    result.unwrap_or_else(|| Err(Error::Internal { message: "a piece of work was not run".to_owned() }))
}
