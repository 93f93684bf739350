//! `cargo xtask netlab`: a lab for people, which stays until it is taken down.

#![forbid(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use bireme_netlab::{Error, Lab};

const USAGE: &str = "\
usage: cargo xtask netlab <command>

  up HOSTS [RATE]      make hosts 1 to HOSTS, with links of this rate (100mbit, 1gbit) or as fast as the machine
  hold HOSTS           make hosts until standard input ends; prints number, address and namespace of each
  exec HOST CMD...     run a command on a host
  addr HOST            print the address of a host
  rate HOST RATE       give a host's link another rate
  cut HOST [TO]        cut a host off; with TO only what it sends to that host
  heal HOST [TO]       end that
  down                 take the lab away, with everything that runs in it
  check                say whether this machine and user can have labs";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match act(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("netlab: {error}");
            ExitCode::FAILURE
        }
    }
}

/// False when the words are no command.
fn act(words: &[&str]) -> Result<bool, Error> {
    match *words {
        ["up", hosts] => Lab::up_kept(number(hosts)?, None)?,
        ["up", hosts, rate] => Lab::up_kept(number(hosts)?, Some(rate.parse()?))?,
        ["hold", hosts] => {
            let lab = Lab::up(number(hosts)?, None)?;
            for host in 1..=lab.hosts() {
                println!("{host} {} {}", lab.address(host), lab.namespace(host));
            }
            // Whoever made us writes nothing, and is gone when this ends.
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        }
        ["exec", host, program, ref rest @ ..] => with_lab(|lab| {
            lab_host(lab, host)?;
            let error = lab.command(number(host)?, program).args(rest).exec();
            Err(Error::Command { command: program.to_owned(), said: error.to_string() })
        })?,
        ["addr", host] => with_lab(|lab| lab_host(lab, host).map(|address| println!("{address}")))?,
        ["rate", host, rate] => with_lab(|lab| lab.rate(number(host)?, rate.parse()?))?,
        ["cut", host] => with_lab(|lab| lab.cut(number(host)?))?,
        ["cut", host, to] => with_lab(|lab| lab.cut_one_way(number(host)?, number(to)?))?,
        ["heal", host] => with_lab(|lab| lab.heal(number(host)?))?,
        ["heal", host, to] => with_lab(|lab| lab.heal_one_way(number(host)?, number(to)?))?,
        ["down"] => drop(Lab::kept()?),
        ["check"] => match Lab::available() {
            Ok(()) => println!("network labs can be made here"),
            // No failure: the tests that need one say so as well.
            Err(error) => println!("{error}; tests that need one are not run"),
        },
        _ => return Ok(false),
    }
    Ok(true)
}

fn with_lab(act: impl FnOnce(&Lab) -> Result<(), Error>) -> Result<(), Error> {
    let lab = Lab::kept()?;
    let done = act(&lab);
    lab.keep();
    done
}

fn lab_host(lab: &Lab, host: &str) -> Result<std::net::Ipv4Addr, Error> {
    let host = number(host)?;
    match (1..=lab.hosts()).contains(&host) {
        true => Ok(lab.address(host)),
        false => Err(Error::NoSuchHost { host, hosts: lab.hosts() }),
    }
}

fn number(word: &str) -> Result<u8, Error> {
    let bad = |_| Error::Command { command: format!("netlab {word}"), said: "no number of a host".to_owned() };
    word.parse().map_err(bad)
}
