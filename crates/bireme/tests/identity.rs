//! Which function runs: those that look alike to the eye, or come from one macro call, are different all the same.
#![allow(clippy::unwrap_used, missing_docs)]

use bireme::Array;

fn start() -> bireme::Context {
    bireme::init_with(bireme::Config::default().cpus(2.0)).unwrap()
}

/// One remote function per case, all with the same name, in functions of one macro call.
macro_rules! cases {
    ($($name:ident: $value:expr),*) => {
        $(fn $name() -> i64 {
            #[bireme::remote]
            fn case() -> i64 {
                $value
            }
            case::remote().get().unwrap()
        })*
    };
}

cases! { one: 1, two: 2, three: 3 }

/// The same in blocks of one function, in closures and in constants.
macro_rules! blocks {
    ($($value:expr),*) => {
        [$({
            #[bireme::remote]
            fn case(n: i64) -> i64 {
                n + $value
            }
            case::remote(0).get().unwrap()
        }),*]
    };
}

/// Named by the caller of the macro, or in modules.
macro_rules! modules {
    ($($module:ident: $value:expr),*) => {
        $(mod $module {
            #[bireme::remote]
            pub fn case() -> i64 {
                $value
            }

            pub struct Keeper;

            #[bireme::actor]
            impl Keeper {
                pub fn new() -> Self {
                    Keeper
                }

                pub fn value(&self) -> i64 {
                    $value
                }
            }
        })*
    };
}

modules! { left: 10, right: 20 }

/// Actors of one name.
macro_rules! actors {
    ($($value:expr),*) => {
        [$({
            struct Keeper(i64);

            #[bireme::actor]
            impl Keeper {
                pub fn new() -> Self {
                    Keeper($value)
                }

                pub fn value(&self) -> i64 {
                    self.0 * 10 + $value
                }
            }
            Keeper::remote().value().get().unwrap()
        }),*]
    };
}

macro_rules! ops {
    ($($op:tt),*) => {
        [$({
            #[bireme::op]
            fn combine(into: &mut [i64], from: &[i64]) {
                for (into, from) in into.iter_mut().zip(from) {
                    *into $op *from;
                }
            }
            let inputs: Vec<_> = [3_i64, 5].map(|n| bireme::put(Array::from(vec![n])).unwrap()).into();
            bireme::reduce(&inputs, combine::OP).start().get().unwrap().as_slice::<i64>().unwrap()[0]
        }),*]
    };
}

#[test]
fn functions_of_one_macro_call_are_different() {
    let _context = start();
    assert_eq!([one(), two(), three()], [1, 2, 3]);
    assert_eq!(blocks![1, 2, 3], [1, 2, 3]);
    assert_eq!([left::case::remote(), right::case::remote()].map(|case| case.get().unwrap()), [10, 20]);
}

#[test]
fn actors_and_ops_of_one_macro_call_are_different() {
    let _context = start();
    assert_eq!(actors![1, 2], [11, 22]);
    assert_eq!(left::Keeper::remote().value().get().unwrap(), 10);
    assert_eq!(right::Keeper::remote().value().get().unwrap(), 20);
    assert_eq!(ops![+=, *=], [8, 15]);
}

#[test]
fn an_actor_is_found_by_its_type_and_not_by_the_name_of_that() {
    let _context = start();
    let keeper = left::Keeper::options().name("keeper").remote();
    assert_eq!(keeper.value().get().unwrap(), 10);
    assert_eq!(bireme::get_actor::<left::Keeper>("keeper").unwrap().value().get().unwrap(), 10);
    let error = bireme::get_actor::<right::Keeper>("keeper").unwrap_err().to_string();
    assert!(error.contains("right") && error.contains("left"), "{error}");
}
