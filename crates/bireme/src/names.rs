//! Types by fingerprint: what an object's header says, and the names behind it for error messages.
//!
//! A fingerprint is the hash of `std::any::type_name`; driver and workers are one executable, so it is the same in all
//! of them. The table of names fills itself from the types that this process encodes and decodes; when a fingerprint is
//! missing there, the types in the signatures of all remote functions are added.

use std::any::type_name;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use bireme_runtime::Error;
use bireme_runtime::core::failure::Failure;
use xxhash_rust::xxh3::xxh3_64;

/// The types in one signature, registered by the macros.
pub struct Types(pub fn() -> Vec<&'static str>);

inventory::collect!(Types);

static NAMES: Mutex<BTreeMap<u64, &'static str>> = Mutex::new(BTreeMap::new());
/// How a fingerprint without a name is shown.
const UNKNOWN: &str = "unknown, fingerprint ";
/// Slots of the per-thread memory of what was noted, so that the table's lock is taken once per type, not per value.
const RECENT_SLOTS: usize = 64;

thread_local! {
    static RECENT: [Cell<u64>; RECENT_SLOTS] = const { [const { Cell::new(0) }; RECENT_SLOTS] };
}

/// The fingerprint of `T`, whose name is remembered.
#[inline]
pub(crate) fn fingerprint<T: ?Sized>() -> u64 {
    let name = type_name::<T>();
    let print = xxh3_64(name.as_bytes());
    RECENT.with(|recent| {
        let slot = &recent[print as usize % RECENT_SLOTS];
        if slot.get() != print {
            names().insert(print, name);
            slot.set(print);
        }
    });
    print
}

/// The name behind a fingerprint.
pub(crate) fn name_of(print: u64) -> String {
    static SIGNATURES: Once = Once::new();
    SIGNATURES.call_once(|| {
        let mut names = names();
        for name in inventory::iter::<Types>.into_iter().flat_map(|types| (types.0)()) {
            names.insert(xxh3_64(name.as_bytes()), name);
        }
    });
    match names().get(&print) {
        Some(name) => (*name).to_owned(),
        None => format!("{UNKNOWN}{print:016x}"),
    }
}

/// A worker may not know the type of an object that it was given, while the reader of its failure does.
pub(crate) fn complete(error: Error) -> Error {
    let Error::Failed(failure) = &error else { return error };
    let Failure::TypeMismatch { expected, found } = &**failure else { return error };
    match found.strip_prefix(UNKNOWN).and_then(|print| u64::from_str_radix(print, 16).ok()) {
        Some(print) => {
            let (expected, found) = (expected.clone(), name_of(print));
            Error::Failed(Arc::new(Failure::TypeMismatch { expected, found }))
        }
        None => error,
    }
}

fn names() -> MutexGuard<'static, BTreeMap<u64, &'static str>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_gives_its_name_back_and_an_unknown_one_says_so() {
        assert_eq!(name_of(fingerprint::<Vec<i64>>()), type_name::<Vec<i64>>());
        assert!(name_of(12345).starts_with("unknown"));
    }
}
