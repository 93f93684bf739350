//! What processes use, sampled over time, and whether it grows.

use std::time::Duration;

use crate::load::Counts;

/// What may be added by chance: buffers that grow once, tables that double.
const SLACK_KIB: u64 = 3 << 10;
/// And objects that are there at that moment.
const SLACK_SHARED_KIB: u64 = 8 << 10;
const SLACK_DESCRIPTORS: u64 = 40;
/// What the loads have under way at a time, and copies that are on their way.
const OBJECTS_MAX: u64 = 40;
/// Of what was there in the middle of the run.
const GROWTH_MAX: f64 = 1.1;

/// What one process uses.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// Its share of memory, with shared pages divided among those who have them.
    pub pss_kib: u64,
    /// That part of it which is no shared memory: where leaks are.
    pub private_kib: u64,
    pub descriptors: u64,
    pub threads: u64,
}

impl Use {
    pub fn of(pid: i32) -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let rollup = read("smaps_rollup");
        let kib = |key: &str| {
            let line = rollup.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("0");
            line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        let entries = |name: &str| std::fs::read_dir(format!("/proc/{pid}/{name}")).map_or(0, |all| all.count() as u64);
        Self {
            pss_kib: kib("Pss:"),
            private_kib: kib("Pss_Anon:"),
            descriptors: entries("fd"),
            threads: entries("task"),
        }
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "pss_kib": self.pss_kib, "private_kib": self.private_kib,
            "descriptors": self.descriptors, "threads": self.threads,
        })
    }
}

/// One look at everything.
pub struct Sample {
    at: Duration,
    turns: u64,
    done: serde_json::Value,
    /// In the stores of those who stay.
    objects: u64,
    uses: Vec<(&'static str, Use)>,
}

impl Sample {
    pub fn take<const N: usize>(
        at: Duration,
        counts: &Counts,
        turns: u64,
        objects: u64,
        who: [(&'static str, i32); N],
    ) -> Self {
        let uses = who.into_iter().map(|(name, pid)| (name, Use::of(pid))).collect();
        Self { at, turns, done: counts.json(), objects, uses }
    }

    pub fn json(&self) -> serde_json::Value {
        let uses: serde_json::Map<_, _> =
            self.uses.iter().map(|(name, found)| ((*name).to_owned(), found.json())).collect();
        serde_json::json!({
            "seconds": self.at.as_secs(), "left_and_joined": self.turns, "done": self.done, "objects": self.objects,
            "use": uses,
        })
    }
}

/// What grew from the middle of the run, when everything had been used often, to its end; in words.
pub fn growth(samples: &[Sample]) -> Vec<String> {
    let Some(last) = samples.last() else { return vec!["there are no samples".to_owned()] };
    let early = &samples[samples.len() / 2];
    let mut found = Vec::new();
    // Whatever is freed goes while the work goes on, and not only at its end.
    if let Some(most) = samples.iter().map(|sample| sample.objects).max().filter(|most| *most > OBJECTS_MAX) {
        found.push(format!("{most} objects lay in the stores of those who stay"));
    }
    for ((name, before), (_, after)) in early.uses.iter().zip(&last.uses) {
        let measures = [
            ("private memory in KiB", before.private_kib, after.private_kib, SLACK_KIB),
            ("memory in KiB", before.pss_kib, after.pss_kib, SLACK_SHARED_KIB),
            ("descriptors", before.descriptors, after.descriptors, SLACK_DESCRIPTORS),
            ("threads", before.threads, after.threads, SLACK_DESCRIPTORS),
        ];
        for (what, before, after, slack) in measures {
            if after as f64 > before as f64 * GROWTH_MAX + slack as f64 {
                found.push(format!("{what} of the {name} went from {before} to {after}"));
            }
        }
    }
    found
}
