//! What others did: recorded figures of Ray and MPICH, or both in the same run when that was asked for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bireme_netlab::Lab;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::Outcome;
use super::super::cluster::lines::Lines;
use super::super::cluster::place::Place;
use super::super::cluster::stage::{Measured, Stage};
use super::super::cluster::wire::copy;
use super::super::measure::quantile;
use super::super::python::interpreter::{peers_folder, succeed};
use super::ray::{Ray, Took};
use super::rows::CollectiveRow;
use super::shape::Shape;

/// Passes of MPICH.
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

/// The key of what a row is compared with Ray.
const TIMES_FASTER: &str = "times_faster_than_ray";
const RECORDED: &str = include_str!("../../../../../bench/peers.json");
const PROGRAM: &str = include_str!("../../../../../bench/mpi/coll.c");
const ON_HOST: &str = include_str!("../../../../../bench/mpi/on_host");
const SETUP: &str = include_str!("../../../../../bench/mpi/setup");

/// The recorded figures.
static FIGURES: LazyLock<Recorded> = LazyLock::new(|| {
    serde_json::from_str(RECORDED).expect("the recorded figures are part of this program, and tested")
});

#[derive(Deserialize)]
struct Recorded {
    mpich: OfMpich,
    ray: OfRay,
}

#[derive(Deserialize)]
struct OfMpich {
    version: String,
    date: String,
    figures: Vec<MpichFigure>,
}

#[derive(Deserialize)]
struct MpichFigure {
    operation: String,
    nodes: usize,
    bytes: usize,
    ms: f64,
    copies: f64,
}

#[derive(Deserialize)]
struct OfRay {
    version: String,
    date: String,
    figures: Vec<RayFigure>,
    bars: std::collections::BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct RayFigure {
    row: String,
    value: f64,
    what: String,
    /// How it is measured again, and with how many bytes.
    action: String,
    bytes: usize,
    /// With a node on each of the hosts of the row, or with five on this machine.
    #[serde(default)]
    on_hosts: bool,
}

/// Whether a row is as much faster than Ray as it has to be, by what stands beside it.
pub(super) fn is_beaten(row: &CollectiveRow, beside: &Map<String, Value>) -> bool {
    let times = beside.get(TIMES_FASTER).and_then(Value::as_f64);
    times.zip(FIGURES.ray.bars.get(row.name)).is_none_or(|(times, bar)| times >= *bar)
}

/// What is measured besides ourselves.
pub(super) struct Peers {
    mpich: Option<Mpich>,
    ray: Option<Ray>,
}

impl Peers {
    /// With MPICH and Ray, which are installed when they are not there; or with what is recorded alone.
    pub(super) fn of(measured: bool) -> Outcome<Self> {
        let mpich = measured.then(Mpich::installed).transpose()?;
        Ok(Self { mpich, ray: measured.then(Ray::installed).transpose()? })
    }

    /// What a row has seen, and what others did.
    pub(super) fn beside(&self, stage: &Stage, row: &CollectiveRow, measured: &Measured) -> Map<String, Value> {
        let mut more = measured.more.clone();
        let Recorded { mpich, ray } = &*FIGURES;
        if let Some((operation, floor)) = row.probe.peer {
            let shape = row.probe.shape;
            let fits = |found: &&MpichFigure| {
                found.operation == operation && found.nodes == shape.nodes && found.bytes == shape.bytes
            };
            let measured = self.mpich.as_ref().and_then(|mpich| {
                let copies = mpich.copies(stage, operation, shape.sized(stage));
                // A peer that fails takes nothing from our own figures.
                let copies = copies.inspect_err(|error| eprintln!("bireme: {} of MPICH failed: {error}", row.name));
                copies.ok().map(|copies| (copies, "measured".to_owned()))
            });
            let recorded = || {
                let OfMpich { version, date, .. } = mpich;
                let figure = mpich.figures.iter().find(fits)?;
                Some((figure.copies, format!("{version}: {} ms, recorded {date}", figure.ms)))
            };
            if let Some((copies, what)) = measured.or_else(recorded) {
                more.insert("mpich_ratio".to_owned(), (copies / floor(shape.nodes)).into());
                more.insert("mpich_is".to_owned(), what.into());
            }
        }
        if let Some(figure) = ray.figures.iter().find(|figure| figure.row == row.name) {
            let ours: Vec<f64> = measured.pairs.iter().map(|pair| pair.ours).collect();
            let ours = quantile(&ours, 0.5).unwrap_or(f64::NAN);
            let OfRay { version, date, .. } = ray;
            let (value, when) = match self.ray_took(stage, row, figure) {
                Some(Took { as_recorded, back_to_back }) => {
                    more.insert("times_faster_than_ray_back_to_back".to_owned(), (back_to_back / ours).into());
                    (as_recorded, "measured".to_owned())
                }
                None => (figure.value, format!("recorded {date}")),
            };
            more.insert(TIMES_FASTER.to_owned(), (value / ours).into());
            more.insert("ray_is".to_owned(), format!("{version}: {}, {when}", figure.what).into());
        }
        more
    }

    /// What Ray takes in this run, where it is measured.
    fn ray_took(&self, stage: &Stage, row: &CollectiveRow, figure: &RayFigure) -> Option<Took> {
        let took = measure_ray(self.ray.as_ref()?, stage, row.probe.shape, figure);
        // A peer that fails takes nothing from our own figures.
        took.inspect_err(|error| eprintln!("bireme: {} of Ray failed: {error}", row.name)).ok()
    }

    /// Milliseconds of MPICH, where it is measured, on all hosts of a lab.
    pub(super) fn milliseconds(
        &self,
        stage: &Stage,
        place: &Place,
        operation: &str,
        bytes: usize,
    ) -> Outcome<Option<f64>> {
        let (Some(mpich), Place::Lab(lab)) = (&self.mpich, place) else { return Ok(None) };
        mpich.run(stage, lab, operation, bytes).map(Some)
    }
}

fn measure_ray(ray: &Ray, stage: &Stage, shape: Shape, figure: &RayFigure) -> Outcome<Took> {
    if !figure.on_hosts {
        return ray.took(stage, &figure.action, figure.bytes, None);
    }
    let shape = shape.sized(stage);
    let place = Place::up(shape.nodes, shape.rate())?;
    let Place::Lab(lab) = &place else { return Err("there is no lab".into()) };
    ray.took(stage, &figure.action, shape.bytes, Some(lab))
}

/// An installed MPICH with our program.
struct Mpich(PathBuf);

impl Mpich {
    /// Among the build products, or in the user's cache.
    fn installed() -> Outcome<Self> {
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
        let why = "MPICH cannot be installed; without --peers its recorded figures are shown";
        succeed(Command::new(folder.join("setup")).arg("python3").arg(&folder), why)?;
        fs::write(complete, wanted)?;
        Ok(Self(folder))
    }

    /// How long an operation takes in units of a plain copy in the same lab.
    fn copies(&self, stage: &Stage, operation: &str, shape: Shape) -> Outcome<f64> {
        stage.check()?;
        let place = Place::up(shape.nodes, shape.rate())?;
        let Place::Lab(lab) = &place else { return Err("there is no lab".into()) };
        let took = self.run(stage, lab, operation, shape.bytes)?;
        Ok(took / copy(stage, &place, [0, 1], shape.bytes, 1)?.milliseconds)
    }

    /// Milliseconds of an operation with one rank per host, the median of some passes.
    fn run(&self, stage: &Stage, lab: &Lab, operation: &str, bytes: usize) -> Outcome<f64> {
        wait_until_settled(stage, lab)?;
        let first = lab.namespace(1);
        let name = first.strip_suffix("-1").ok_or("a lab whose hosts have other names than expected")?;
        let hosts: Vec<String> = (1..=lab.hosts()).map(|host| lab.address(host).to_string()).collect();
        let part = |name: &str| self.0.join(name);
        let mut command = lab.command(1, part("venv/bin/mpiexec"));
        command.args(["-launcher", "ssh", "-launcher-exec"]).arg(part("on_host"));
        command.args(["-hosts", &hosts.join(","), "-ppn", "1", "-n", &hosts.len().to_string()]);
        command.arg(part("coll")).args([operation, &bytes.to_string(), &PASSES.to_string()]);
        // TCP alone, also between ranks that could see that they are on one machine.
        let settings = [
            ("BIREME_LAB", name),
            ("MPIR_CVAR_CH4_NETMOD", "ofi"),
            ("FI_PROVIDER", "tcp"),
            ("FI_TCP_IFACE", "eth0"),
            ("MPIR_CVAR_NOLOCAL", "1"),
        ];
        let mut child = command.envs(settings).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut lines = Lines::of(child.stdout.take().ok_or("MPICH has no output")?);
        let took: Outcome<Vec<f64>> =
            (0..PASSES).map(|_| Ok(lines.next(stage.stop(), PASS_WAIT)?.trim().parse()?)).collect();
        // What it started ends with the lab. It has said all that it was asked for, or nothing that is of use.
        let _ = child.kill();
        let _ = child.wait();
        Ok(quantile(&took?, 0.5).ok_or("MPICH measured nothing")?)
    }
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

/// A Python with what the plots need, installed when it is not there.
pub(super) fn plotting_python() -> Outcome<PathBuf> {
    let folder = peers_folder()?.join("plot");
    let executable = folder.join("bin/python3");
    let complete = folder.join("complete");
    if !complete.is_file() {
        eprintln!("bireme: installing matplotlib into {}, once", folder.display());
        let why = "matplotlib cannot be installed; the CSV files are there without it";
        succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder), why)?;
        let mut install = Command::new(&executable);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "matplotlib"]);
        succeed(&mut install, why)?;
        fs::write(complete, "")?;
    }
    Ok(executable)
}

/// Runs a script with it.
pub(super) fn plot(script: &Path, folder: &Path) -> Outcome<()> {
    succeed(Command::new(plotting_python()?).arg(script).arg(folder), "the plots could not be drawn")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::rows::ROWS;
    use super::*;

    #[test]
    fn recorded_figures_are_of_rows_that_there_are() {
        let Recorded { mpich, ray } = &*FIGURES;
        for figure in &mpich.figures {
            let of = |row: &&CollectiveRow| row.probe.peer.is_some_and(|(operation, _)| operation == figure.operation);
            let mut rows = ROWS.iter().filter(of).map(|row| row.probe.shape);
            assert!(
                rows.any(|shape| shape.nodes == figure.nodes && shape.bytes == figure.bytes),
                "{}",
                figure.operation
            );
            assert!(figure.ms > 0.0 && figure.copies > 0.0);
        }
        for figure in &ray.figures {
            assert!(ROWS.iter().any(|row| row.name == figure.row) && ray.bars.contains_key(&figure.row));
        }
    }

    #[test]
    fn an_address_that_may_be_taken_is_seen_by_its_flag() {
        let line = |flags| format!("fe800000000000000000000000000001 02 40 20 {flags}     eth0\n");
        assert!(is_tentative(&(line("80") + &line("c0"))) && !is_tentative(&line("80")) && !is_tentative(""));
    }

    #[test]
    fn a_row_has_to_be_so_many_times_faster_than_ray() {
        let row = ROWS.iter().find(|row| row.name == "round_trip_1kb").unwrap();
        let beside = |times: f64| Map::from_iter([(TIMES_FASTER.to_owned(), times.into())]);
        assert!(is_beaten(row, &beside(10.0)) && !is_beaten(row, &beside(9.9)));
        assert!(is_beaten(&ROWS[0], &Map::new()), "where nothing is known, nothing has to be beaten");
    }
}
