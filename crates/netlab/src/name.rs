//! The names of namespaces: to which lab, network and process each belongs.
//!
//! `bireme-lab-NET-PID-START-HOST`. A lab belongs to the process with that id and start time; when it is dead, the lab is
//! a leftover, which the next lab takes away. Process id 0 stands for a lab that is kept until someone takes it down.

use std::fmt;
use std::fs;
use std::net::Ipv4Addr;

/// Begins the name of every namespace of ours.
const PREFIX: &str = "bireme-lab-";
/// Networks of 254 addresses in 198.18.0.0/15, the range that is set aside for measurements.
pub(crate) const NETS: u16 = 512;
/// Where iproute2 keeps named namespaces.
pub(crate) const FOLDER: &str = "/run/netns";

/// Whose lab it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Gone with this process.
    Process { id: u32, start: u64 },
    /// Kept until it is taken down.
    Kept,
}

impl Owner {
    /// This process.
    pub(crate) fn this_process() -> Self {
        let id = std::process::id();
        Self::Process { id, start: start_time(id).unwrap_or(0) }
    }

    /// Whether nobody is left to take the lab down.
    pub(crate) fn is_gone(self) -> bool {
        match self {
            Self::Process { id, start } => start_time(id) != Some(start),
            Self::Kept => false,
        }
    }
}

/// A lab, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LabName {
    pub(crate) net: u16,
    pub(crate) owner: Owner,
}

impl LabName {
    /// The namespace of a host, counted from 1; 0 is the switch.
    pub(crate) fn namespace(self, host: u8) -> String {
        format!("{self}-{host}")
    }

    /// The address of a host.
    pub(crate) fn address(self, host: u8) -> Ipv4Addr {
        let [high, low] = self.net.to_be_bytes();
        Ipv4Addr::new(198, 18 + high, low, host)
    }

    /// The lab and host of a namespace; nothing if it is not ours.
    pub(crate) fn parse(namespace: &str) -> Option<(Self, u8)> {
        let mut parts = namespace.strip_prefix(PREFIX)?.split('-');
        let net = parts.next()?.parse().ok().filter(|net| *net < NETS)?;
        let (id, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let host = parts.next()?.parse().ok()?;
        let owner = if id == 0 { Owner::Kept } else { Owner::Process { id, start } };
        parts.next().is_none().then_some((Self { net, owner }, host))
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, start) = match self.owner {
            Owner::Process { id, start } => (id, start),
            Owner::Kept => (0, 0),
        };
        write!(f, "{PREFIX}{}-{id}-{start}", self.net)
    }
}

/// Every namespace of ours on this machine.
pub(crate) fn namespaces() -> Vec<(LabName, u8)> {
    let Ok(entries) = fs::read_dir(FOLDER) else { return Vec::new() };
    entries.flatten().filter_map(|entry| LabName::parse(entry.file_name().to_str()?)).collect()
}

/// When a process started, in ticks since the machine did; nothing when there is no such process.
fn start_time(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program, in parentheses, may contain anything; what follows is numbers.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_namespace_names_its_lab_and_host() {
        for owner in [Owner::Kept, Owner::Process { id: 4_194_304, start: u64::MAX }] {
            let name = LabName { net: 300, owner };
            assert_eq!(LabName::parse(&name.namespace(250)), Some((name, 250)));
            assert_eq!(name.address(7), Ipv4Addr::new(198, 19, 44, 7));
        }
        for other in ["lab-1", "bireme-lab-1", "bireme-lab-512-1-1-1", "bireme-lab-1-1-1-1-1", "bireme-lab-a-1-1-1"] {
            assert_eq!(LabName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_lab_is_left_over_when_its_process_is_gone_or_another_one() {
        let Owner::Process { id, start } = Owner::this_process() else { panic!("this process is a process") };
        assert!(start > 0);
        assert!(!Owner::this_process().is_gone());
        assert!(Owner::Process { id, start: start + 1 }.is_gone());
        assert!(Owner::Process { id: u32::MAX, start }.is_gone());
        assert!(!Owner::Kept.is_gone());
    }
}
