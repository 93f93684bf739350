//! Several hosts on one machine, for tests and benchmarks that must cross a network.
//!
//! A host is a network namespace with one address and one link; a further namespace is the switch between them. Links
//! have a rate, can be cut, and one direction between two hosts can be cut alone. Called by tests (as a library) and by
//! people (`cargo xtask netlab`). Nothing is in the machine's own namespace, so a lab cannot reach out or be reached, and
//! labs live side by side. Needs root and iproute2. The kernels that we know can shape and cut but not delay or lose.
//!
//! | file | what |
//! |---|---|
//! | `lab` | the lab: its hosts and what can be done to them |
//! | `name` | the names of namespaces: to which lab and process they belong |
//! | `tools` | calls of `ip` and `tc`, and the end of processes in a namespace |
//! | `rate` | bits per second |
//!
//! ```no_run
//! let lab = bireme_netlab::Lab::up(2, Some("100mbit".parse()?))?;
//! let mut server = lab.command(1, "some-server").arg(lab.address(1).to_string()).spawn()?;
//! lab.cut(2)?;
//! lab.heal(2)?;
//! server.kill()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod lab;
mod name;
mod rate;
mod tools;

pub use lab::{HOSTS_MAX, Lab};
pub use rate::Rate;

/// Why a lab could not do what it was asked for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// This machine or user cannot have labs at all.
    #[error("no network lab here: {0}")]
    Unavailable(String),
    /// A command of iproute2 said no.
    #[error("`{command}` failed: {said}")]
    Command {
        /// What was run.
        command: String,
        /// Its words.
        said: String,
    },
    /// There is no such host, or no room for so many.
    #[error("there is no host {host}: this lab has 1 to {hosts}")]
    NoSuchHost {
        /// Who was asked for.
        host: u8,
        /// How many there are.
        hosts: u8,
    },
    /// A rate that makes no sense.
    #[error("{0:?} is no rate: write for example 100mbit or 1gbit")]
    BadRate(String),
    /// Every network of the range is taken.
    #[error("all 512 networks of 198.18.0.0/15 are in use; `ip netns list` shows by whom")]
    Full,
    /// There is no lab that was kept.
    #[error("there is no lab; make one with `up`")]
    NoLab,
    /// There is one already.
    #[error("there is a lab already; take it away with `down` first")]
    LabExists,
}

/// A test cannot run here, for this reason: it fails where nothing may be skipped (`BIREME_SKIPS=fail`, which the checks set
/// unless they are given `--allow-skips`), and says so elsewhere. The caller returns.
pub fn not_tested(reason: &str) {
    let is_allowed = std::env::var_os("BIREME_SKIPS").is_none_or(|skips| skips != "fail");
    assert!(is_allowed, "not tested, and nothing may be skipped here (--allow-skips allows it): {reason}");
    eprintln!("not tested: {reason}");
}
