//! What a process started again is told through its environment: which role, and which descriptors.
//!
//! `2;keeper;<socket>;<driver pid>;<output>;<name>=<fd>,...` or `2;worker;<slot>;<incarnation>;<words>;<keeper pid>;<name>=<fd>,...`.
//! The second form is the keeper's way out when it cannot fork because something left a second thread in it.

use super::{PROTOCOL_VERSION, Words};
use crate::output::Output;
use std::os::fd::RawFd;

/// Longest name of an inherited descriptor.
pub(super) const NAME_BYTES_MAX: usize = 64;

/// Descriptors by name.
pub(super) type NamedFds = Vec<(String, RawFd)>;

/// What this process is to become.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Role {
    Keeper { socket: RawFd, driver: i32, output: Output, fds: NamedFds },
    Worker { slot: u32, incarnation: u32, words: Words, keeper: i32, fds: NamedFds },
}

impl Role {
    /// The value of the variable.
    pub(super) fn to_text(&self) -> String {
        let list = |fds: &NamedFds| {
            let pairs: Vec<String> = fds.iter().map(|(name, fd)| format!("{name}={fd}")).collect();
            pairs.join(",")
        };
        match self {
            Role::Keeper { socket, driver, output, fds } => {
                format!("{PROTOCOL_VERSION};keeper;{socket};{driver};{};{}", output.word(), list(fds))
            }
            Role::Worker { slot, incarnation, words, keeper, fds } => {
                let words = words.map(|word| word.to_string()).join(".");
                format!("{PROTOCOL_VERSION};worker;{slot};{incarnation};{words};{keeper};{}", list(fds))
            }
        }
    }

    /// Reads the value of the variable; the error says what is wrong with it.
    pub(super) fn from_text(text: &str) -> Result<Role, String> {
        let bad = |what: &str| format!("{what} in {text:?}");
        let fields: Vec<&str> = text.split(';').collect();
        if fields.first() != Some(&PROTOCOL_VERSION.to_string().as_str()) {
            return Err(bad("another protocol version"));
        }
        let role = match fields[1..] {
            ["keeper", socket, driver, output, fds] => (|| {
                Some(Role::Keeper {
                    socket: socket.parse().ok()?,
                    driver: driver.parse().ok()?,
                    output: Output::from_word(output)?,
                    fds: read_fds(fds)?,
                })
            })(),
            ["worker", slot, incarnation, words, keeper, fds] => (|| {
                Some(Role::Worker {
                    slot: slot.parse().ok()?,
                    incarnation: incarnation.parse().ok()?,
                    words: read_words(words)?,
                    keeper: keeper.parse().ok()?,
                    fds: read_fds(fds)?,
                })
            })(),
            _ => return Err(bad("unknown role")),
        };
        role.ok_or_else(|| bad("malformed number"))
    }
}

fn read_words(list: &str) -> Option<Words> {
    let words: Option<Vec<u64>> = list.split('.').map(|word| word.parse().ok()).collect();
    words?.try_into().ok()
}

fn read_fds(list: &str) -> Option<NamedFds> {
    if list.is_empty() {
        return Some(Vec::new());
    }
    list.split(',')
        .map(|pair| {
            let (name, fd) = pair.split_once('=')?;
            Some((name.to_owned(), fd.parse().ok()?))
        })
        .collect()
}

/// A name that survives the format above.
pub(super) fn is_good_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_survives_the_environment() {
        let fds = vec![("arena".to_owned(), 7), ("object-table".to_owned(), 9)];
        for role in [
            Role::Keeper { socket: 5, driver: 12, output: Output::Lines, fds: Vec::new() },
            Role::Worker { slot: 1, incarnation: 2, words: [0, 1, 2, u64::MAX, 4], keeper: 3, fds },
        ] {
            assert_eq!(Role::from_text(&role.to_text()), Ok(role));
        }
        for bad in [
            "",
            "2",
            "1;keeper;5;12;lines;",
            "2;keeper;x;12;lines;",
            "2;keeper;5;12;loud;",
            "2;worker;1;2;0.0.0.0;3;arena",
            "2;worker;1;2;0.0.0;3;",
            "2;other;;",
        ] {
            assert!(Role::from_text(bad).is_err(), "{bad:?}");
        }
        assert!(is_good_name("object-table") && !is_good_name("a=b") && !is_good_name(""));
    }
}
