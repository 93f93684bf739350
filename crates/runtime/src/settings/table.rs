//! The one table of settings: name, type, default, variable, flag and what it means.
//!
//! The name is the key in the configuration file. The variable is `BIREME_` and the name in capitals, the flag the name
//! with dashes; a test holds them to that. The command line makes its flags from this table.

use super::surroundings::Surroundings;

/// What a value may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// Text that is never printed.
    Secret,
    /// `HOST:PORT`.
    Address,
    /// An IP address of this machine.
    Ip,
    /// A port; 0 is any that is free.
    Port,
    /// A whole number.
    Count,
    /// A number that may have a fraction.
    Amount,
    /// More than 0 and at most 1.
    Fraction,
    /// Bytes, with or without a unit: `1073741824`, `500MB`, `4GiB`.
    Bytes,
    /// Named amounts: `NAME=AMOUNT,NAME=AMOUNT`; a table in the file.
    Resources,
    /// A folder or file; made absolute.
    Path,
    /// A time with its unit: `100ms`, `2s`, `1m`.
    Duration,
    /// A time that may be nothing: `0ms`, `5ms`.
    Delay,
    /// `on` or `off`.
    Switch,
}

impl Kind {
    /// What help texts call a value of this kind.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Text => "TEXT",
            Self::Secret => "SECRET",
            Self::Address => "HOST:PORT",
            Self::Ip => "IP",
            Self::Port => "PORT",
            Self::Count => "COUNT",
            Self::Amount => "AMOUNT",
            Self::Fraction => "FRACTION",
            Self::Bytes => "BYTES",
            Self::Resources => "NAME=AMOUNT,..",
            Self::Path => "PATH",
            Self::Duration | Self::Delay => "TIME",
            Self::Switch => "on|off",
        }
    }
}

/// What holds when nobody says otherwise.
#[derive(Clone, Copy)]
pub enum Default {
    /// This, read like any other text.
    Fixed(&'static str),
    /// What follows from the machine and the user.
    Found(fn(&Surroundings) -> String),
    /// No value; the text says what that means.
    Unset(&'static str),
}

/// One setting.
pub struct Setting {
    /// Its key in the file.
    pub name: &'static str,
    /// What its value may look like.
    pub kind: Kind,
    /// What holds when nobody says otherwise.
    pub default: Default,
    /// Its environment variable.
    pub variable: &'static str,
    /// Its flag, without the dashes; none when a command line, which other users can read, is no place for it.
    pub flag: Option<&'static str>,
    /// What it means, for people.
    pub help: &'static str,
}

const fn setting(
    name: &'static str,
    kind: Kind,
    default: Default,
    variable: &'static str,
    flag: &'static str,
    help: &'static str,
) -> Setting {
    Setting { name, kind, default, variable, flag: Some(flag), help }
}

/// Every setting.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    setting("address", Kind::Address, Default::Unset("a cluster of its own"), "BIREME_ADDRESS", "address",
        "Node of the cluster to join or to connect to"),
    setting("host", Kind::Ip, Default::Fixed("127.0.0.1"), "BIREME_HOST", "host",
        "Address to listen on; anything but loopback wants tokens and encrypts"),
    setting("port", Kind::Port, Default::Fixed("0"), "BIREME_PORT", "port",
        "Port to listen on; 0 takes any that is free"),
    setting("num_cpus", Kind::Amount, Default::Unset("all of the machine"), "BIREME_NUM_CPUS", "num-cpus",
        "CPUs that tasks may use"),
    setting("num_gpus", Kind::Amount, Default::Fixed("0"), "BIREME_NUM_GPUS", "num-gpus",
        "GPUs that tasks may use"),
    setting("memory", Kind::Bytes, Default::Unset("all of the machine"), "BIREME_MEMORY", "memory",
        "Memory that tasks may ask for"),
    setting("resources", Kind::Resources, Default::Fixed(""), "BIREME_RESOURCES", "resources",
        "Named resources that tasks may ask for"),
    setting("object_store_memory", Kind::Bytes, Default::Unset("30 % of the machine"), "BIREME_OBJECT_STORE_MEMORY",
        "object-store-memory", "Shared memory for objects; pages are used only when written"),
    setting("state_directory", Kind::Path, Default::Found(Surroundings::state_directory), "BIREME_STATE_DIRECTORY",
        "state-directory", "Folder for sockets, logs and keys; only you may read it"),
    setting("spill_directory", Kind::Path, Default::Unset("the system's folder for temporary files"),
        "BIREME_SPILL_DIRECTORY", "spill-directory", "Folder for objects that shared memory has no room for"),
    setting("heartbeat_period", Kind::Duration, Default::Fixed("50ms"), "BIREME_HEARTBEAT_PERIOD", "heartbeat-period",
        "Time between two signs of life of a node; what the head has holds for all"),
    setting("node_lease", Kind::Duration, Default::Fixed("2s"), "BIREME_NODE_LEASE", "node-lease",
        "Silence after which a node counts as dead; what the head has holds for all"),
    setting("rejoin_time", Kind::Duration, Default::Fixed("1m"), "BIREME_REJOIN_TIME", "rejoin-time",
        "How long a node that lost its cluster tries to join it again before it ends"),
    setting("bulk_encryption", Kind::Switch, Default::Fixed("on"), "BIREME_BULK_ENCRYPTION", "bulk-encryption",
        "Whether bytes of objects are encrypted between machines; they are authenticated in any case"),
    setting("local_copies", Kind::Switch, Default::Fixed("on"), "BIREME_LOCAL_COPIES", "local-copies",
        "Whether nodes of one user on one machine read objects in each other's memory"),
    setting("link_delay", Kind::Delay, Default::Fixed("0ms"), "BIREME_LINK_DELAY", "link-delay",
        "A testing aid: what comes from other nodes arrives so much later, at the same rate"),
    setting("link_queue", Kind::Bytes, Default::Fixed("32MiB"), "BIREME_LINK_QUEUE", "link-queue",
        "Messages that wait for one other node, beyond which whoever has more for it waits"),
    Setting { name: "token", kind: Kind::Secret, default: Default::Unset("none"), variable: "BIREME_TOKEN", flag: None,
        help: "Token with which to join; no flag, since other users can read command lines" },
    setting("token_file", Kind::Path, Default::Unset("none"), "BIREME_TOKEN_FILE", "token-file",
        "File with the token, which only you may read"),
    setting("log_directory", Kind::Path, Default::Unset("the state directory, until the node ends"),
        "BIREME_LOG_DIRECTORY", "log-directory", "Folder for logs that stay when the node has ended"),
    setting("python", Kind::Text, Default::Found(Surroundings::python), "BIREME_PYTHON", "python",
        "Interpreter for Python workers"),
    setting("memory_limit_fraction", Kind::Fraction, Default::Fixed("0.95"), "BIREME_MEMORY_LIMIT_FRACTION",
        "memory-limit-fraction", "Part of the machine's memory in use at which the largest worker is ended"),
    setting("processes_max", Kind::Count, Default::Fixed("1024"), "BIREME_PROCESSES_MAX", "processes-max",
        "Worker processes at most; then tasks wait"),
    setting("replicas", Kind::Count, Default::Fixed("0"), "BIREME_REPLICAS", "replicas",
        "Copies of the ledger on other nodes; only 0 for now"),
    setting("namespace", Kind::Text, Default::Unset("each job has its own"), "BIREME_NAMESPACE", "namespace",
        "Namespace in which names of actors and groups are looked up"),
];

/// The setting with this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The name that was meant, if one is near.
pub(super) fn nearest(word: &str) -> Option<&'static str> {
    let word = word.replace('-', "_").to_lowercase();
    let near = SETTINGS.iter().map(|setting| (distance(&word, setting.name), setting.name));
    // A third of the letters wrong is another word.
    near.min().filter(|(far, name)| *far <= name.len().div_ceil(3)).map(|(_, name)| name)
}

/// How many letters have to be put in, taken out or changed to make one word the other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, letter) in left.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, other) in right.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_variables_follow_from_names() {
        for setting in SETTINGS {
            assert_eq!(setting.variable, format!("BIREME_{}", setting.name.to_uppercase()));
            assert_eq!(setting.flag.unwrap_or("token"), setting.name.replace('_', "-"));
            assert!(!setting.help.is_empty() && !setting.help.ends_with('.'));
        }
        assert!(find("token").is_some_and(|setting| setting.flag.is_none()), "command lines can be read by others");
    }

    #[test]
    fn a_near_name_is_found_and_a_far_one_is_not() {
        for (word, meant) in [
            ("num_cpu", Some("num_cpus")),
            ("num-cpus", Some("num_cpus")),
            ("prot", Some("port")),
            ("Host", Some("host")),
            ("heartbeat", None),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word), meant, "{word}");
        }
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
