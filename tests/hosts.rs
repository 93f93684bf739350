//! What the tests of clusters share: hosts with addresses of their own, nodes that the real command starts there, and
//! drivers that are this program started again.
//!
//! Hosts have one file system and one table of processes, so each has a state directory of its own. All of them, and what
//! runs there, go with the value, also after a failure.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use bireme_netlab::Lab;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{self, PATIENCE, Scratch, Watch};

/// The port of every head: each is on a host of its own.
const HEAD_PORT: u16 = 6400;
/// The test of a program that is a driver when its environment says so.
const DRIVER_TEST: &str = "a_driver_when_the_environment_asks_for_it";
/// To what such a driver connects.
pub const ADDRESS: &str = "BIREME_TEST_ADDRESS";

/// Hosts, and the files of what runs on them.
pub struct Hosts {
    pub lab: Lab,
    pub folder: Scratch,
}

impl Hosts {
    /// Makes them; nothing where there can be none.
    pub fn up(name: &str, hosts: u8) -> Option<Self> {
        let lab = Lab::up_or_explain(hosts, None)?;
        let folder = Scratch::new(name);
        for host in 1..=hosts {
            std::fs::DirBuilder::new().mode(0o700).create(folder.path(&format!("h{host}"))).unwrap();
        }
        Some(Self { lab, folder })
    }

    /// The state directory of a host.
    pub fn state(&self, host: u8) -> PathBuf {
        self.folder.path(&format!("h{host}"))
    }

    /// Where a head listens.
    pub fn head_address(&self) -> String {
        format!("{}:{HEAD_PORT}", self.lab.address(1))
    }

    /// A program on a host, which sees nothing of the settings of this one.
    pub fn command(&self, host: u8, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.lab.command(host, program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BIREME_") || name.starts_with("XDG_")) {
            command.env_remove(name);
        }
        command.env("BIREME_STATE_DIRECTORY", self.state(host)).env("HOME", self.state(host));
        command.env("BIREME_NUM_CPUS", "1").env("BIREME_OBJECT_STORE_MEMORY", "300MB");
        command
    }

    /// `bireme` on a host.
    pub fn bireme(&self, host: u8, arguments: &[&str]) -> Output {
        self.command(host, env!("CARGO_BIN_EXE_bireme")).args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// The same; it must work. What it printed.
    pub fn bireme_ok(&self, host: u8, arguments: &[&str]) -> String {
        let output = self.bireme(host, arguments);
        assert!(output.status.success(), "bireme {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout).to_owned()
    }

    /// The first node of a cluster, on host 1, with these flags.
    pub fn head(&self, flags: &[&str]) -> Node {
        let (host, port) = (self.lab.address(1).to_string(), HEAD_PORT.to_string());
        let head = self.start(1, &[&["--host", &host, "--port", &port], flags].concat());
        for purpose in ["node", "client"] {
            self.bireme_ok(1, &["token", "create", "--for", purpose, "--output", &self.token(purpose)]);
        }
        head
    }

    /// One more node.
    pub fn join(&self, host: u8, flags: &[&str]) -> Node {
        let (head, token) = (self.head_address(), self.token("node"));
        self.start(host, &[&["--address", &head, "--token-file", &token], flags].concat())
    }

    /// Further nodes on these hosts, all at once.
    pub fn join_all(&self, hosts: impl IntoIterator<Item = u8>, flags: &[&str]) -> Vec<Node> {
        std::thread::scope(|scope| {
            let each: Vec<_> = hosts.into_iter().map(|host| scope.spawn(move || self.join(host, flags))).collect();
            each.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Starts a node; with one CPU, little memory and a resource named after its host, `h2`, unless the flags say otherwise.
    pub fn start(&self, host: u8, flags: &[&str]) -> Node {
        let mut command = self.command(host, env!("CARGO_BIN_EXE_bireme"));
        let arguments = [&["start", "--json"], flags].concat();
        let output = command.args(&arguments).env("BIREME_RESOURCES", format!("h{host}=1000")).output().unwrap();
        assert!(output.status.success(), "bireme {arguments:?}: {}", text(&output.stderr));
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let watch = Watch::new(said["process"]["id"].as_i64().unwrap() as i32);
        let name = said["node"].to_string().trim_matches('"').to_owned();
        Node { host, name, watch, said }
    }

    /// A file with a token of the cluster: for a `node` or a `client`.
    pub fn token(&self, purpose: &str) -> String {
        self.folder.path(&format!("{purpose}.token")).display().to_string()
    }

    /// A driver on a host: of its node, or of none when there is none.
    pub fn driver(&self, host: u8) -> Driver {
        let mut driver = self.try_driver(host);
        assert_eq!(driver.tells("said"), "ready");
        driver
    }

    /// The same, which may be refused.
    pub fn try_driver(&self, host: u8) -> Driver {
        self.scenario(host, "driver", DRIVER_TEST)
    }

    /// A test of this program, started again on a host with a scenario, an address and a client's token if there is one.
    pub fn scenario(&self, host: u8, scenario: &str, test: &str) -> Driver {
        let mut command = self.command(host, std::env::current_exe().unwrap());
        command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(support::SCENARIO, scenario)
            .env(ADDRESS, self.head_address())
            .env("BIREME_NAMESPACE", "hosts");
        let token = self.token("client");
        if Path::new(&token).exists() {
            command.env("BIREME_TOKEN_FILE", token);
        }
        Driver::of(command)
    }

    /// A line for the shell of a host, in its home, which must work. What it printed.
    pub fn shell(&self, host: u8, line: &str) -> String {
        let folder = Path::new(env!("CARGO_BIN_EXE_bireme")).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let mut command = self.command(host, "sh");
        let output = command.args(["-c", line]).env("PATH", path).current_dir(self.state(host)).output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout).to_owned()
    }

    /// Says which host a process runs on, by its network.
    pub fn host_of(&self, network: &str) -> u8 {
        let own = |host: &u8| self.lab.run(*host, network_of_this_thread).unwrap() == network;
        (1..=self.lab.hosts()).find(own).unwrap_or_else(|| panic!("{network} is the network of no host"))
    }

    /// Processes on any of the hosts.
    pub fn processes(&self) -> Vec<(i32, u8, String)> {
        let networks: Vec<String> =
            (1..=self.lab.hosts()).map(|host| self.lab.run(host, network_of_this_thread).unwrap()).collect();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let on_host = |pid: i32| {
            let network = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?.display().to_string();
            let host = networks.iter().position(|known| *known == network)? as u8 + 1;
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            Some((pid, host, String::from_utf8_lossy(&words).replace('\0', " ")))
        };
        pids.filter_map(on_host).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for host in 1..=self.lab.hosts() {
                self.print_log(host);
            }
        }
    }
}

impl Hosts {
    /// What the nodes of a host have logged.
    pub fn log(&self, host: u8) -> String {
        let folders = std::fs::read_dir(self.state(host).join("nodes")).into_iter().flatten().flatten();
        folders.map(|folder| std::fs::read_to_string(folder.path().join("node.log")).unwrap_or_default()).collect()
    }

    fn print_log(&self, host: u8) {
        for line in self.log(host).lines() {
            eprintln!("h{host}: {line}");
        }
    }
}

/// The network of the thread that asks: sockets that it makes are there.
pub fn network_of_this_thread() -> String {
    std::fs::read_link("/proc/thread-self/ns/net").unwrap().display().to_string()
}

/// A node that the command started.
pub struct Node {
    pub host: u8,
    /// As users see it: `node-2`.
    pub name: String,
    pub watch: Watch,
    /// What the command told of it.
    pub said: Value,
}

impl Node {
    pub fn address(&self) -> &str {
        self.said["address"].as_str().unwrap()
    }

    pub fn kill(&self) {
        self.watch.kill(Signal::KILL);
        assert!(self.watch.ended_within(PATIENCE));
    }
}

/// This program as a driver: does what is written to its standard input, a line at a time, and answers each with a line.
pub struct Driver {
    child: Child,
    pub watch: Watch,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Driver {
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, lines) = (child.stdin.take(), follow(child.stdout.take().unwrap()));
        Self { watch: Watch::new(child.id() as i32), child, input, lines }
    }

    /// The words after `key=` in the next line that has them.
    pub fn tells(&mut self, key: &str) -> String {
        let wanted = format!("{key}=");
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|why| panic!("it did not tell {key}: {why}"));
            if let Some(at) = line.find(&wanted) {
                return line[at + wanted.len()..].trim().to_owned();
            }
        }
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.tells("said")
    }

    pub fn number(&mut self, line: &str) -> i64 {
        let said = self.ask(line);
        said.parse().unwrap_or_else(|_| panic!("{line}: {said}"))
    }

    /// Ends it in good order.
    pub fn end(mut self) {
        drop(self.input.take());
        assert!(self.watch.ended_within(PATIENCE), "the driver does not end");
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follow(from: impl Read + Send + 'static) -> Receiver<String> {
    let (lines, followed) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    followed
}

/// The address that this process is to connect to, when it is a driver.
pub fn address_of_environment() -> Option<String> {
    (support::scenario().as_deref() == Some("driver")).then(|| std::env::var(ADDRESS).unwrap())
}

/// The part of a driver, until its standard input ends: each line is a question, in words, to which it says an answer. Nothing when
/// the environment asks for no driver.
pub fn be_a_driver(mut answer: impl FnMut(&[&str]) -> bireme::Result<String>) {
    let Some(address) = address_of_environment() else { return };
    let _context = match bireme::init_with(bireme::Config::default().address(&address)) {
        Ok(context) => context,
        Err(error) => return println!("\nsaid=error {error}"),
    };
    println!("\nsaid=ready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match answer(&words) {
            Ok(text) => println!("said={text}"),
            Err(error) => println!("said=error {}", error.to_string().replace('\n', " ")),
        }
    }
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
