//! A worker that owns children and has lent references is killed at every boundary between two of its records.
//!
//! The scenario has nested children, puts, references returned inside results, a process that borrows them, and an actor
//! that counts side effects. Whatever the boundary: borrowers read on, the re-run adopts what exists, what finished is
//! not run twice, and nobody sees two values for one id.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bireme::{Error, Failure, ObjectId, ObjectRef};
use bireme_runtime::fail_point;
use serde::{Deserialize, Serialize};
use support::{Driver, Journal, Scratch, first, note, scenario, start, two_cpus};

/// Sees every value that anybody has read, by object, and every side effect.
#[derive(Default)]
pub struct Observer {
    seen: BTreeMap<String, u64>,
    effects: BTreeMap<String, u32>,
    conflicts: Vec<String>,
    held: Vec<ObjectRef<u64>>,
}

#[bireme::actor]
impl Observer {
    pub fn new() -> Self {
        Self::default()
    }

    /// Somebody has read this.
    pub fn saw(&mut self, object: String, value: u64) {
        let before = *self.seen.entry(object.clone()).or_insert(value);
        if before != value {
            self.conflicts.push(format!("{object} was {before} and is {value}"));
        }
    }

    /// A side effect, counted by name.
    pub fn did(&mut self, what: String) {
        *self.effects.entry(what).or_default() += 1;
    }

    /// Borrows references beyond the lender's life.
    pub fn hold(&mut self, references: Vec<ObjectRef<u64>>) {
        self.held.extend(references);
    }

    /// Reads what it borrowed and is there, and says whether that is all. It waits for none: a child that makes one of them
    /// may be about to call. With `lost_too`, what was never made and never will be is read as that.
    pub fn read(&mut self, lost_too: bool) -> bireme::Result<bool> {
        for reference in std::mem::take(&mut self.held) {
            match reference.get_timeout(Duration::ZERO) {
                Err(Error::Timeout { .. }) => self.held.push(reference),
                Err(error) if lost_too && matches!(error.failure(), Some(Failure::OwnerDied { .. })) => {}
                value => self.saw(reference.id().to_string(), value?),
            }
        }
        Ok(self.held.is_empty())
    }

    pub fn report(&self) -> (Vec<String>, BTreeMap<String, u32>) {
        (self.conflicts.clone(), self.effects.clone())
    }
}

fn unique() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_nanos() as u64 ^ u64::from(std::process::id()) << 40
}

/// Every run of it gives another value: running it twice shows.
#[bireme::remote(retries = 20)]
fn leaf(observer: ObserverHandle, name: String) -> bireme::Result<u64> {
    eprintln!("process {} runs leaf {name} as {}", std::process::id(), bireme::current_task()?);
    observer.did(format!("leaf {name}")).get()?;
    Ok(unique())
}

#[bireme::remote(retries = 20)]
fn branch(observer: ObserverHandle, name: String) -> bireme::Result<ObjectRef<u64>> {
    let inner = leaf::remote(observer.clone(), format!("{name}/inner"));
    observer.did(format!("branch {name}")).get()?;
    Ok(inner)
}

fn read(observer: &ObserverHandle, reference: &ObjectRef<u64>) -> bireme::Result<u64> {
    let value = reference.get()?;
    observer.saw(reference.id().to_string(), value).get()?;
    Ok(value)
}

/// When and how the lender dies, and whether it does something else the second time.
#[derive(Clone, Serialize, Deserialize)]
struct Plan {
    marker: PathBuf,
    /// At this record of its first run.
    at: u64,
    after: bool,
    /// It puts another value each time: from there on nothing of the first run can be adopted.
    differs: bool,
    /// It drops the reference to a child that has ended before it ends itself.
    lets_go: bool,
}

#[bireme::remote(retries = 20, name = "lender")]
fn lender(observer: ObserverHandle, journal: PathBuf, plan: Plan) -> bireme::Result<(Vec<ObjectRef<u64>>, u64)> {
    let is_first = first(&plan.marker);
    note(&journal, if is_first { "first" } else { "again" });
    eprintln!("process {} runs the lender as {}", std::process::id(), bireme::current_task()?);
    if is_first {
        fail_point::kill_at_record(plan.at, plan.after)?;
    }
    let small = bireme::put(if plan.differs { unique() } else { 42 })?;
    read(&observer, &small)?;
    let a = leaf::remote(observer.clone(), "a");
    observer.hold(vec![a.clone(), small.clone()]).get()?;
    let b = leaf::remote(observer.clone(), "b");
    let a_value = read(&observer, &a)?;
    let mut branches = vec![branch::remote(observer.clone(), "c")];
    let nested = branches[0].get()?;
    if plan.lets_go {
        branches.clear();
    }
    let c_value = read(&observer, &nested)?;
    let unread = leaf::remote(observer.clone(), "d");
    if plan.lets_go {
        drop(leaf::remote(observer.clone(), "dropped"));
    }
    Ok((vec![small, a, b, nested, unread], a_value ^ c_value))
}

/// Gives how many results were lost with their owner.
fn play(observer: &ObserverHandle, journal: &Path, plan: Plan) -> usize {
    let differs = plan.differs;
    let outcome = lender::remote(observer.clone(), journal.to_owned(), plan);
    let (references, _) = outcome.get_timeout(support::PATIENCE).unwrap();
    // A child that nobody had started when its owner died, after its parent had ended, is lost and says so.
    let try_read = |reference: &ObjectRef<u64>| match read(observer, reference) {
        Err(error) if matches!(error.failure(), Some(Failure::OwnerDied { .. })) => None,
        value => Some(value.unwrap()),
    };
    let values: Vec<Option<u64>> = references.iter().map(try_read).collect();
    // What the actor borrowed from the first run and from the second reads the same for ever.
    support::eventually("what was borrowed is there", || {
        observer.read(differs).get_timeout(support::PATIENCE).unwrap()
    });
    let again: Vec<Option<u64>> = references.iter().map(try_read).collect();
    assert_eq!(values, again);
    let distinct: std::collections::BTreeSet<ObjectId> = references.iter().map(ObjectRef::id).collect();
    assert_eq!(distinct.len(), references.len());
    values.iter().filter(|value| value.is_none()).count()
}

/// Kills the lender at one boundary after the other until it survives. Gives how many there were.
fn walk(differs: bool, lets_go: bool, after: bool) -> u64 {
    // One task per process: what dies with the lender is the lender alone. A runtime per walk: the lender that survives
    // leaves a worker behind that would still die at a later record.
    let _turn = start(two_cpus().threads_per_worker_max(1));
    let scratch = Scratch::new("boundaries");
    let mut journal = Journal::new(&scratch, "journal");
    for at in 1..200 {
        let observer = Observer::remote();
        let place = format!("killed at record {at}, after: {after}, differs: {differs}");
        eprintln!("{place}");
        let lost =
            play(&observer, &journal.path, Plan { marker: scratch.path(&at.to_string()), at, after, differs, lets_go });
        let runs = journal.rest();
        assert!(lost == 0 || runs.len() == 1, "only a parent that has ended can lose a child: {place}");
        let (conflicts, effects) = observer.report().get().unwrap();
        assert_eq!(conflicts, Vec::<String>::new(), "{place}; {effects:?}");
        for child in ["leaf a", "leaf b", "leaf c/inner", "leaf d", "branch c"] {
            let count = effects.get(child).copied().unwrap_or(0);
            // What a run that is not repeated made is made again by the next.
            let most = if differs { runs.len() as u32 } else { 1 };
            let least = u32::from(lost == 0 || !["leaf b", "leaf d"].contains(&child));
            assert!((least..=most).contains(&count), "{child} happened {count} times, {place}");
        }
        if runs.len() == 1 {
            return at - 1;
        }
        assert_eq!(runs, ["first", "again"], "{place}");
    }
    panic!("the lender writes more records than anybody expected");
}

#[test]
fn a_lender_killed_at_every_record_boundary_leaves_one_value_per_id_and_one_effect_per_child() {
    for after in [false, true] {
        let boundaries = walk(false, false, after);
        assert!(boundaries >= 8, "only {boundaries} records");
    }
}

#[test]
fn a_lender_that_does_something_else_the_second_time_leaves_one_value_per_id_too() {
    for after in [false, true] {
        walk(true, false, after);
    }
}

#[test]
fn a_child_that_its_parent_has_let_go_of_is_not_made_twice_under_one_id() {
    for after in [false, true] {
        walk(false, true, after);
    }
}

/// Counts in the journal instead of an actor, since here every process dies.
// A slot is used again only when all have settled the death of its last worker, so under load a task can meet more first
// workers of fresh slots than any small number of retries: what is asked here is that the job ends, not how soon.
#[bireme::remote(retries = 1_000)]
fn mortal_leaf(journal: PathBuf, name: String) -> u64 {
    note(&journal, format!("leaf {name}"));
    7
}

#[bireme::remote(retries = 1_000)]
fn mortal_root(journal: PathBuf, width: u64) -> bireme::Result<u64> {
    let kept = bireme::put(1_u64)?;
    let leaves: Vec<_> = (0..width).map(|n| mortal_leaf::remote(journal.clone(), n.to_string())).collect();
    Ok(bireme::get_all(&leaves)?.iter().sum::<u64>() + kept.get()?)
}

#[test]
fn the_driver_that_other_tests_start() {
    let Some(journal) = scenario() else { return };
    let _turn = start(two_cpus());
    let roots: Vec<_> = (0..3).map(|_| mortal_root::remote(PathBuf::from(&journal), 3)).collect();
    let sums = bireme::get_all(&roots).unwrap();
    println!("sums={sums:?}");
}

#[test]
fn when_the_first_worker_of_every_slot_dies_at_a_record_the_job_still_ends() {
    let scratch = Scratch::new("every-slot");
    for n in 1..=6 {
        for side in ["", ":after"] {
            let journal = Journal::new(&scratch, &format!("{n}{side}"));
            let plan = format!("{n}{side}");
            let settings = [(fail_point::VARIABLE, plan.as_str())];
            let mut driver =
                Driver::start("the_driver_that_other_tests_start", journal.path.to_str().unwrap(), &settings);
            assert_eq!(driver.tells("sums"), "[22, 22, 22]", "{plan}");
        }
    }
}
