//! Collects the references inside a value while it is encoded.
//!
//! A reference that travels inside a value must be listed beside the value's bytes, because whoever passes the value on
//! must pass on the right to use it too. Serde has no channel for that, so `Serialize` of references and handles reports
//! to a collector of this thread. Without one (somebody else's serialiser) there is nobody who would keep the object
//! alive, and serialising is an error.

use std::cell::RefCell;

use bireme_runtime::core::value::RefSpec;
use bireme_runtime::{Error, Ref};

thread_local! {
    static OPEN: RefCell<Option<Collected>> = const { RefCell::new(None) };
}

/// What was found inside a value.
#[derive(Default)]
pub(crate) struct Collected {
    /// As they travel.
    pub(crate) nested: Vec<RefSpec>,
    /// Kept until the value has been handed over.
    pub(crate) keep: Vec<Ref>,
    /// The first reference that has no object: its own error is better than the serialiser's.
    error: Option<Error>,
}

/// Puts the outer collector back, also when the user's `Serialize` panics.
struct Outer(Option<Collected>);

impl Drop for Outer {
    fn drop(&mut self) {
        let outer = self.0.take();
        OPEN.with(|open| *open.borrow_mut() = outer);
    }
}

/// Runs `encode` with a fresh collector.
pub(crate) fn collect<R>(encode: impl FnOnce() -> Result<R, Error>) -> Result<(R, Collected), Error> {
    // A value whose `Serialize` puts another value opens a scope inside a scope.
    let outer = Outer(OPEN.with(|open| open.borrow_mut().replace(Collected::default())));
    let result = encode();
    let collected = OPEN.with(|open| open.borrow_mut().take()).unwrap_or_default();
    drop(outer);
    match collected.error {
        Some(error) => Err(error),
        None => result.map(|value| (value, collected)),
    }
}

/// Adds a reference to the open collector; says why not when there is none.
pub(crate) fn note(reference: &Ref) -> Result<RefSpec, &'static str> {
    OPEN.with(|open| match &mut *open.borrow_mut() {
        Some(collected) => {
            let spec = reference.spec();
            collected.nested.push(spec);
            collected.keep.push(reference.clone());
            Ok(spec)
        }
        None => Err("a reference can be serialised only inside an argument, a result or a value given to `put`; \
                     elsewhere nobody would keep its object alive"),
    })
}

/// Leaves word of a reference that has no object.
pub(crate) fn note_error(error: &Error) {
    OPEN.with(|open| {
        if let Some(collected) = &mut *open.borrow_mut() {
            collected.error.get_or_insert_with(|| error.clone());
        }
    });
}
