//! How the core lets its caller do something else while it waits.

use std::time::Duration;

use crate::error::Result;

/// How long a wait lasts at most before the caller is asked again whether to go on.
pub const WAIT: Duration = Duration::from_millis(50);

/// Runs `work` without the locks that the caller holds (Python's, above all), then says whether to go on.
///
/// Every wait and every long piece of work in a calling thread goes through it.
pub trait Outside {
    /// Runs `work`, then looks at signals.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`] where the caller wants to stop.
    fn run(&mut self, work: &mut (dyn FnMut() + Send)) -> Result<()>;
}
