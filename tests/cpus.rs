//! CPUs while tasks wait: who lends one, who gets it, and which processes tasks run in.
#![allow(clippy::unwrap_used, missing_docs)]
#![forbid(unsafe_code)]

mod support;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bireme::ObjectRef;
use support::{Gate, Scratch, pass, start, two_cpus};

/// Runs `body` and says whether nobody else was between its beginning and its end, in whichever process.
fn alone(place: &Path, body: impl FnOnce()) -> bool {
    // A lock of this descriptor: another thread of the process is kept out too.
    let file = File::create(place).unwrap();
    if file.try_lock().is_err() {
        return false;
    }
    body();
    file.unlock().unwrap();
    true
}

#[bireme::remote]
fn ask_the_node(place: PathBuf) -> bool {
    alone(&place, || {
        for _ in 0..100 {
            bireme::state().unwrap();
        }
    })
}

#[test]
fn a_task_that_asks_the_node_keeps_its_cpu() {
    let _turn = start(two_cpus().cpus(1.0).spin(false));
    let scratch = Scratch::new("asking");
    let tasks: Vec<_> = (0..10).map(|_| ask_the_node::remote(scratch.path("place"))).collect();
    let alone = bireme::get_all(&tasks).unwrap();
    assert_eq!(alone, [true; 10], "two tasks ran at once on one CPU");
}

#[bireme::remote]
fn pass_gate(gate: PathBuf) -> u8 {
    pass(&gate);
    7
}

#[bireme::remote]
fn wait_for(value: Vec<ObjectRef<u8>>) -> bireme::Result<u8> {
    value[0].get()
}

pub struct Holder;

#[bireme::actor(cpus = 1)]
impl Holder {
    pub fn new() -> Self {
        Holder
    }

    pub fn pid(&self) -> u32 {
        std::process::id()
    }
}

#[test]
fn an_actor_waits_for_a_cpu_of_its_own_while_tasks_lend_theirs() {
    let _turn = start(two_cpus());
    let scratch = Scratch::new("lent");
    let gate = Gate::closed(&scratch, "gate");
    // One that needs no CPU, so that the task which waits for it lends one and nobody uses it.
    let opened = pass_gate::options().cpus(0.0).remote(gate.path.clone());
    let waits = wait_for::remote(vec![opened]);
    support::eventually("the task waits", || bireme::state().unwrap().leases.iter().any(|lease| lease.blocked));
    let first = Holder::remote();
    first.pid().get().unwrap();
    let second = Holder::remote();
    let ready = second.ready();
    support::eventually("the node says why it waits", || ready.explain().unwrap().contains("queued for 1 CPU"));
    let why = ready.explain().unwrap();
    assert!(why.contains("1 CPUs are free, but blocked tasks want 1 back"), "{why}");
    gate.open();
    assert_eq!(waits.get().unwrap(), 7);
    ready.get().unwrap();
}

#[bireme::remote]
fn nest(depth: u32) -> bireme::Result<u32> {
    if depth == 0 { Ok(0) } else { Ok(nest::remote(depth - 1).get()? + 1) }
}

#[bireme::remote]
fn nest_alone(depth: u32) -> bireme::Result<u32> {
    if depth == 0 { Ok(0) } else { Ok(nest_alone::options().threads_per_worker(1).remote(depth - 1).get()? + 1) }
}

#[bireme::remote]
fn leave(depth: u32) -> ObjectRef<u32> {
    nest::remote(depth)
}

#[test]
fn nested_tasks_end_with_one_process() {
    let _turn = start(two_cpus().workers_max(1));
    assert_eq!(nest::remote(30).get_timeout(support::PATIENCE).unwrap(), 30);
    assert_eq!(nest_alone::options().threads_per_worker(1).remote(30).get_timeout(support::PATIENCE).unwrap(), 30);
    // The task that made it has ended: nothing waits in its process.
    let left = leave::remote(3).get_timeout(support::PATIENCE).unwrap();
    assert_eq!(left.get_timeout(support::PATIENCE).unwrap(), 3);
    assert_eq!(bireme::state().unwrap().workers.len(), 1);
}

#[test]
fn nested_tasks_end_with_one_process_beside_actors() {
    let _turn = start(two_cpus().cpus(4.0).workers_max(3));
    let holders = [Holder::remote(), Holder::remote()];
    for holder in &holders {
        holder.pid().get().unwrap();
    }
    assert_eq!(nest::remote(10).get_timeout(support::PATIENCE).unwrap(), 10);
}

#[bireme::remote]
fn nest_to_pids(depth: u32) -> bireme::Result<Vec<u32>> {
    let mut pids = match depth {
        0 => Vec::new(),
        _ => nest_to_pids::options().threads_per_worker(1).remote(depth - 1).get()?,
    };
    pids.push(std::process::id());
    Ok(pids)
}

#[test]
fn tasks_that_want_a_process_of_their_own_have_one_each() {
    let _turn = start(two_cpus().cpus(1.0));
    let mut pids = nest_to_pids::options().threads_per_worker(1).remote(7).get_timeout(support::PATIENCE).unwrap();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 8);
}

#[test]
fn three_thousand_nested_blocked_tasks_on_one_cpu_finish() {
    let _turn = start(two_cpus().cpus(1.0));
    assert_eq!(nest::remote(3_000).get().unwrap(), 3_000);
}

pub struct Desk;

#[bireme::actor]
impl Desk {
    pub fn new() -> Self {
        Desk
    }

    pub fn first(&mut self) -> u32 {
        1
    }

    pub fn second(&mut self, value: u32) -> u32 {
        value + 1
    }
}

#[bireme::remote]
fn child(desk: DeskHandle) -> bireme::Result<u32> {
    desk.first().get()
}

#[bireme::remote]
fn parent(desk: DeskHandle) -> bireme::Result<u32> {
    desk.second(child::remote(desk.clone())).get()
}

#[test]
fn a_call_that_waits_for_its_argument_holds_up_no_other_task_of_its_process() {
    let _turn = start(two_cpus().workers_max(3));
    let desk = Desk::remote();
    let parents: Vec<_> = (0..20).map(|_| parent::remote(desk.clone())).collect();
    for parent in &parents {
        assert_eq!(parent.get_timeout(support::PATIENCE).unwrap(), 2);
    }
}

#[bireme::remote]
fn double(x: u32) -> u32 {
    2 * x
}

/// Waits on threads of its own, as a thread pool does.
#[bireme::remote]
fn double_on_threads(x: u32) -> u32 {
    let threads: Vec<_> = (0..3).map(|n| std::thread::spawn(move || double::remote(x + n).get().unwrap())).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).sum()
}

fn block_on<F: IntoFuture>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future.into_future());
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// The same with a future, which a thread that the runtime does not know drives.
#[bireme::remote]
fn double_in_a_future(x: u32) -> u32 {
    block_on(double::remote(x)).unwrap()
}

#[test]
fn a_task_that_waits_through_its_threads_or_a_future_lends_its_cpu() {
    let _turn = start(two_cpus());
    // As many at a time as there are CPUs: unless one of them lends its own, nothing they wait for can run.
    let threads: Vec<_> = (0..4).map(|n| double_on_threads::remote(10 * n)).collect();
    assert_eq!(bireme::get_all(&threads).unwrap(), [6, 66, 126, 186]);
    let futures: Vec<_> = (0..4).map(double_in_a_future::remote).collect();
    assert_eq!(bireme::get_all(&futures).unwrap(), [0, 2, 4, 6]);
}

/// Computes while a thread of its own waits, and says whether it was alone.
#[bireme::remote]
fn compute_beside_a_waiting_thread(place: PathBuf, never: Vec<ObjectRef<u8>>) -> bool {
    let waiting = std::thread::spawn(move || never[0].get());
    let alone = alone(&place, || {
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_millis(300) {
            std::hint::black_box(0);
        }
    });
    drop(waiting);
    alone
}

#[test]
fn a_task_that_computes_keeps_its_cpu_while_its_threads_wait() {
    let _turn = start(two_cpus().cpus(1.0).spin(false));
    let scratch = Scratch::new("computing");
    let gate = Gate::closed(&scratch, "gate");
    let opened = pass_gate::options().cpus(0.0).remote(gate.path.clone());
    let task = || compute_beside_a_waiting_thread::remote(scratch.path("place"), vec![opened.clone()]);
    let tasks: Vec<_> = (0..4).map(|_| task()).collect();
    assert_eq!(bireme::get_all(&tasks).unwrap(), [true; 4], "two tasks ran at once on one CPU");
    gate.open();
    assert_eq!(opened.get().unwrap(), 7);
}
