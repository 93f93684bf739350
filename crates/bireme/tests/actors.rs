//! Actors as users write them. One runtime per process.
#![allow(clippy::unwrap_used, missing_docs)]

use bireme::{CallOptions, Context, Error, Failure, ObjectRef};

fn start() -> Context {
    bireme::init_with(bireme::Config::default().cpus(2.0)).unwrap()
}

/// Counts.
pub struct Counter {
    total: i64,
}

#[bireme::actor]
impl Counter {
    pub fn new(start: i64) -> Self {
        Counter { total: start }
    }

    /// Adds.
    pub fn add(&mut self, n: i64) -> i64 {
        self.total += self.check(n);
        self.total
    }

    pub fn get(&self) -> i64 {
        self.total
    }

    pub fn take(&mut self, n: i64) -> Result<i64, String> {
        if n > self.total {
            return Err(format!("only {} left", self.total));
        }
        self.total -= n;
        Ok(self.total)
    }

    pub fn fall(&mut self) {
        panic!("man overboard")
    }

    pub fn pid(&self) -> u32 {
        std::process::id()
    }

    /// A function without `self` stays plain.
    pub fn zero() -> i64 {
        0
    }

    fn check(&self, n: i64) -> i64 {
        n
    }
}

#[test]
fn an_actor_keeps_its_state_between_calls_and_runs_them_in_order() {
    let _context = start();
    let counter = Counter::remote(10);
    let totals: Vec<_> = (1..=100).map(|n| counter.add(n)).collect();
    let expected: Vec<i64> = (1..=100).map(|n| 10 + n * (n + 1) / 2).collect();
    assert_eq!(bireme::get_all(&totals).unwrap(), expected);
    assert_eq!(counter.get().get().unwrap(), 10 + 5050);
    let mut here = Counter::new(Counter::zero());
    assert_eq!(here.add(2), 2);
}

#[test]
fn references_are_arguments_of_constructors_and_methods() {
    let _context = start();
    let start = bireme::put(5).unwrap();
    let counter = Counter::remote(&start);
    let n = counter.add(start);
    assert_eq!(counter.add(n).get().unwrap(), 20);
}

#[test]
fn errors_and_panics_of_methods_leave_the_actor_alive() {
    let _context = start();
    let counter = Counter::remote(1);
    let error = counter.take(5).get().unwrap_err();
    assert!(matches!(error.failure(), Some(Failure::Returned { message, .. }) if message == "only 1 left"), "{error}");
    let error = counter.fall().get().unwrap_err();
    assert!(matches!(error.failure(), Some(Failure::Panicked { .. })), "{error}");
    assert_eq!(counter.take(1).get().unwrap(), 0);
}

#[bireme::remote]
fn add_elsewhere(counter: CounterHandle, n: i64) -> bireme::Result<i64> {
    counter.add(n).get()
}

#[bireme::remote]
fn make_elsewhere(start: i64) -> CounterHandle {
    Counter::remote(start)
}

#[test]
fn handles_travel_to_tasks_and_back() {
    let _context = start();
    let counter = Counter::remote(0);
    let calls: Vec<_> = (0..10).map(|_| add_elsewhere::remote(counter.clone(), 1)).collect();
    bireme::get_all(&calls).unwrap();
    assert_eq!(counter.get().get().unwrap(), 10);
    let other = make_elsewhere::remote(7).get().unwrap();
    assert_eq!(other.add(1).get().unwrap(), 8);
}

pub struct Relay {
    next: CounterHandle,
}

#[bireme::actor(handle = RelayRope)]
impl Relay {
    #[bireme::constructor]
    pub fn tied_to(next: CounterHandle) -> Self {
        Relay { next }
    }

    pub fn pull(&self, n: i64) -> ObjectRef<i64> {
        self.next.add(n)
    }
}

#[test]
fn an_actor_can_hold_the_handle_of_another() {
    let _context = start();
    let counter = Counter::remote(1);
    let relay: RelayRope = Relay::remote(counter);
    assert_eq!(relay.pull(2).get().unwrap().get().unwrap(), 3);
}

#[test]
fn named_actors_are_found_by_name_and_type() {
    let _context = start();
    let counter = Counter::options().name("count").remote(3);
    counter.ready().get().unwrap();
    let found = bireme::get_actor::<Counter>("count").unwrap();
    assert_eq!(found.add(1).get().unwrap(), 4);
    assert_eq!(found.id(), counter.id());
    let error = bireme::get_actor::<Relay>("count").unwrap_err();
    let Error::TypeMismatch { expected, found } = &error else { panic!("{error}") };
    assert!(expected.ends_with("Relay") && found.ends_with("Counter"), "{error}");
    assert!(matches!(bireme::get_actor::<Counter>("nobody"), Err(Error::NoSuchActor(name)) if name == "nobody"));
}

#[test]
fn a_killed_actor_refuses_calls_and_a_second_kill_changes_nothing() {
    let _context = start();
    let counter = Counter::remote(0);
    counter.ready().get().unwrap();
    counter.kill().unwrap();
    let error = counter.add(1).get().unwrap_err();
    assert!(matches!(error.failure(), Some(Failure::ActorDied { .. })), "{error}");
    counter.kill().unwrap();
    bireme::kill(&counter).unwrap();
}

pub struct Fragile;

#[bireme::actor]
impl Fragile {
    pub fn new(good: bool) -> Result<Self, String> {
        if good { Ok(Fragile) } else { Err("it broke".to_owned()) }
    }

    pub fn me(&self) -> Option<u8> {
        Some(1)
    }
}

#[test]
fn a_constructor_can_fail_and_its_error_reaches_the_calls() {
    let _context = start();
    assert_eq!(Fragile::remote(true).me().get().unwrap(), Some(1));
    let fragile = Fragile::remote(false);
    for error in [fragile.ready().get().unwrap_err(), fragile.me().get().unwrap_err()] {
        assert!(error.to_string().contains("it broke"), "{error}");
    }
}

#[bireme::remote]
fn gate(file: std::path::PathBuf) -> i64 {
    while !file.exists() {
        std::thread::yield_now();
    }
    1
}

#[test]
fn more_pending_calls_than_allowed_are_refused_at_once() {
    let _context = start();
    let file = std::env::temp_dir().join(format!("bireme-gate-{}", std::process::id()));
    let counter = Counter::options().max_pending_calls(2).remote(0);
    counter.ready().get().unwrap();
    let open = gate::remote(file.clone());
    let pending = [counter.add(&open), counter.add(&open)];
    let error = counter.add(1).submitted().unwrap_err();
    assert!(matches!(error, Error::PendingCallsLimit { pending: 2, .. }), "{error}");
    assert!(matches!(counter.add(1).get().unwrap_err(), Error::PendingCallsLimit { .. }));
    std::fs::write(&file, "open").unwrap();
    assert_eq!(bireme::get_all(&pending).unwrap(), [1, 2]);
    assert_eq!(counter.add(1).get().unwrap(), 3);
    let _ = std::fs::remove_file(&file);
}

#[test]
fn bad_options_of_an_actor_are_errors_of_every_call_or_at_once() {
    let _context = start();
    assert!(matches!(Counter::options().cpus(f64::NAN).try_remote(1), Err(Error::BadAmount(_))));
    assert!(matches!(Counter::options().name("").try_remote(1), Err(Error::BadArgument(_))));
    let refused = Counter::options().max_pending_calls(0).remote(1);
    assert!(matches!(refused.add(1).get(), Err(Error::BadArgument(_))));
    assert!(matches!(refused.ready().get(), Err(Error::BadArgument(_))));
    assert!(matches!(refused.kill(), Err(Error::BadArgument(_))));
}

#[test]
fn a_taken_name_is_a_failure_of_its_own_and_its_calls_say_so() {
    let _context = start();
    let first = Counter::options().name("job/counter").remote(1);
    first.ready().get().unwrap();
    assert_eq!(bireme::named_actors().unwrap(), ["job/counter"]);
    let second = Counter::options().name("job/counter").remote(2);
    let Err(Error::Failed(failure)) = second.ready().get() else { panic!("the name is taken") };
    assert_eq!(*failure, Failure::NameTaken { name: "job/counter".to_owned(), holder: first.id() });
    let error = second.add(1).get().unwrap_err().to_string();
    assert!(error.contains("job/counter") && error.contains("belongs to"), "{error}");
    assert_eq!(first.add(1).get().unwrap(), 2);
    let others = Counter::options().name("other/counter").remote(3);
    others.ready().get().unwrap();
    assert_eq!(bireme::named_actors().unwrap(), ["job/counter", "other/counter"]);
}

pub struct Diver;

#[bireme::actor]
impl Diver {
    pub fn new() -> Self {
        Diver
    }

    /// The first dive kills its process.
    pub fn dive(&self, marker: std::path::PathBuf) -> u32 {
        if std::fs::File::options().write(true).create_new(true).open(marker).is_ok() {
            std::process::abort();
        }
        7
    }

    pub fn drown(&self) {
        panic!("no air")
    }

    #[bireme::stream]
    pub fn depths(&self, n: u64) -> impl Iterator<Item = u64> {
        0..n
    }
}

fn name_in(error: &Error) -> &str {
    match error.failure() {
        Some(Failure::Panicked { name, .. }) => name,
        other => panic!("{other:?}"),
    }
}

#[bireme::remote]
fn drown_there(diver: DiverHandle) -> String {
    name_in(&diver.drown().get().unwrap_err()).to_owned()
}

#[test]
fn calls_have_the_choices_of_the_handle_through_which_they_are_made() {
    let _context = start();
    let diver = Diver::options().restarts(2).remote();
    let marker = |n: u32| std::env::temp_dir().join(format!("bireme-dive-{n}-{}", std::process::id()));
    assert!(diver.dive(marker(1)).get().is_err(), "a call is not tried again unless that was chosen");
    let patient = diver.with_options(CallOptions::new().retries(1).name("deep dive"));
    assert_eq!(patient.dive(marker(2)).get().unwrap(), 7);
    (1..=2).for_each(|n| std::fs::remove_file(marker(n)).unwrap());
    assert_eq!(name_in(&patient.drown().get().unwrap_err()), "deep dive");
    assert_eq!(drown_there::remote(patient.clone()).get().unwrap(), "deep dive");
    assert_eq!(name_in(&diver.drown().get().unwrap_err()), "Diver::drown");
}

#[test]
fn limits_of_a_stream_are_choices_of_its_calls_alone() {
    let _context = start();
    let diver = Diver::remote();
    let limited = diver.with_options(CallOptions::new().max_buffered_items(1));
    let depths: Vec<u64> = limited.depths(5).map(|depth| depth.get().unwrap()).collect();
    assert_eq!(depths, [0, 1, 2, 3, 4]);
    assert!(matches!(limited.drown().get(), Err(Error::BadArgument(text)) if text.contains("#[bireme::stream]")));
    let stuck = diver.with_options(CallOptions::new().max_buffered_bytes(0));
    assert!(matches!(stuck.depths(1).submitted(), Err(Error::BadArgument(_))));
}
