//! Where nodes run: on hosts of a network lab with addresses and links of their own, or all on this machine.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::LazyLock;

use bireme_netlab::{Lab, Rate};

use super::super::Outcome;

/// Why there is no lab; asked once.
static REFUSED: LazyLock<Option<String>> = LazyLock::new(|| Lab::available().err().map(|error| error.to_string()));

/// The hosts of a row. They go with this value, with all that runs there.
pub(in crate::bench) enum Place {
    /// Hosts joined by a switch.
    Lab(Lab),
    /// This machine; every host is the same one.
    Loopback,
}

impl Place {
    /// So many hosts, with links of this rate; without one as fast as the machine.
    pub(in crate::bench) fn up(hosts: usize, rate: Option<Rate>) -> Outcome<Self> {
        match *REFUSED {
            Some(_) => Ok(Self::Loopback),
            None => Ok(Self::Lab(Lab::up(u8::try_from(hosts)?, rate)?)),
        }
    }

    /// What is measured over, for people.
    pub(in crate::bench) fn words() -> String {
        match REFUSED.as_deref() {
            None => "each node is on a host of its own in a network lab, with mutual TLS between them".to_owned(),
            Some(reason) => format!("all nodes are on this machine, over loopback and without TLS ({reason})"),
        }
    }

    /// Fails where nodes would be on one machine: there they do not encrypt, and bars are about nodes that do.
    pub(in crate::bench) fn require_encryption() -> Outcome<()> {
        match REFUSED.as_deref() {
            None => Ok(()),
            Some(reason) => {
                Err(format!("bars are judged with encryption, between hosts of a network lab: {reason}").into())
            }
        }
    }

    /// A command that runs on a host; the first is 0. This user's settings do not count there.
    pub(in crate::bench) fn command(&self, host: usize, arguments: &[&str]) -> Outcome<Command> {
        let program = std::env::current_exe()?;
        let mut command = match self {
            Self::Lab(lab) => lab.command(number(host)?, program),
            Self::Loopback => Command::new(program),
        };
        let theirs = |name: &str| name.starts_with("BIREME_") || name.starts_with("XDG_");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(theirs)) {
            command.env_remove(name);
        }
        command.env("HOME", "/nowhere").args(arguments);
        Ok(command)
    }

    /// The address of a host.
    pub(in crate::bench) fn address(&self, host: usize) -> Outcome<IpAddr> {
        match self {
            Self::Lab(lab) => Ok(lab.address(number(host)?).into()),
            Self::Loopback => Ok(Ipv4Addr::LOCALHOST.into()),
        }
    }
}

/// The lab's number of a host.
fn number(host: usize) -> Outcome<u8> {
    Ok(u8::try_from(host + 1)?)
}
