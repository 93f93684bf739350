//! The way into keeper and worker mode: a constructor that runs before the user's `main`.
//!
//! The keeper is the user's own executable started again with [`VARIABLE`] in its environment. A pointer in
//! `.init_array` makes the C library call `enter` before `main` in every program that links this crate, test binaries
//! included; without the variable it returns at once. With it, the constructors that come after ours are called first
//! (registrations of remote functions are constructors too, and their order among crates is the linker's choice); then
//! keeper mode begins and never returns.
//!
//! The table of constructors is found through the executable's own program headers, so that no linker has to provide
//! symbols for it. In a library that was loaded into another program (a Python extension) the constructor does nothing:
//! the loader's lock is held there, and that program has constructors of its own that have not run.

use crate::keeper;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// The variable that makes a process a keeper (or, started one by one, a worker). Removed as soon as it is read.
pub const VARIABLE: &str = "BIREME_KEEPER";
const VARIABLE_C: &CStr = c"BIREME_KEEPER";

type Constructor = extern "C" fn(c_int, *const *const c_char, *const *const c_char);

#[used]
#[unsafe(link_section = ".init_array")]
static ENTRY: Constructor = enter;

/// Whether this code is part of the program that runs. In a library that another program has loaded it is not: that program,
/// started again, would run its own `main` and be no worker.
pub(crate) fn is_in_program() -> bool {
    !matches!(later_constructors(), Table::Elsewhere)
}

/// Keeps [`ENTRY`] in the program: whoever can start a keeper refers to it.
pub(crate) fn ensure_linked() {
    std::hint::black_box(&ENTRY);
}

/// The variable is still there although `main` runs: this process was meant to be a keeper and is none.
pub(crate) fn was_missed() -> bool {
    keeper::environment_has(VARIABLE_C)
}

extern "C" fn enter(argc: c_int, argv: *const *const c_char, envp: *const *const c_char) {
    if !keeper::environment_has(VARIABLE_C) {
        return;
    }
    match later_constructors() {
        Table::Elsewhere => return,
        Table::Missing => {
            eprintln!("bireme: this executable has no table of constructors; link it as position-independent");
            std::process::exit(keeper::EXIT_CODE_BROKEN);
        }
        Table::Later(constructors) => {
            for constructor in constructors {
                constructor(argc, argv, envp);
            }
        }
    }
    keeper::enter(VARIABLE)
}

enum Table {
    /// This code is in a library, not in the executable.
    Elsewhere,
    /// The executable has no dynamic section.
    Missing,
    /// The constructors after ours.
    Later(Vec<Constructor>),
}

fn later_constructors() -> Table {
    let mut table = Table::Elsewhere;
    // SAFETY: the callback has the right signature and gets a pointer to `table`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(read_executable), (&raw mut table).cast()) };
    table
}

/// Called for each loaded object; the first one is the executable, and the only one that is looked at.
unsafe extern "C" fn read_executable(object: *mut libc::dl_phdr_info, _size: usize, table: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid object, and `later_constructors` passes a `Table`.
    let (object, table) = unsafe { (&*object, &mut *table.cast::<Table>()) };
    // SAFETY: the loader describes that many headers, mapped for as long as the program runs.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let base = object.dlpi_addr as usize;
    let own_slot = (&raw const ENTRY).addr();
    let inside = headers.iter().any(|header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        header.p_type == libc::PT_LOAD && (start..start + header.p_memsz as usize).contains(&own_slot)
    });
    if !inside {
        return 1;
    }
    *table = Table::Missing;
    if let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) {
        let dynamic = base.wrapping_add(dynamic.p_vaddr as usize);
        // SAFETY: the address of the dynamic section of a loaded object.
        let (start, bytes) = unsafe { constructor_range(dynamic, base) };
        let end = start.wrapping_add(bytes);
        if (start..end).contains(&own_slot) {
            // SAFETY: our slot is inside the table, so what follows up to its end are slots too.
            *table = Table::Later(unsafe { read_slots(own_slot + size_of::<usize>(), end) });
        }
    }
    1
}

/// Address and length of the table of constructors, from the dynamic section.
///
/// # Safety
/// `dynamic` is the address of the dynamic section of an object loaded at `base`.
unsafe fn constructor_range(dynamic: usize, base: usize) -> (usize, usize) {
    const DT_NULL: usize = 0;
    const DT_INIT_ARRAY: usize = 25;
    const DT_INIT_ARRAYSZ: usize = 27;
    let mut entry: *const [usize; 2] = ptr::with_exposed_provenance(dynamic);
    let (mut start, mut bytes) = (0, 0);
    loop {
        // SAFETY: the section is a list of (tag, value) that ends in DT_NULL, and we stop there.
        let [tag, value] = unsafe { entry.read() };
        match tag {
            DT_NULL => return (start, bytes),
            DT_INIT_ARRAY => start = base.wrapping_add(value),
            DT_INIT_ARRAYSZ => bytes = value,
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
}

/// The constructors in the slots from `start` to `end`.
///
/// # Safety
/// The range consists of slots of the table of constructors of this executable, after relocation.
unsafe fn read_slots(start: usize, end: usize) -> Vec<Constructor> {
    let slots = (start..end).step_by(size_of::<usize>());
    // SAFETY: each address is a slot; 0 and all ones are the fillers of old linkers and are no functions.
    let slots = slots.map(|slot| unsafe { ptr::with_exposed_provenance::<usize>(slot).read() });
    slots
        .filter(|word| *word != 0 && *word != usize::MAX)
        // SAFETY: what is left are functions that the C library would call with these arguments.
        .map(|word| unsafe { std::mem::transmute::<*const (), Constructor>(ptr::with_exposed_provenance(word)) })
        .collect()
}
