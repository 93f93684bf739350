//! MPICH on hosts of a lab: one rank per host, as many hosts and bytes as ours, and of its algorithms the fastest.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bireme_netlab::Lab;

use super::super::Outcome;
use super::super::cluster::lines::Lines;
use super::super::cluster::place::Place;
use super::super::cluster::stage::Stage;
use super::super::cluster::wire::copy;
use super::super::measure::quantile;
use super::super::python::interpreter::{peers_folder, succeed};
use super::field::Pass;
use super::shape::{Shape, carried_once, carried_twice, gather_copies, one_copy, ring_copies};

/// Passes that count.
const PASSES: u32 = 3;
/// No pass of a row takes longer.
const PASS_WAIT: Duration = Duration::from_secs(120);

/// How long addresses may take to be known to be free.
const SETTLE_WAIT: Duration = Duration::from_secs(15);
const SETTLE_STEP: Duration = Duration::from_millis(50);
/// The kernel's list of them, for the host of this thread.
const ADDRESSES: &str = "/proc/thread-self/net/if_inet6";
/// `IFA_F_TENTATIVE`.
const TENTATIVE: u32 = 0x40;

const PROGRAM: &str = include_str!("../../../../../bench/mpi/coll.c");
const ON_HOST: &str = include_str!("../../../../../bench/mpi/on_host");
const SETUP: &str = include_str!("../../../../../bench/mpi/setup");

/// TCP alone, also between ranks that could see that they are on one machine.
const TCP_ONLY: [(&str, &str); 4] =
    [("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp"), ("FI_TCP_IFACE", "eth0"), ("MPIR_CVAR_NOLOCAL", "1")];

/// Variables of the environment by which MPICH chooses an algorithm.
pub(super) type Settings = &'static [(&'static str, &'static str)];

/// As it chooses by itself.
pub(super) const OWN: Settings = &[];
/// A chain through which an object goes in pieces.
const CHAINED_BCAST: Settings = &[
    ("MPIR_CVAR_BCAST_INTRA_ALGORITHM", "pipelined_tree"),
    ("MPIR_CVAR_BCAST_TREE_TYPE", "kary"),
    ("MPIR_CVAR_BCAST_TREE_KVAL", "1"),
    ("MPIR_CVAR_BCAST_TREE_PIPELINE_CHUNK_SIZE", "262144"),
];
const CHAINED_REDUCE: Settings = &[
    ("MPIR_CVAR_REDUCE_INTRA_ALGORITHM", "nb"),
    ("MPIR_CVAR_IREDUCE_INTRA_ALGORITHM", "tsp_ring"),
    ("MPIR_CVAR_IREDUCE_RING_CHUNK_SIZE", "262144"),
];
const RING: Settings = &[("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "ring")];

/// An operation of MPI that does the same as a row.
#[derive(Clone, Copy)]
pub(super) struct Mpi {
    operation: &'static str,
    /// Algorithms of which the fastest counts.
    settings: &'static [Settings],
    /// How many copies of an object the floor of so many nodes is, so that its ratio is that of ours.
    copies: fn(usize) -> f64,
    /// How many all links together carry.
    carried: fn(usize) -> f64,
}

impl Mpi {
    pub(super) const BCAST: Self =
        Self { operation: "bcast", settings: &[OWN, CHAINED_BCAST], copies: one_copy, carried: carried_once };
    pub(super) const REDUCE: Self =
        Self { operation: "reduce", settings: &[OWN, CHAINED_REDUCE], copies: one_copy, carried: carried_once };
    pub(super) const ALL_REDUCE: Self =
        Self { operation: "allreduce", settings: &[OWN, RING], copies: one_copy, carried: carried_twice };
    pub(super) const GROUP: Self = Self { copies: ring_copies, ..Self::ALL_REDUCE };
    pub(super) const GATHER: Self =
        Self { operation: "gather", settings: &[OWN], copies: gather_copies, carried: carried_once };
}

/// The time of MPICH beside the floor of a row.
pub(super) struct Against {
    /// Over the floor of the row.
    pub(super) ratio: f64,
    /// Of all cores, for each byte that a link carries.
    pub(super) processor_ns_per_byte: f64,
    /// With these.
    settings: Settings,
}

impl Against {
    /// The algorithm, in words.
    pub(super) fn algorithm(&self) -> &'static str {
        self.settings.iter().map(|(_, value)| *value).find(|value| *value != "nb").unwrap_or("its own choice")
    }
}

/// An installed MPICH with our program.
pub(super) struct Mpich(PathBuf);

impl Mpich {
    /// Among the build products, or in the user's cache.
    pub(super) fn installed() -> Outcome<Self> {
        Lab::available().map_err(|error| format!("MPICH is measured on hosts of a lab: {error}"))?;
        let folder = peers_folder()?.join("mpich");
        let complete = folder.join("complete");
        let wanted = [PROGRAM, ON_HOST, SETUP].concat();
        if fs::read_to_string(&complete).is_ok_and(|found| found == wanted) {
            return Ok(Self(folder));
        }
        eprintln!("bireme: installing MPICH into {}, once", folder.display());
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("coll.c"), PROGRAM)?;
        for (name, script) in [("on_host", ON_HOST), ("setup", SETUP)] {
            fs::write(folder.join(name), script)?;
            fs::set_permissions(folder.join(name), PermissionsExt::from_mode(0o755))?;
        }
        let why = "MPICH cannot be installed; without --peers the rows are measured without it";
        succeed(Command::new(folder.join("setup")).arg("python3").arg(&folder), why)?;
        fs::write(complete, wanted)?;
        Ok(Self(folder))
    }

    /// The time of an operation beside a plain copy in the same lab, with those of its settings that are the fastest.
    pub(super) fn against_a_copy(&self, stage: &Stage, mpi: Mpi, shape: Shape) -> Outcome<Against> {
        let shape = shape.sized(stage);
        let place = Place::up(shape.nodes, shape.rate())?;
        let Place::Lab(lab) = &place else { return Err("there is no lab".into()) };
        let mut best: Option<Against> = None;
        for settings in mpi.settings {
            stage.check()?;
            let pass = self.run(stage, lab, mpi.operation, shape.bytes, settings)?;
            let copy = copy(stage, &place, [0, 1], shape.bytes, 1)?.milliseconds;
            let ratio = pass.milliseconds / copy / (mpi.copies)(shape.nodes);
            let carried = (mpi.carried)(shape.nodes) * shape.bytes as f64;
            let found = Against { ratio, processor_ns_per_byte: pass.busy_seconds * 1e9 / carried, settings };
            if best.as_ref().is_none_or(|best| found.ratio < best.ratio) {
                best = Some(found);
            }
        }
        Ok(best.ok_or("MPICH has no settings for this")?)
    }

    /// The time of an operation with one rank per host, the median of some passes behind one that does not count.
    pub(super) fn run(
        &self,
        stage: &Stage,
        lab: &Lab,
        operation: &str,
        bytes: usize,
        settings: Settings,
    ) -> Outcome<Pass> {
        wait_until_settled(stage, lab)?;
        let first = lab.namespace(1);
        let name = first.strip_suffix("-1").ok_or("a lab whose hosts have other names than expected")?;
        let hosts: Vec<String> = (1..=lab.hosts()).map(|host| lab.address(host).to_string()).collect();
        let part = |name: &str| self.0.join(name);
        let mut command = lab.command(1, part("venv/bin/mpiexec"));
        command.args(["-launcher", "ssh", "-launcher-exec"]).arg(part("on_host"));
        command.args(["-hosts", &hosts.join(","), "-ppn", "1", "-n", &hosts.len().to_string()]);
        command.arg(part("coll")).args([operation, &bytes.to_string(), &PASSES.to_string()]);
        command.env("BIREME_LAB", name).envs(TCP_ONLY).envs(settings.iter().copied());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut lines = Lines::of(child.stdout.take().ok_or("MPICH has no output")?);
        let took: Outcome<Vec<Pass>> = (0..PASSES).map(|_| pass(&lines.next(stage.stop(), PASS_WAIT)?)).collect();
        // What it started ends with the lab. It has said all that it was asked for, or nothing that is of use.
        let _ = child.kill();
        let _ = child.wait();
        let took = took?;
        let median = |of: fn(&Pass) -> f64| quantile(&took.iter().map(of).collect::<Vec<_>>(), 0.5);
        let (milliseconds, busy_seconds) = (median(|pass| pass.milliseconds), median(|pass| pass.busy_seconds));
        let (milliseconds, busy_seconds) = milliseconds.zip(busy_seconds).ok_or("MPICH measured nothing")?;
        Ok(Pass { milliseconds, busy_seconds })
    }
}

/// What the program says of a pass: milliseconds, and the seconds that all cores worked.
fn pass(line: &str) -> Outcome<Pass> {
    let (milliseconds, busy) = line.trim().split_once(' ').ok_or_else(|| format!("MPICH said {line:?}"))?;
    Ok(Pass { milliseconds: milliseconds.parse()?, busy_seconds: busy.parse()? })
}

/// The kernel asks for a second or two whether an address of a new link is taken; MPICH fails on one that may be.
fn wait_until_settled(stage: &Stage, lab: &Lab) -> Outcome<()> {
    let deadline = Instant::now() + SETTLE_WAIT;
    for host in 1..=lab.hosts() {
        while lab.run(host, || is_tentative(&fs::read_to_string(ADDRESSES).unwrap_or_default()))? {
            stage.check()?;
            if Instant::now() > deadline {
                return Err(format!("a host of the lab has no address of its own after {SETTLE_WAIT:?}").into());
            }
            std::thread::sleep(SETTLE_STEP);
        }
    }
    Ok(())
}

/// Whether one of the addresses in this list of the kernel is not known to be free. The fifth column has the flags.
fn is_tentative(addresses: &str) -> bool {
    let flags = addresses.lines().filter_map(|line| line.split_whitespace().nth(4));
    flags.filter_map(|text| u32::from_str_radix(text, 16).ok()).any(|flags| flags & TENTATIVE != 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_that_may_be_taken_is_seen_by_its_flag() {
        let line = |flags| format!("fe800000000000000000000000000001 02 40 20 {flags}     eth0\n");
        assert!(is_tentative(&(line("80") + &line("c0"))) && !is_tentative(&line("80")) && !is_tentative(""));
    }

    #[test]
    fn a_pass_is_two_numbers() {
        let read = pass("12.5 0.25\n").unwrap();
        assert_eq!((read.milliseconds, read.busy_seconds), (12.5, 0.25));
        assert!(["", "1", "a b"].iter().all(|line| pass(line).is_err()));
    }

    #[test]
    fn an_algorithm_is_told_by_its_name() {
        let named = |settings| Against { ratio: 1.0, processor_ns_per_byte: 1.0, settings }.algorithm();
        let names = [OWN, CHAINED_BCAST, CHAINED_REDUCE, RING].map(named);
        assert_eq!(names, ["its own choice", "pipelined_tree", "tsp_ring", "ring"]);
    }
}
