//! Bad input is a typed error that names things. One runtime per process.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use bireme::{Context, Error, Failure, ObjectRef};

fn start() -> Context {
    bireme::init_with(bireme::Config::default().cpus(2.0)).unwrap()
}

#[bireme::remote]
fn init_inside() -> String {
    bireme::init().map(drop).unwrap_err().to_string()
}

#[bireme::remote]
fn square(x: i64) -> i64 {
    x * x
}

#[test]
fn reading_an_object_as_another_type_names_both() {
    let _context = start();
    let number = bireme::put(1_i64).unwrap();
    let error = number.cast::<String>().get().unwrap_err();
    let Error::TypeMismatch { expected, found } = &error else { panic!("{error}") };
    assert!(expected.contains("String") && found == "i64", "{error}");
    let word = bireme::put("seven".to_owned()).unwrap();
    let error = square::remote(word.cast::<i64>()).get().unwrap_err();
    let Some(Failure::TypeMismatch { expected, found }) = error.failure() else { panic!("{error:?}") };
    assert!(expected == "i64" && found.contains("String"), "{error}");
}

#[test]
fn a_task_that_can_never_run_is_an_error_at_once_with_both_amounts() {
    let _context = start();
    let error = square::options().cpus(64.0).remote(1).get_timeout(Duration::from_secs(30)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("64") && text.contains('2'), "{text}");
    let error = square::options().resource("unicorn", 1.0).remote(1).get_timeout(Duration::from_secs(30)).unwrap_err();
    assert!(error.to_string().contains("unicorn"), "{error}");
}

#[test]
fn bad_amounts_are_refused_by_name() {
    let _context = start();
    for bad in [-1.0, f64::NAN, f64::INFINITY, 1e-9] {
        for refused in [
            square::options().cpus(bad).try_remote(1),
            square::options().gpus(bad).try_remote(1),
            square::options().resource("oar", bad).remote(1).submitted(),
        ] {
            assert!(matches!(refused, Err(Error::BadAmount(_))), "{bad}: {refused:?}");
        }
        let error = square::options().resource("oar", bad).remote(1).get().unwrap_err();
        assert!(error.to_string().contains("oar"), "{error}");
    }
}

#[test]
fn bad_amounts_in_the_configuration_are_refused() {
    for config in [
        bireme::Config::default().cpus(-2.0),
        bireme::Config::default().gpus(f64::NAN),
        bireme::Config::default().resource("oar", f64::INFINITY),
    ] {
        assert!(matches!(bireme::init_with(config), Err(Error::BadAmount(_))));
    }
    assert!(!bireme::is_initialized());
}

#[test]
fn an_empty_or_impossible_wait_is_refused() {
    let _context = start();
    let one = [bireme::put(1).unwrap()];
    let none: [ObjectRef<i32>; 0] = [];
    for refused in [bireme::wait(&none, 0, None), bireme::wait(&none, 1, None)] {
        let Err(Error::BadArgument(text)) = refused else { panic!("{refused:?}") };
        assert_eq!(text, "there is nothing to wait for: no references were given");
    }
    for count in [0, 2] {
        assert!(matches!(bireme::wait(&one, count, None), Err(Error::BadArgument(_))));
    }
}

#[test]
fn references_after_shutdown_are_errors_not_hangs() {
    let context = start();
    let reference = square::remote(3);
    let put = bireme::put(vec![1_u8; 1 << 20]).unwrap();
    reference.get().unwrap();
    drop(context);
    assert!(matches!(reference.get(), Err(Error::NotRunning(_))));
    assert!(matches!(put.get_timeout(Duration::from_secs(1)), Err(Error::NotRunning(_))));
    assert!(matches!(reference.cancel(), Err(Error::NotRunning(_))));
    assert!(matches!(reference.explain(), Err(Error::NotRunning(_))));
    assert!(matches!(bireme::wait(&[reference], 1, None), Err(Error::NotRunning(_))));
    assert!(matches!(bireme::state(), Err(Error::NotRunning(_))));
    bireme::shutdown();
}

#[test]
fn init_inside_of_a_task_is_refused() {
    let _context = start();
    assert!(init_inside::remote().get().unwrap().contains("a task or actor has the runtime of its program"));
}

#[test]
fn a_context_ends_only_the_runtime_that_it_began() {
    let first = start();
    bireme::shutdown();
    let second = start();
    drop(first);
    assert!(bireme::is_initialized());
    assert_eq!(square::remote(3).get().unwrap(), 9);
    drop(second);
    assert!(!bireme::is_initialized());
}

#[test]
fn cancel_of_a_finished_task_changes_nothing() {
    let _context = start();
    let reference = square::remote(3);
    assert_eq!(reference.get().unwrap(), 9);
    reference.cancel().unwrap();
    bireme::cancel(&reference, true).unwrap();
    assert_eq!(reference.get().unwrap(), 9);
}

#[test]
fn a_reference_in_somebody_elses_serialiser_is_an_error_that_says_why() {
    let _context = start();
    let reference = bireme::put(1).unwrap();
    let error = postcard::to_allocvec(&reference).unwrap_err();
    assert_eq!(error, postcard::Error::SerdeSerCustom);
    // The same inside a value that is given to `put` is fine.
    assert_eq!(bireme::put(vec![reference]).unwrap().get().unwrap()[0].get().unwrap(), 1);
}

#[test]
fn a_refused_reference_gives_its_own_error_wherever_it_goes() {
    let _context = start();
    let refused = square::options().cpus(-1.0).remote(1);
    assert!(matches!(square::remote(&refused).get(), Err(Error::BadAmount(_))));
    assert!(matches!(bireme::put(vec![refused.clone()]), Err(Error::BadAmount(_))));
    assert!(matches!(refused.cancel(), Err(Error::BadAmount(_))));
    assert!(refused.is_ready().unwrap());
}
