//! What others do in the same run, when that was asked for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value};

use super::super::Outcome;
use super::super::cluster::place::Place;
use super::super::cluster::stage::{Measured, Stage};
use super::super::measure::quantile;
use super::super::python::interpreter::{peers_folder, succeed};
use super::moving::AFTER_A_PAUSE;
use super::mpich::{Mpich, OWN};
use super::ray::{Faster, Ray, Took};
use super::rows::CollectiveRow;

/// The systems that rows are compared with.
pub(super) struct Peers {
    mpich: Mpich,
    ray: Ray,
}

/// What others did beside a row.
#[derive(Default)]
pub(super) struct Beside {
    /// Figures, by name.
    pub(super) more: Map<String, Value>,
    /// A peer that was to be measured and was not, or that a bar needs.
    pub(super) unmeasured: Option<&'static str>,
    /// Whether the row is as much faster as it has to be than a peer that was measured.
    pub(super) is_beaten: bool,
}

impl Beside {
    /// How many times faster than Ray ours is, and whether that is enough. Where both come out of a pause it is told and not judged.
    fn compare(&mut self, faster: &Faster, took: &Took, ours: f64, unit: &str) {
        let times = took.hot / ours;
        self.is_beaten &= times >= faster.times;
        self.more.insert(format!("ray_{unit}"), took.hot.into());
        self.more.insert("times_faster_than_ray".to_owned(), times.into());
        self.more.insert("times_faster_than_ray_bar".to_owned(), faster.times.into());
        let ours = self.more.get(AFTER_A_PAUSE).and_then(Value::as_f64);
        if let Some((took, ours)) = took.after_a_pause.zip(ours) {
            self.more.insert(format!("ray_after_a_pause_{unit}"), took.into());
            self.more.insert("times_faster_than_ray_after_a_pause".to_owned(), (took / ours).into());
        }
    }
}

impl Peers {
    /// MPICH and Ray, which are installed when they are not there.
    pub(super) fn installed() -> Outcome<Self> {
        Ok(Self { mpich: Mpich::installed()?, ray: Ray::installed()? })
    }

    /// Milliseconds of MPICH on all hosts of a lab, as it chooses by itself.
    pub(super) fn milliseconds(&self, stage: &Stage, place: &Place, operation: &str, bytes: usize) -> Outcome<f64> {
        let Place::Lab(lab) = place else { return Err("MPICH is measured on hosts of a lab".into()) };
        Ok(self.mpich.run(stage, lab, operation, bytes, OWN)?.milliseconds)
    }
}

/// What others do beside a row, with what the row has seen itself. A peer that fails takes nothing from our own figures, but the row
/// is not judged.
pub(super) fn beside(peers: Option<&Peers>, stage: &Stage, row: &CollectiveRow, measured: &Measured) -> Beside {
    let mut beside = Beside { more: measured.more.clone(), unmeasured: None, is_beaten: true };
    let probe = &row.probe;
    let Some(peers) = peers else {
        beside.unmeasured = probe.ray.map(|_| "Ray");
        return beside;
    };
    if let Some(mpi) = probe.mpi {
        match peers.mpich.against_a_copy(stage, mpi, probe.shape) {
            Ok(mpich) => {
                beside.more.insert("mpich_ratio".to_owned(), mpich.ratio.into());
                beside.more.insert("mpich_processor_ns_per_byte".to_owned(), mpich.processor_ns_per_byte.into());
                beside.more.insert("mpich_algorithm".to_owned(), mpich.algorithm().into());
            }
            Err(error) => {
                eprintln!("bireme: {} of MPICH failed: {error}", row.name);
                beside.unmeasured = Some("MPICH");
            }
        }
    }
    if let Some(faster) = probe.ray {
        let ours: Vec<f64> = measured.pairs.iter().map(|pair| pair.ours).collect();
        match peers.ray.took(stage, faster, probe.shape) {
            Ok(took) => beside.compare(&faster, &took, quantile(&ours, 0.5).unwrap_or(f64::NAN), row.unit),
            Err(error) => {
                eprintln!("bireme: {} of Ray failed: {error}", row.name);
                beside.unmeasured = Some("Ray");
            }
        }
    }
    beside
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
    fn a_round_trip_is_judged_by_calls_one_after_the_other_and_tells_those_after_a_pause() {
        let compare = |hot, after_a_pause| {
            let more = Map::from_iter([(AFTER_A_PAUSE.to_owned(), 100.0.into())]);
            let mut beside = Beside { more, unmeasured: None, is_beaten: true };
            beside.compare(&Faster::call(10.0), &Took { hot, after_a_pause }, 100.0, "us");
            let paused = beside.more.get("times_faster_than_ray_after_a_pause").and_then(Value::as_f64);
            (beside.is_beaten, paused)
        };
        assert_eq!(compare(1_000.0, Some(300.0)), (true, Some(3.0)));
        assert_eq!(compare(999.0, Some(9_000.0)), (false, Some(90.0)));
        assert_eq!(compare(1_000.0, None), (true, None));
    }

    #[test]
    fn without_peers_a_row_whose_bar_needs_one_is_not_judged() {
        let stop = rustix::pipe::pipe().unwrap();
        let stage = Stage::new(stop.0, true).unwrap();
        let beside = |name: &str| {
            let row = ROWS.iter().find(|row| row.name == name).unwrap();
            beside(None, &stage, row, &Measured::from(Vec::new())).unmeasured
        };
        assert_eq!(beside("broadcast_4"), Some("Ray"));
        assert_eq!((beside("reduce_4"), beside("broadcast_4_plain")), (None, None));
    }
}
