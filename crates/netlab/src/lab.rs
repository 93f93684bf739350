//! The lab: hosts on a switch, and what can be done to their links.
//!
//! A lab goes with its value, also in a panic; what a killed process left is taken away when the next lab is made. A cut
//! is silent, as on a network: nothing is refused, nothing arrives.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::name::{FOLDER, LabName, NETS, Owner, namespaces};
use crate::tools::{command, end_processes, ip_batch, run};
use crate::{Error, Rate};

/// Hosts of one lab at most: the addresses of its network.
pub const HOSTS_MAX: u8 = 250;

/// The namespace that is the switch.
const SWITCH: u8 = 0;
/// What a full queue of a shaped link may hold; later packets are lost, as in a switch.
const QUEUE_MS: u32 = 20;
/// Rules of the kernel are asked in this order: cuts before the rule that hands packets to the host.
const CUT_RULE: u32 = 10;
const LOCAL_RULE: u32 = 100;

/// A switch has no firewall. Where the kernel can ask one about what passes a bridge, it does so for every packet.
const FIREWALLS: [&str; 3] = ["iptables", "ip6tables", "arptables"];
/// Hosts have the same one on every machine. It is the one that every kernel has and every namespace may use, and it sets no timer
/// for each packet: where that is the machine's own, busy cores made a ring of eight hosts 3 % slower.
const CONGESTION_CONTROL: &str = "reno";

/// Several hosts that are joined by a switch. Removed when dropped, with every process that runs in it.
#[derive(Debug)]
pub struct Lab {
    name: LabName,
    hosts: u8,
}

impl Lab {
    /// Whether this machine and user can have labs, else why not.
    pub fn available() -> Result<(), Error> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Unavailable("network namespaces need root".to_owned()));
        }
        for tool in ["ip", "tc"] {
            if run(tool, &["-V"], "").is_err() {
                return Err(Error::Unavailable(format!("`{tool}` is missing; install iproute2")));
            }
        }
        let thread = rustix::thread::gettid().as_raw_pid();
        let probe = format!("bireme-probe-{thread}");
        run("ip", &["netns", "add", &probe], "").map_err(|error| Error::Unavailable(error.to_string()))?;
        run("ip", &["netns", "del", &probe], "").map(drop)
    }

    /// Makes hosts, all with links of this rate in each direction; without one they are as fast as the machine.
    pub fn up(hosts: u8, rate: Option<Rate>) -> Result<Self, Error> {
        Self::available()?;
        Self::build(Owner::this_process(), hosts, rate)
    }

    /// The same, for a test: nothing when this machine or user cannot have labs, which fails where nothing may be skipped
    /// ([`not_tested`](crate::not_tested)). With root and without iproute2 it is an error: the checks install it.
    pub fn up_or_explain(hosts: u8, rate: Option<Rate>) -> Option<Self> {
        let reason = match Self::up(hosts, rate) {
            Ok(lab) => return Some(lab),
            Err(Error::Unavailable(reason)) => reason,
            Err(error) => panic!("{error}"),
        };
        assert!(!reason.contains("iproute2"), "{reason}");
        crate::not_tested(&format!("no network lab here: {reason}"));
        None
    }

    /// Makes a lab that stays when this process ends, until [`Lab::kept`] is called and its value dropped.
    pub fn up_kept(hosts: u8, rate: Option<Rate>) -> Result<(), Error> {
        Self::available()?;
        if kept().map(Self::keep).is_some() {
            return Err(Error::LabExists);
        }
        Self::build(Owner::Kept, hosts, rate).map(Self::keep)
    }

    /// The lab that was made by [`Lab::up_kept`]. It goes with this value unless that is kept again.
    pub fn kept() -> Result<Self, Error> {
        kept().ok_or(Error::NoLab)
    }

    /// Leaves the lab as it is.
    pub fn keep(self) {
        std::mem::forget(self);
    }

    /// How many hosts there are; the first is 1.
    pub fn hosts(&self) -> u8 {
        self.hosts
    }

    /// The address of a host.
    pub fn address(&self, host: u8) -> Ipv4Addr {
        self.name.address(host)
    }

    /// The network namespace that a host is, for `ip netns exec`.
    pub fn namespace(&self, host: u8) -> String {
        self.name.namespace(host)
    }

    /// A command that runs on a host. The process that it starts is the program itself.
    pub fn command(&self, host: u8, program: impl AsRef<OsStr>) -> Command {
        let mut command = command("ip");
        command.args(["netns", "exec", &self.name.namespace(host)]).arg(program);
        command
    }

    /// Runs `work` on a host, on a thread of its own. Sockets that it makes stay on that host.
    pub fn run<T: Send>(&self, host: u8, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        self.check(host)?;
        self.run_inside(host, work)
    }

    /// The same, also on the switch.
    fn run_inside<T: Send>(&self, host: u8, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let path = Path::new(FOLDER).join(self.name.namespace(host));
        let failed = |error: io::Error| Error::Command { command: "setns".to_owned(), said: error.to_string() };
        let namespace = File::open(path).map_err(failed)?;
        std::thread::scope(|scope| {
            let on_host = || {
                use std::os::fd::AsFd;
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok::<T, io::Error>(work())
            };
            match scope.spawn(on_host).join() {
                Ok(done) => done.map_err(failed),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Gives the link of one host another rate, in both directions.
    pub fn rate(&self, host: u8, rate: Rate) -> Result<(), Error> {
        self.check(host)?;
        self.shape(SWITCH, &port(host), rate)?;
        self.shape(host, "eth0", rate)
    }

    /// Cuts a host off, in both directions.
    pub fn cut(&self, host: u8) -> Result<(), Error> {
        self.switch_port(host, "down")
    }

    /// Brings it back.
    pub fn heal(&self, host: u8) -> Result<(), Error> {
        self.switch_port(host, "up")
    }

    /// Loses everything that one host sends to another; what comes back arrives.
    pub fn cut_one_way(&self, from: u8, to: u8) -> Result<(), Error> {
        self.heal_one_way(from, to)?;
        ip_batch(Some(&self.name.namespace(to)), &[format!("rule add {}", self.cut_rule(from))])
    }

    /// Ends that.
    pub fn heal_one_way(&self, from: u8, to: u8) -> Result<(), Error> {
        self.check(from)?;
        self.check(to)?;
        // A direction that was not cut has no rule to take away.
        let _ = ip_batch(Some(&self.name.namespace(to)), &[format!("rule del {}", self.cut_rule(from))]);
        Ok(())
    }

    fn build(owner: Owner, hosts: u8, rate: Option<Rate>) -> Result<Self, Error> {
        if hosts == 0 || hosts > HOSTS_MAX {
            return Err(Error::NoSuchHost { host: hosts, hosts: HOSTS_MAX });
        }
        // A network belongs to one lab: only one process at a time looks for a free one.
        let _lock = lock()?;
        remove_leftovers();
        let net = free_net().ok_or(Error::Full)?;
        let lab = Self { name: LabName { net, owner }, hosts };
        lab.make_links()?;
        for host in 1..=hosts {
            lab.make_host(host)?;
            rate.map_or(Ok(()), |rate| lab.rate(host, rate))?;
        }
        Ok(lab)
    }

    fn make_links(&self) -> Result<(), Error> {
        let switch = self.name.namespace(SWITCH);
        let mut lines = vec![format!("netns add {switch}")];
        for host in 1..=self.hosts {
            let (name, port) = (self.name.namespace(host), port(host));
            lines.push(format!("netns add {name}"));
            lines.push(format!("link add {port} netns {switch} type veth peer name eth0 netns {name}"));
        }
        ip_batch(None, &lines)?;
        let mut lines = vec!["link add br0 type bridge".to_owned(), "link set br0 up".to_owned()];
        lines.extend((1..=self.hosts).map(|host| format!("link set {} master br0 up", port(host))));
        ip_batch(Some(&switch), &lines)?;
        for firewall in FIREWALLS {
            self.set(SWITCH, &format!("bridge/bridge-nf-call-{firewall}"), "0")?;
        }
        Ok(())
    }

    /// Changes a setting of the kernel's network on a host or the switch. One that this kernel does not have is left alone.
    fn set(&self, host: u8, setting: &str, value: &str) -> Result<(), Error> {
        let path = Path::new("/proc/sys/net").join(setting);
        match self.run_inside(host, || fs::write(&path, value))? {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::Command { command: format!("{value} into {}", path.display()), said: error.to_string() })
            }
            _ => Ok(()),
        }
    }

    fn make_host(&self, host: u8) -> Result<(), Error> {
        let lines = [
            "link set lo up".to_owned(),
            format!("addr add {}/24 dev eth0", self.address(host)),
            "link set eth0 up".to_owned(),
            // Behind the rules of one-way cuts: what no rule hands to the host is lost on arrival.
            format!("rule add pref {LOCAL_RULE} lookup local"),
            "rule del pref 0".to_owned(),
        ];
        ip_batch(Some(&self.name.namespace(host)), &lines)?;
        self.set(host, "ipv4/tcp_congestion_control", CONGESTION_CONTROL)
    }

    fn shape(&self, host: u8, device: &str, rate: Rate) -> Result<(), Error> {
        let namespace = self.name.namespace(host);
        let (bits, burst) = (rate.to_string(), format!("{}b", rate.burst_bytes()));
        let queue = format!("{QUEUE_MS}ms");
        let head = ["-n", &namespace, "qdisc", "replace", "dev", device, "root", "tbf"];
        let shape = ["rate", &bits, "burst", &burst, "latency", &queue];
        run("tc", &[&head[..], &shape[..]].concat(), "").map(drop)
    }

    fn switch_port(&self, host: u8, state: &str) -> Result<(), Error> {
        self.check(host)?;
        ip_batch(Some(&self.name.namespace(SWITCH)), &[format!("link set {} {state}", port(host))])
    }

    fn cut_rule(&self, from: u8) -> String {
        format!("pref {CUT_RULE} iif eth0 from {} blackhole", self.address(from))
    }

    fn check(&self, host: u8) -> Result<(), Error> {
        match (1..=self.hosts).contains(&host) {
            true => Ok(()),
            false => Err(Error::NoSuchHost { host, hosts: self.hosts }),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        remove(|name| name == self.name);
    }
}

/// The switch's end of a host's link.
fn port(host: u8) -> String {
    format!("h{host}")
}

fn kept() -> Option<Lab> {
    let mut of_kept = namespaces().into_iter().filter(|(name, _)| name.owner == Owner::Kept);
    let (name, first) = of_kept.next()?;
    Some(Lab { name, hosts: of_kept.map(|(_, host)| host).fold(first, u8::max) })
}

/// Held while namespaces are claimed. The folder is locked itself, so that no file is left.
fn lock() -> Result<File, Error> {
    let locked = File::open("/run").and_then(|folder| folder.lock().map(|()| folder));
    locked.map_err(|error| Error::Unavailable(format!("/run cannot be locked: {error}")))
}

/// A network that no lab has, a different one for each process as far as that goes.
fn free_net() -> Option<u16> {
    let taken: Vec<u16> = namespaces().into_iter().map(|(name, _)| name.net).collect();
    let first = (std::process::id() % u32::from(NETS)) as u16;
    (0..NETS).map(|step| (first + step) % NETS).find(|net| !taken.contains(net))
}

fn remove_leftovers() {
    remove(|name| name.owner.is_gone());
}

/// Takes namespaces away: first what runs there, then they themselves, and their links with them.
fn remove(wanted: impl Fn(LabName) -> bool) {
    for (name, host) in namespaces().into_iter().filter(|(name, _)| wanted(*name)) {
        let namespace = name.namespace(host);
        end_processes(&namespace);
        // One that cannot be removed is looked at again by the next lab.
        let _ = run("ip", &["netns", "del", &namespace], "");
    }
}
