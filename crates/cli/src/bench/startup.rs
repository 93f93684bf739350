//! Rows about what a runtime costs before it does anything: time and memory.

use std::fs;
use std::io::{Read, Write};

use super::Outcome;
use super::faults::Meeting;
use super::floor;
use super::measure::{Pair, seconds};
use super::probe::Probe;
use super::tasks::nothing;

/// How long from `init` to the first result, in a program that has just begun?
pub(super) fn init_first_result(probe: &Probe) -> Outcome<()> {
    probe.measure(|_| {
        let (took, context) = seconds(|| {
            let context = bireme::init()?;
            nothing::remote().get().map(|()| context)
        });
        context?.shutdown();
        Ok(Pair { ours: took * 1e3, floor: floor::start_and_end_ms()? })
    })
}

#[bireme::remote]
fn attend(meeting: String) -> Result<u32, String> {
    let mut driver = Meeting::attend(&meeting).map_err(|error| error.to_string())?;
    driver.read_exact(&mut [0]).map_err(|error| error.to_string())?;
    Ok(std::process::id())
}

/// How much memory does an idle runtime hold: all its processes, and what the driver has grown by?
///
/// Two workers are there, and each has run a task: two tasks that wait until the driver has met both.
pub(super) fn memory_at_rest(probe: &Probe) -> Outcome<()> {
    probe.measure(|_| {
        let me = std::process::id();
        let before = pss_mib(me)?;
        let context = bireme::init_with(bireme::Config::default().cpus(2.0))?;
        let meeting = Meeting::open("rest")?;
        let tasks = [attend::remote(meeting.name()), attend::remote(meeting.name())];
        let attendants = [meeting.next()?.0, meeting.next()?.0];
        for mut attendant in attendants {
            attendant.write_all(&[1])?;
        }
        let workers = bireme::get_all(&tasks)?;
        if workers[0] == workers[1] {
            return Err("two tasks at the same time ran in one process".into());
        }
        let others: f64 = descendants(me)?.into_iter().map(pss_mib).sum::<Outcome<f64>>()?;
        let grown = pss_mib(me)? - before;
        context.shutdown();
        Ok(Pair { ours: others + grown, floor: floor::of_idle_process(pss_mib)? })
    })
}

/// The memory of a process, shared pages by their share.
pub(super) fn pss_mib(process: u32) -> Outcome<f64> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    Ok(pss_kib(&text).ok_or_else(|| format!("{path} has no line with Pss"))? / 1024.0)
}

fn pss_kib(rollup: &str) -> Option<f64> {
    rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?.split_whitespace().next()?.parse().ok()
}

/// All processes below one, at any depth.
pub(super) fn descendants(ancestor: u32) -> Outcome<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process that has ended meanwhile is none of ours: ours are idle.
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        if let Some(parent) = parent_of(&stat) {
            parents.push((process, parent));
        }
    }
    Ok(below(ancestor, &parents))
}

/// The parent in a line of `/proc/PID/stat`. The name before it is in parentheses and may hold anything.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn below(ancestor: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut found = vec![ancestor];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, its_parent)| *its_parent == parent).map(|(process, _)| *process));
        at += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn descendants_of_any_depth_are_found_and_others_are_not() {
        assert_eq!(below(10, &[(11, 10), (12, 11), (13, 12), (20, 1), (14, 10)]), [11, 14, 12, 13]);
        assert!(below(5, &[(11, 10)]).is_empty());
    }

    #[test]
    fn a_process_name_with_parentheses_does_not_hide_the_parent() {
        assert_eq!(parent_of("42 (a) b) S 7 42 42 0"), Some(7));
        assert_eq!(parent_of(""), None);
    }

    #[test]
    fn the_memory_of_this_process_can_be_read() {
        assert_eq!(pss_kib("Rss:  10 kB\nPss:   7 kB\nPss_Anon: 1 kB\n"), Some(7.0));
        assert!(pss_mib(std::process::id()).unwrap() > 0.1);
    }
}
