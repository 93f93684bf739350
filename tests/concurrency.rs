//! Actors that run several calls at once: on threads, and deferred, with an end that comes from elsewhere.
//!
//! The Rust front end's actors run one call at a time, so these are made of bare functions, as an interpreter's are.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Barrier, Mutex};

use bireme_runtime::core::failure::Failure;
use bireme_runtime::core::id::{ActorId, TaskId};
use bireme_runtime::core::spec::{ACTOR_CONCURRENCY_MAX, ActorOptions, TaskOptions};
use bireme_runtime::{
    Encoded, Error, Function, Invocation, Ref, Runtime, Submit, Target, Ticket, inventory, set_cancel_hook,
};
use support::{PATIENCE, start, two_cpus};

type Ran = Result<(), Failure>;

const CONSTRUCT: Function = function("construct", construct);
const CONSTRUCT_DEFERRING: Function = function("construct_deferring", construct_deferring);
const MEET: Function = function("meet", meet);
const HOLD: Function = function("hold", hold);
const RELEASE: Function = function("release", release);
const HELD: Function = function("held", held);
const THREADS: Function = function("threads", threads);
const FORGET: Function = function("forget", forget);
const EAGER: Function = function("eager", eager);
const DEFER_AND_FAIL: Function = function("defer_and_fail", defer_and_fail);
const ASK_SELF: Function = function("ask_self", ask_self);
const SCOPED: Function = function("scoped", scoped);

inventory::submit! { CONSTRUCT }
inventory::submit! { CONSTRUCT_DEFERRING }
inventory::submit! { MEET }
inventory::submit! { HOLD }
inventory::submit! { RELEASE }
inventory::submit! { HELD }
inventory::submit! { THREADS }
inventory::submit! { FORGET }
inventory::submit! { EAGER }
inventory::submit! { DEFER_AND_FAIL }
inventory::submit! { ASK_SELF }
inventory::submit! { SCOPED }

const fn function(signature: &'static str, run: fn(&mut Invocation<'_>) -> Ran) -> Function {
    Function::by_hand(signature, run)
}

fn number(value: u32) -> Encoded {
    Encoded { head: value.to_le_bytes().to_vec(), ..Encoded::default() }
}

/// How many calls meet at a time.
const PARTY: u32 = 4;
static RUNNING: AtomicU32 = AtomicU32::new(0);
static MOST: AtomicU32 = AtomicU32::new(0);
static MET: Mutex<Option<Arc<Barrier>>> = Mutex::new(None);
static CANCELLED: Mutex<Option<Sender<TaskId>>> = Mutex::new(None);
static TICKETS: Mutex<Vec<Ticket>> = Mutex::new(Vec::new());

fn construct(invocation: &mut Invocation<'_>) -> Ran {
    invocation.outputs.push(number(0));
    Ok(())
}

/// The constructor of an actor whose calls defer: cancelled ones are ended by a thread that hears of it.
fn construct_deferring(invocation: &mut Invocation<'_>) -> Ran {
    invocation.calls_defer();
    let (sender, cancelled) = mpsc::channel();
    *CANCELLED.lock().unwrap() = Some(sender);
    set_cancel_hook(|task| CANCELLED.lock().unwrap().as_ref().unwrap().send(task).unwrap());
    std::thread::spawn(move || {
        for task in cancelled {
            let mut tickets = TICKETS.lock().unwrap();
            let at = tickets.iter().position(|ticket| ticket.task() == task).unwrap();
            let ticket = tickets.remove(at);
            drop(tickets);
            assert!(ticket.is_cancelled());
            ticket.finish(Err(Failure::Cancelled { task }));
        }
    });
    construct(invocation)
}

/// Waits for the others of its party; gives the most that ever ran at once.
fn meet(invocation: &mut Invocation<'_>) -> Ran {
    let now = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
    MOST.fetch_max(now, Ordering::SeqCst);
    let party = Arc::clone(MET.lock().unwrap().get_or_insert_with(|| Arc::new(Barrier::new(PARTY as usize))));
    party.wait();
    RUNNING.fetch_sub(1, Ordering::SeqCst);
    invocation.outputs.push(number(MOST.load(Ordering::SeqCst)));
    Ok(())
}

/// Goes on until it is released.
fn hold(invocation: &mut Invocation<'_>) -> Ran {
    TICKETS.lock().unwrap().push(invocation.defer());
    Ok(())
}

/// Ends all that is held, each with its place in the order in which they began, from another thread.
fn release(invocation: &mut Invocation<'_>) -> Ran {
    let held = std::mem::take(&mut *TICKETS.lock().unwrap());
    invocation.outputs.push(number(held.len() as u32));
    let outcomes = held.into_iter().zip(0..).map(|(ticket, at)| (ticket, Ok(vec![number(at)]))).collect();
    std::thread::spawn(move || Ticket::finish_all(outcomes)).join().unwrap();
    Ok(())
}

fn held(invocation: &mut Invocation<'_>) -> Ran {
    invocation.outputs.push(number(TICKETS.lock().unwrap().len() as u32));
    Ok(())
}

fn threads(invocation: &mut Invocation<'_>) -> Ran {
    invocation.outputs.push(number(std::fs::read_dir("/proc/self/task").unwrap().count() as u32));
    Ok(())
}

fn forget(invocation: &mut Invocation<'_>) -> Ran {
    drop(invocation.defer());
    Ok(())
}

/// Is ended before its function returns.
fn eager(invocation: &mut Invocation<'_>) -> Ran {
    let ticket = invocation.defer();
    std::thread::spawn(move || ticket.finish(Ok(vec![number(7)]))).join().unwrap();
    Ok(())
}

fn defer_and_fail(invocation: &mut Invocation<'_>) -> Ran {
    TICKETS.lock().unwrap().push(invocation.defer());
    Err(Failure::ObjectLost { object: ActorId(invocation.task).object(), reason: "planned".into() })
}

/// Calls its own actor, which it finds by name, and waits for the answer.
fn ask_self(invocation: &mut Invocation<'_>) -> Ran {
    let runtime = Runtime::current().unwrap();
    let name = std::str::from_utf8(invocation.payload).unwrap();
    let (id, _, handle) = runtime.find_actor(name, None).unwrap();
    let actor = Actor { runtime, id, handle };
    let answer = actor.get(&actor.call(&THREADS)).unwrap();
    invocation.outputs.push(number(answer));
    Ok(())
}

/// What another thread submits in the scope of the ticket is the task's.
fn scoped(invocation: &mut Invocation<'_>) -> Ran {
    let mut ticket = invocation.defer();
    std::thread::spawn(move || {
        let runtime = Runtime::current().unwrap();
        let outside = runtime.current_task();
        let inside = ticket.scope(|| runtime.current_task());
        let again = runtime.current_task();
        let child = ticket.scope(|| submit(&runtime, &THREADS, Target::Plain, 0, Vec::new())).unwrap();
        let as_task = inside == ticket.task() && outside == again && outside != inside;
        runtime.get(&child, Some(PATIENCE)).unwrap();
        ticket.finish(Ok(vec![number(u32::from(as_task))]));
    });
    Ok(())
}

struct Actor {
    runtime: Runtime,
    id: ActorId,
    handle: Ref,
}

fn submit(
    runtime: &Runtime,
    function: &Function,
    target: Target,
    retries_max: u32,
    payload: Vec<u8>,
) -> Result<Ref, Error> {
    let resources = Default::default();
    let options = TaskOptions { name: function.name.into(), resources, retries_max, ..TaskOptions::default() };
    let (options, function) = (Arc::new(options), function.key());
    let (dependencies, nested, keep) = (Vec::new(), Vec::new(), Vec::new());
    let request = Submit {
        function,
        options,
        returns: 1,
        target,
        dependencies,
        nested,
        payload,
        keep,
        stream: None,
        inherits: true,
    };
    Ok(runtime.submit(request)?.remove(0))
}

impl Actor {
    fn new(constructor: &Function, concurrency_max: u32) -> Self {
        Self::with(constructor, ActorOptions { concurrency_max, ..ActorOptions::default() }).unwrap()
    }

    fn with(constructor: &Function, options: ActorOptions) -> Result<Self, Error> {
        let runtime = Runtime::current().unwrap();
        let handle = submit(&runtime, constructor, Target::Create { options, namespace: None }, 0, Vec::new())?;
        Ok(Self { runtime, id: ActorId(handle.id().task()), handle })
    }

    fn call(&self, function: &Function) -> Ref {
        self.call_with(function, 0, Vec::new())
    }

    fn call_with(&self, function: &Function, retries_max: u32, payload: Vec<u8>) -> Ref {
        let target = Target::Call { actor: self.id, handle: self.handle.clone(), pending_max: usize::MAX };
        submit(&self.runtime, function, target, retries_max, payload).unwrap()
    }

    fn get(&self, reference: &Ref) -> Result<u32, Error> {
        let bytes = self.runtime.get(reference, Some(PATIENCE))?;
        Ok(u32::from_le_bytes(bytes[..].try_into().unwrap()))
    }

    fn failure(&self, reference: &Ref) -> Failure {
        match self.get(reference).unwrap_err() {
            Error::Failed(failure) => (*failure).clone(),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn calls_run_on_threads_up_to_the_limit() {
    let _turn = start(two_cpus());
    let actor = Actor::new(&CONSTRUCT, PARTY);
    let calls: Vec<Ref> = (0..3 * PARTY).map(|_| actor.call(&MEET)).collect();
    let most: Vec<u32> = calls.iter().map(|call| actor.get(call).unwrap()).collect();
    assert!(most.iter().all(|most| *most == PARTY), "{most:?}");
}

#[test]
fn a_thousand_deferred_calls_run_at_once_without_a_thread_each_and_begin_in_order() {
    let _turn = start(two_cpus());
    let actor = Actor::new(&CONSTRUCT_DEFERRING, 2_001);
    for round in 0..3 {
        // More than one caller has in flight with a serial actor.
        let held: Vec<Ref> = (0..2_000).map(|_| actor.call(&HOLD)).collect();
        let threads = actor.call(&THREADS);
        assert!(actor.get(&threads).unwrap() < 10, "round {round}");
        assert_eq!(actor.get(&actor.call(&RELEASE)).unwrap(), 2_000);
        let order: Vec<u32> = held.iter().map(|call| actor.get(call).unwrap()).collect();
        assert_eq!(order, (0..2_000).collect::<Vec<_>>());
    }
}

#[test]
fn a_finished_call_lets_the_next_one_start_whoever_finishes_it() {
    let _turn = start(two_cpus());
    let actor = Actor::new(&CONSTRUCT_DEFERRING, 2);
    let calls: Vec<Ref> = (0..50).flat_map(|_| [actor.call(&HOLD), actor.call(&RELEASE)]).collect();
    for pair in calls.chunks(2) {
        assert_eq!((actor.get(&pair[0]).unwrap(), actor.get(&pair[1]).unwrap()), (0, 1));
    }
    let (first, second) = (actor.call(&HOLD), actor.call(&SCOPED));
    assert_eq!(actor.get(&second).unwrap(), 1, "it ran as the task, on a thread of its own");
    assert_eq!(actor.get(&actor.call(&RELEASE)).unwrap(), 1);
    assert_eq!(actor.get(&first).unwrap(), 0);
}

#[test]
fn a_dropped_ticket_fails_its_call_and_says_so() {
    let _turn = start(two_cpus());
    let actor = Actor::new(&CONSTRUCT_DEFERRING, 8);
    let failure = actor.failure(&actor.call(&FORGET));
    assert!(failure.to_string().contains("nobody finished it"), "{failure}");
    assert_eq!(actor.get(&actor.call(&HELD)).unwrap(), 0, "the actor goes on");
}

#[test]
fn a_call_ends_once_whether_its_ticket_or_its_function_is_first() {
    let _turn = start(two_cpus());
    let actor = Actor::new(&CONSTRUCT_DEFERRING, 8);
    assert_eq!(actor.get(&actor.call(&EAGER)).unwrap(), 7);
    assert!(matches!(actor.failure(&actor.call(&DEFER_AND_FAIL)), Failure::ObjectLost { .. }));
    assert_eq!(actor.get(&actor.call(&RELEASE)).unwrap(), 1, "its ticket comes too late and harms nothing");
    assert_eq!(actor.get(&actor.call(&HELD)).unwrap(), 0);
}

#[test]
fn a_deferred_call_hears_that_it_is_cancelled() {
    let _turn = start(two_cpus());
    let actor = Actor::new(&CONSTRUCT_DEFERRING, 8);
    let calls = [0; 3].map(|_| actor.call(&HOLD));
    assert_eq!(actor.get(&actor.call(&HELD)).unwrap(), 3);
    actor.runtime.cancel(&calls[1], false, true).unwrap();
    assert!(matches!(actor.failure(&calls[1]), Failure::Cancelled { .. }));
    assert_eq!(actor.get(&actor.call(&RELEASE)).unwrap(), 2, "the others run on");
    assert_eq!((actor.get(&calls[0]).unwrap(), actor.get(&calls[2]).unwrap()), (0, 1));
}

#[test]
fn every_running_call_of_an_actor_that_is_started_again_is_lost_or_tried_again() {
    let _turn = start(two_cpus());
    let options = ActorOptions { concurrency_max: 16, restarts_max: 1, ..ActorOptions::default() };
    let actor = Actor::with(&CONSTRUCT_DEFERRING, options).unwrap();
    let lost = [0; 3].map(|_| actor.call(&HOLD));
    let retried = [0; 3].map(|_| actor.call_with(&HOLD, 1, Vec::new()));
    assert_eq!(actor.get(&actor.call(&HELD)).unwrap(), 6);
    actor.runtime.kill_actor(actor.id, true).unwrap();
    for call in &lost {
        assert!(matches!(actor.failure(call), Failure::ActorDied { .. }));
    }
    assert_eq!(actor.get(&actor.call(&RELEASE)).unwrap(), 3);
    assert_eq!(retried.each_ref().map(|call| actor.get(call).unwrap()), [0, 1, 2]);
}

#[test]
fn an_actor_may_call_itself_and_wait() {
    let _turn = start(two_cpus());
    let name = Some("narcissus".to_owned());
    let options = ActorOptions { name, concurrency_max: 2, ..ActorOptions::default() };
    let actor = Actor::with(&CONSTRUCT, options).unwrap();
    actor.runtime.get(&actor.handle, Some(PATIENCE)).unwrap();
    for _ in 0..20 {
        assert!(actor.get(&actor.call_with(&ASK_SELF, 0, b"narcissus".to_vec())).unwrap() > 0);
    }
}

#[test]
fn too_many_calls_at_once_are_refused_when_the_actor_is_made() {
    let _turn = start(two_cpus());
    let options = ActorOptions { concurrency_max: ACTOR_CONCURRENCY_MAX + 1, ..ActorOptions::default() };
    let Err(Error::BadArgument(text)) = Actor::with(&CONSTRUCT, options) else { panic!("it was made") };
    assert!(text.contains("10001 calls at once"), "{text}");
}
