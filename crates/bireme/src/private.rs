//! What the generated code refers to. Not for use by hand, and free to change.

pub use crate::actor::{Handle, state};
pub use crate::argument::{Arguments, Inputs};
pub use crate::call::{NoResult, Outcome, Results, Returned, Site, broken, give};
pub use crate::names::Types;
pub use crate::options::{Defaults, Options};
pub use crate::stream::{try_yield_all, yield_all, yield_from};
pub use crate::user_op::{OpSite, run_op};
pub use bireme_runtime::core::failure::Failure;
pub use bireme_runtime::core::id::FunctionKey;
pub use bireme_runtime::core::stream::Stream;
pub use bireme_runtime::{Function, Identity, Invocation};
pub use inventory;
pub use serde;

/// The builder of one function's or actor's options: a struct with the choices, to which the macro adds `remote`.
#[doc(hidden)]
#[macro_export]
macro_rules! __options {
    (task $(#[$attribute:meta])* $vis:vis $builder:ident) => {
        $crate::__options!(@struct $(#[$attribute])* $vis $builder
            /// The name under which the task appears in errors and in the state.
            name(name: &str),
            /// Errors that are tried again too, by type or by text.
            retry_on(errors: impl ::core::iter::IntoIterator<Item = impl ::core::convert::Into<::std::string::String>>),
            /// How often it is run again after its worker died.
            retries(retries: u32),
            /// A process that has run the function so often ends after the last reply, and another takes its place.
            max_calls(calls: u32),
            /// How many tasks may be in its process at a time, itself and others that wait: 1 for a process of its own. As
            /// many as the node allows unless chosen.
            threads_per_worker(threads: u32),
        );
    };
    (stream $(#[$attribute:meta])* $vis:vis $builder:ident) => {
        $crate::__options!(task $(#[$attribute])* $vis $builder);
        #[allow(dead_code)]
        impl $builder {
            /// How many items the task may be ahead of its reader; then it waits.
            $vis fn max_buffered_items(self, items: u32) -> Self {
                Self(self.0.max_buffered_items(items))
            }
            /// How many bytes of items the task may be ahead of its reader; then it waits.
            $vis fn max_buffered_bytes(self, bytes: u64) -> Self {
                Self(self.0.max_buffered_bytes(bytes))
            }
        }
    };
    (actor $(#[$attribute:meta])* $vis:vis $builder:ident) => {
        $crate::__options!(@struct $(#[$attribute])* $vis $builder
            /// How often it is started again after its worker died.
            restarts(restarts: u32),
            /// How many calls of one process may wait at once; more are refused.
            max_pending_calls(calls: usize),
            /// How often a call is tried again after the actor's worker died.
            call_retries(retries: u32),
        );
        #[allow(dead_code)]
        impl $builder {
            /// The name under which `bireme::get_actor` finds it.
            $vis fn name(self, name: &str) -> Self {
                Self(self.0.actor_name(name))
            }
            /// It outlives its owner and all handles, and ends only when it is killed.
            $vis fn detached(self) -> Self {
                Self(self.0.detached())
            }
        }
    };
    (@struct $(#[$attribute:meta])* $vis:vis $builder:ident
        $($(#[$doc:meta])* $method:ident($argument:ident: $type:ty),)*) => {
        $(#[$attribute])*
        #[must_use = "nothing is submitted until `remote` is called"]
        $vis struct $builder($crate::private::Options);
        #[allow(dead_code)]
        impl $builder {
            /// CPU cores.
            $vis fn cpus(self, cpus: f64) -> Self {
                Self(self.0.cpus(cpus))
            }
            /// GPUs.
            $vis fn gpus(self, gpus: f64) -> Self {
                Self(self.0.gpus(gpus))
            }
            /// Bytes of memory.
            $vis fn memory(self, bytes: u64) -> Self {
                Self(self.0.memory(bytes))
            }
            /// An amount of a named resource.
            $vis fn resource(self, name: &str, amount: f64) -> Self {
                Self(self.0.resource(name, amount))
            }
            /// The environment, by a number of your choice: a process that has served one never serves another.
            $vis fn environment(self, environment: u64) -> Self {
                Self(self.0.environment(environment))
            }
            /// Where it may run: anywhere, spread, on one node, or in a placement group.
            $vis fn strategy(self, strategy: $crate::Strategy) -> Self {
                Self(self.0.strategy(strategy))
            }
            /// Whether what it submits without a strategy goes into its placement group too.
            $vis fn capture_child_tasks(self, captures: bool) -> Self {
                Self(self.0.capture_child_tasks(captures))
            }
            $($(#[$doc])* $vis fn $method(self, $argument: $type) -> Self {
                Self(self.0.$method($argument))
            })*
        }
    };
}
