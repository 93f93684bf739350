//! A node that is killed in the middle of something: when so many bytes have gone through its host.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::super::Outcome;

/// Between two looks at what has gone through: a few hundredths of what is measured.
const STEP: Duration = Duration::from_micros(500);

/// A node that ends in the middle.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Kill {
    /// Its seat.
    pub(crate) seat: usize,
    /// Its process.
    pub(crate) process: u32,
    /// When its host has received so many bytes, or sent them: the first of a chain only sends, the last only receives.
    pub(crate) bytes: u64,
}

/// Does something, and kills a node meanwhile. What ends before the node was killed is an error.
pub(super) fn with_kill<T>(kill: Option<Kill>, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let Some(Kill { process, bytes, .. }) = kill else { return work() };
    let victim = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or("a node has no process")?;
    let begun = passed(process)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| -> Result<bool, std::io::Error> {
            while !over.load(Ordering::Acquire) {
                let now = passed(process)?;
                if (0..2).any(|way| now[way].saturating_sub(begun[way]) >= bytes) {
                    kill_process(victim, Signal::KILL)?;
                    return Ok(true);
                }
                std::thread::sleep(STEP);
            }
            Ok(false)
        });
        let done = work();
        over.store(true, Ordering::Release);
        let killed = killer.join().map_err(|_| "the thread that kills panicked")??;
        let done = done?;
        if killed {
            Ok(done)
        } else {
            Err("all was over before half of it had gone through who was to be killed".into())
        }
    })
}

/// Bytes that the host of a process has received and sent.
fn passed(process: u32) -> Result<[u64; 2], std::io::Error> {
    Ok(sums(&fs::read_to_string(format!("/proc/{process}/net/dev"))?))
}

/// The sums over all devices in this table of the kernel: the first and the ninth number behind each name.
fn sums(table: &str) -> [u64; 2] {
    let devices = table.lines().filter_map(|line| line.split_once(':'));
    devices.fold([0, 0], |[received, sent], (_, numbers)| {
        let number = |at| numbers.split_whitespace().nth(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        [received + number(0), sent + number(8)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_all_devices_are_added_each_way() {
        let head = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n";
        let rows = "    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  eth0:700 2 0 0 0 0 0 0 30 2 0 0 0 0 0 0\n";
        assert_eq!(sums(&format!("{head}{rows}")), [705, 35]);
        assert_eq!(sums(head), [0, 0]);
    }

    #[test]
    fn work_that_ends_before_the_kill_is_an_error_and_nobody_is_killed() {
        let kill = Kill { seat: 1, process: std::process::id(), bytes: u64::MAX };
        assert!(with_kill(Some(kill), || Ok(1)).is_err_and(|error| error.to_string().contains("over before")));
        assert!(with_kill(None, || Ok(1)).is_ok_and(|done| done == 1));
    }
}
