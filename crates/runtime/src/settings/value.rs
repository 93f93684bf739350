//! Values of settings: read from text, and shown again.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::table::Kind;

/// A text that is never printed, also not by `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps the text.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text, for whoever needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text, or an address.
    Text(String),
    /// A text that is never printed.
    Secret(Secret),
    /// An IP address.
    Ip(IpAddr),
    /// A whole number: a port, a count, bytes.
    Number(u64),
    /// A number that may have a fraction.
    Amount(f64),
    /// Named amounts.
    Resources(BTreeMap<String, f64>),
    /// A path that begins at the root.
    Path(PathBuf),
    /// A time.
    Duration(Duration),
    /// On or off.
    Switch(bool),
}

/// Letters after a number of bytes.
const BYTE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];
/// Letters after a time, in microseconds.
const TIME_UNITS: &[(&str, u64)] =
    &[("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000)];

impl Value {
    /// Reads a value. The error says what it should look like.
    pub fn parse(kind: Kind, text: &str, working_directory: &Path) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.is_empty() && kind != Kind::Resources {
            return Err("is empty");
        }
        Ok(match kind {
            Kind::Text => Self::Text(text.to_owned()),
            Kind::Secret => Self::Secret(Secret::new(text)),
            Kind::Address => Self::Text(address(text)?),
            Kind::Ip => Self::Ip(text.parse().map_err(|_| "is no IP address such as 127.0.0.1 or 0.0.0.0")?),
            Kind::Port => Self::Number(text.parse::<u16>().map_err(|_| "is no port: a number from 0 to 65535")?.into()),
            Kind::Count => Self::Number(text.parse::<u32>().map_err(|_| "is no whole number")?.into()),
            Kind::Amount => Self::Amount(amount(text).ok_or("is no number of 0 or more")?),
            Kind::Fraction => Self::Amount(
                amount(text).filter(|part| *part > 0.0 && *part <= 1.0).ok_or("is not more than 0 and at most 1")?,
            ),
            Kind::Bytes => {
                Self::Number(scaled(text, BYTE_UNITS).ok_or("is no size such as 1073741824, 500MB or 4GiB")?)
            }
            Kind::Resources => Self::Resources(resources(text)?),
            Kind::Path => Self::Path(working_directory.join(text)),
            Kind::Duration => match time(text).ok_or("is no time such as 100ms, 2s or 1m")? {
                Duration::ZERO => return Err("is too short: give a time longer than 0, such as 100ms, 2s or 1m"),
                time => Self::Duration(time),
            },
            Kind::Delay => Self::Duration(time(text).ok_or("is no time such as 0ms, 1ms or 5ms")?),
            Kind::Switch => Self::Switch(match text.to_ascii_lowercase().as_str() {
                "on" | "true" | "yes" | "1" => true,
                "off" | "false" | "no" | "0" => false,
                _ => return Err("is neither on nor off"),
            }),
        })
    }
}

/// `HOST:PORT`, checked as far as that goes without asking the network.
pub(super) fn address(text: &str) -> Result<String, &'static str> {
    const WRONG: &str = "is no address of the form HOST:PORT, or [IPV6]:PORT";
    if let Ok(parsed) = text.parse::<SocketAddr>() {
        return if parsed.port() == 0 { Err("names port 0, where nothing listens") } else { Ok(text.to_owned()) };
    }
    let (host, port) = text.rsplit_once(':').ok_or(WRONG)?;
    let named = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.');
    let port: u16 = port.parse().map_err(|_| WRONG)?;
    if named && port > 0 { Ok(text.to_owned()) } else { Err(WRONG) }
}

fn amount(text: &str) -> Option<f64> {
    text.parse().ok().filter(|amount: &f64| amount.is_finite() && *amount >= 0.0)
}

/// A number with a unit of time, which must be there.
fn time(text: &str) -> Option<Duration> {
    let microseconds = scaled(text, TIME_UNITS).filter(|_| !text.ends_with(|c: char| c.is_ascii_digit()));
    microseconds.map(Duration::from_micros)
}

/// A number with a unit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = text[end..].trim().to_ascii_lowercase();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let number = &text[..end];
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(*factor),
        Err(_) => {
            let scaled = amount(number)? * *factor as f64;
            (scaled <= u64::MAX as f64 && number.contains('.')).then_some(scaled as u64)
        }
    }
}

fn resources(text: &str) -> Result<BTreeMap<String, f64>, &'static str> {
    let mut found = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, number) = part.split_once('=').ok_or("has a part that is not NAME=AMOUNT")?;
        let name = name.trim();
        if name.is_empty() {
            return Err("has an amount without a name");
        }
        let number = amount(number.trim()).ok_or("has an amount that is no number of 0 or more")?;
        if found.insert(name.to_owned(), number).is_some() {
            return Err("has a name twice");
        }
    }
    Ok(found)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Secret(secret) => write!(f, "{secret:?}"),
            Self::Ip(address) => write!(f, "{address}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Amount(amount) => write!(f, "{amount}"),
            Self::Resources(resources) => {
                let parts: Vec<String> = resources.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
                f.write_str(&parts.join(","))
            }
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Duration(time) => write!(f, "{time:?}"),
            Self::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, text: &str) -> Option<String> {
        Value::parse(kind, text, Path::new("/here")).ok().map(|value| value.to_string())
    }

    #[test]
    fn values_are_read_by_their_kind() {
        for (kind, text, shown) in [
            (Kind::Address, "head-1.example:6000", "head-1.example:6000"),
            (Kind::Address, "[::1]:6000", "[::1]:6000"),
            (Kind::Ip, "0.0.0.0", "0.0.0.0"),
            (Kind::Port, " 65535 ", "65535"),
            (Kind::Amount, "0.5", "0.5"),
            (Kind::Fraction, "1", "1"),
            (Kind::Bytes, "4GiB", "4294967296"),
            (Kind::Bytes, "1.5 kb", "1500"),
            (Kind::Bytes, "7", "7"),
            (Kind::Resources, "a = 1, b=0.5,", "a=1,b=0.5"),
            (Kind::Resources, "", ""),
            (Kind::Path, "logs", "/here/logs"),
            (Kind::Path, "/logs", "/logs"),
            (Kind::Duration, "1.5s", "1.5s"),
            (Kind::Duration, "2m", "120s"),
            (Kind::Delay, "0ms", "0ns"),
            (Kind::Duration, "1d", "86400s"),
            (Kind::Switch, "True", "on"),
            (Kind::Switch, "off", "off"),
            (Kind::Secret, "x", "(secret)"),
        ] {
            assert_eq!(read(kind, text).as_deref(), Some(shown), "{kind:?} {text}");
        }
    }

    #[test]
    fn what_is_no_value_of_the_kind_is_refused() {
        for (kind, text) in [
            (Kind::Address, "head"),
            (Kind::Address, "head:0"),
            (Kind::Address, "127.0.0.1:0"),
            (Kind::Address, ":80"),
            (Kind::Address, "::1:80"),
            (Kind::Address, "a b:80"),
            (Kind::Ip, "localhost"),
            (Kind::Port, "65536"),
            (Kind::Port, "-1"),
            (Kind::Count, "1.5"),
            (Kind::Amount, "-1"),
            (Kind::Amount, "nan"),
            (Kind::Amount, "inf"),
            (Kind::Fraction, "0"),
            (Kind::Fraction, "1.1"),
            (Kind::Bytes, "4 potatoes"),
            (Kind::Bytes, "99999999999TiB"),
            (Kind::Bytes, "GiB"),
            (Kind::Resources, "a"),
            (Kind::Resources, "=1"),
            (Kind::Resources, "a=1,a=2"),
            (Kind::Duration, "100"),
            (Kind::Duration, "0s"),
            (Kind::Delay, "0"),
            (Kind::Switch, "maybe"),
            (Kind::Text, "  "),
        ] {
            assert_eq!(read(kind, text), None, "{kind:?} {text}");
        }
    }
}
