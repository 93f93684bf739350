//! Which encoding a type gets: known after its first value.

use std::any::TypeId;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Value, probe};

/// How values of a type are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// In postcard: its reader asks for exactly what was written.
    Plain,
    /// With kinds and names.
    Described,
}

static FORMS: Mutex<Option<HashMap<TypeId, Form>>> = Mutex::new(None);

thread_local! {
    /// The type that this thread wrote last, so that a stream of equal values takes no lock.
    static LAST: Cell<Option<(TypeId, Form)>> = const { Cell::new(None) };
}

/// How values of `T` are written.
#[inline]
pub(super) fn of<T: Value>() -> Form {
    let id = TypeId::of::<T>();
    match LAST.get() {
        Some((last, form)) if last == id => form,
        _ => look_up::<T>(id),
    }
}

fn look_up<T: Value>(id: TypeId) -> Form {
    let known = forms().get_or_insert_default().get(&id).copied();
    // Not under the lock: this runs the user's code.
    let form = known.unwrap_or_else(|| if probe::reads_plain::<T>() { Form::Plain } else { Form::Described });
    forms().get_or_insert_default().entry(id).or_insert(form);
    LAST.set(Some((id, form)));
    form
}

/// A value of `T` was not plain: the next one is not tried as such.
pub(super) fn set_described<T: Value>() {
    let id = TypeId::of::<T>();
    forms().get_or_insert_default().insert(id, Form::Described);
    LAST.set(Some((id, Form::Described)));
}

fn forms() -> MutexGuard<'static, Option<HashMap<TypeId, Form>>> {
    FORMS.lock().unwrap_or_else(PoisonError::into_inner)
}
