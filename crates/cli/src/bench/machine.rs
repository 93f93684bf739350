//! What all cores do, whoever it is billed to.
//!
//! The kernel bills its work for the network to the process that happens to run on that core, or to nobody when the core was
//! idle, so that the times of processes differ twofold from run to run where their work does not. A core that is not idle works.

use std::fs;
use std::time::Instant;

use super::Outcome;

/// The kernel tells times in hundredths of a second.
pub(super) const TICKS_PER_SECOND: f64 = 100.0;

/// A moment.
pub(super) struct Moment {
    at: Instant,
    stat: Stat,
}

impl Moment {
    /// This one.
    pub(super) fn now() -> Outcome<Self> {
        let stat =
            Stat::parse(&fs::read_to_string("/proc/stat")?).ok_or("the kernel does not tell what its cores do")?;
        Ok(Self { at: Instant::now(), stat })
    }

    /// Seconds that all cores together have worked since then.
    pub(super) fn busy_since(&self) -> Outcome<f64> {
        let now = Self::now()?;
        let all = now.at.duration_since(self.at).as_secs_f64() * now.stat.cores as f64;
        Ok(all - (now.stat.unused - self.stat.unused) / TICKS_PER_SECOND)
    }
}

/// What `/proc/stat` tells of it.
#[derive(Debug, PartialEq)]
struct Stat {
    /// Ticks in which cores were idle, or not there since their hypervisor used them otherwise.
    unused: f64,
    cores: usize,
}

impl Stat {
    fn parse(stat: &str) -> Option<Self> {
        let mut cores = stat.lines().take_while(|line| line.starts_with("cpu"));
        let ticks = cores.next()?.split_whitespace().skip(1).map(|ticks| ticks.parse().ok());
        let ticks: Vec<f64> = ticks.collect::<Option<_>>()?;
        // User, nice, system, idle, waiting for a disk, two sorts of interrupts, stolen.
        let unused = ticks.get(3)? + ticks.get(4)? + ticks.get(7)?;
        Some(Self { unused, cores: cores.count() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_is_idle_or_taken_away_does_not_work() {
        let stat = "cpu  1 2 3 100 20 4 5 3 0 0\ncpu0 1 1 1 50 10 2 2 1 0 0\ncpu1 0 1 2 50 10 2 3 2 0 0\nintr 7 1\n";
        assert_eq!(Stat::parse(stat), Some(Stat { unused: 123.0, cores: 2 }));
        assert_eq!(Stat::parse("cpu  1 2"), None);
        assert_eq!(Stat::parse(""), None);
    }
}
