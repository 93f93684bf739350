//! Choices for the calls of one handle.

use bireme_runtime::core::spec::TaskOptions;
use bireme_runtime::core::stream::Stream;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Choices for calls of an actor: `handle.with_options(...)` is a handle of the same actor whose calls have them. What is left out
/// is as it was chosen for the actor.
///
/// ```
/// # pub struct Mast;
/// # #[bireme::actor]
/// # impl Mast {
/// #     pub fn new() -> Self { Mast }
/// #     pub fn look(&mut self) -> u32 { 3 }
/// # }
/// use bireme::CallOptions;
/// let _context = bireme::init()?;
/// let mast = Mast::remote();
/// let patient = mast.with_options(CallOptions::new().retries(2).name("look out"));
/// assert_eq!(patient.look().get()?, 3);
/// # Ok::<(), bireme::Error>(())
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[must_use = "give it to `with_options` of a handle"]
pub struct CallOptions {
    name: Option<String>,
    retries: Option<u32>,
    items_max: Option<u32>,
    bytes_max: Option<u64>,
}

impl CallOptions {
    /// Nothing chosen.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name under which calls appear in errors and in the state.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// How often a call is tried again after the actor's worker died.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = Some(retries);
        self
    }

    /// How many items a streaming method may be ahead of its reader; then it waits.
    pub fn max_buffered_items(mut self, items: u32) -> Self {
        self.items_max = Some(items);
        self
    }

    /// How many bytes of items a streaming method may be ahead of its reader; then it waits.
    pub fn max_buffered_bytes(mut self, bytes: u64) -> Self {
        self.bytes_max = Some(bytes);
        self
    }

    /// The options of a method with these choices.
    pub(super) fn applied_to(&self, method: TaskOptions) -> TaskOptions {
        TaskOptions {
            name: self.name.clone().unwrap_or(method.name),
            retries_max: self.retries.unwrap_or(method.retries_max),
            ..method
        }
    }

    /// The limits of a method with these choices.
    pub(super) fn limits(&self, method: Option<Stream>) -> Result<Option<Stream>> {
        if self.items_max.is_none() && self.bytes_max.is_none() {
            return Ok(method);
        }
        let Some(method) = method else {
            let text =
                "max_buffered_items and max_buffered_bytes are for methods with `#[bireme::stream]`; this one is none";
            return Err(Error::BadArgument(text.to_owned()));
        };
        if self.items_max == Some(0) || self.bytes_max == Some(0) {
            let text =
                "a stream that may have 0 items or bytes ahead lets nothing pass; give at least 1, or leave it out";
            return Err(Error::BadArgument(text.to_owned()));
        }
        let (items_max, bytes_max) =
            (self.items_max.unwrap_or(method.items_max), self.bytes_max.unwrap_or(method.bytes_max));
        Ok(Some(Stream { items_max, bytes_max }))
    }
}
