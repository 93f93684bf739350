//! One runtime, several contexts: whoever calls `init` shares it, and it ends with the last.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Barrier;
use std::time::Duration;

use bireme::{Config, Error};

const THREADS: usize = 8;
const ROUNDS: i64 = 5;

fn two_cpus() -> Config {
    Config::default().cpus(2.0).object_store_memory(64 << 20)
}

#[bireme::remote]
fn square(x: i64) -> i64 {
    x * x
}

#[test]
fn threads_that_begin_and_end_as_they_like_share_a_runtime() {
    std::thread::scope(|scope| {
        for thread in 0..THREADS as i64 {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let _context = bireme::init_with(two_cpus()).unwrap();
                    let x = thread * ROUNDS + round;
                    assert_eq!(square::remote(x).get().unwrap(), x * x);
                }
            });
        }
    });
    assert!(!bireme::is_initialized(), "the last context ends it");
}

#[test]
fn contexts_of_one_time_are_of_one_runtime() {
    let all_there = Barrier::new(THREADS);
    let drivers: Vec<_> = std::thread::scope(|scope| {
        let start = || {
            let context = bireme::init_with(two_cpus()).unwrap();
            all_there.wait();
            let driver = bireme::current_task().unwrap();
            all_there.wait();
            drop(context);
            driver
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(drivers.iter().all(|driver| *driver == drivers[0]), "{drivers:?}");
    assert!(!bireme::is_initialized());
}

#[test]
fn the_runtime_ends_with_the_last_context_in_whatever_order_they_go() {
    for first_goes_first in [true, false] {
        let mut contexts = [0, 1].map(|_| Some(bireme::init_with(two_cpus()).unwrap()));
        let reference = bireme::put(5).unwrap();
        contexts[usize::from(!first_goes_first)].take().unwrap().shutdown();
        assert_eq!((reference.get().unwrap(), square::remote(3).get().unwrap()), (5, 9));
        contexts[usize::from(first_goes_first)] = None;
        assert!(!bireme::is_initialized());
        assert!(matches!(reference.get(), Err(Error::NotRunning(_))));
    }
}

#[test]
fn another_configuration_is_refused_with_what_differs() {
    let context = bireme::init_with(two_cpus()).unwrap();
    let refused = |config: Config| match bireme::init_with(config) {
        Err(Error::OtherConfig(differences)) => differences,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(two_cpus().cpus(3.0)), "`cpus` is 2.0 and not 3.0");
    assert_eq!(refused(two_cpus().idle_worker(Duration::from_secs(1))), "`idle_worker` is 10000 ms and not 1000 ms");
    assert_eq!(refused(two_cpus().spill_directory("/tmp")), "`spill_directory` is the default and not \"/tmp\"");
    let both = refused(two_cpus().gpus(1.0).resource("camera", 2.0));
    assert_eq!(both, "`gpus` is 0 and not 1, `resource` is {} and not {\"camera\": 2.0}");
    assert_eq!(refused(two_cpus().cluster(bireme::ClusterChoice::default())), "`cluster` is another one");
    // Nobody who was refused counts.
    assert_eq!(square::remote(4).get().unwrap(), 16);
    drop(context);
    assert!(!bireme::is_initialized());
    let _other = bireme::init_with(two_cpus().cpus(3.0)).unwrap();
    assert_eq!(bireme::resources().unwrap().total.cpus.as_f64(), 3.0);
}

#[test]
fn shutdown_ends_it_for_all_and_what_is_left_of_it_does_nothing_to_the_next() {
    let old = [0, 1].map(|_| bireme::init_with(two_cpus()).unwrap());
    bireme::shutdown();
    assert!(!bireme::is_initialized());
    let new = [0, 1].map(|_| bireme::init_with(two_cpus().cpus(1.0)).unwrap());
    drop(old);
    assert_eq!(square::remote(3).get().unwrap(), 9);
    drop(new);
    assert!(!bireme::is_initialized());
}

#[test]
fn a_runtime_that_the_first_use_started_outlives_every_context() {
    assert_eq!(square::remote(3).get().unwrap(), 9);
    assert!(matches!(bireme::init_with(two_cpus()), Err(Error::OtherConfig(_))));
    drop(bireme::init().unwrap());
    assert_eq!(square::remote(4).get().unwrap(), 16);
    bireme::shutdown();
    assert!(!bireme::is_initialized());
}
