//! Rows about one task that runs on another node.

use std::fs;

use bireme::Strategy;
use bireme_runtime::core::id::NodeId;

use super::super::Outcome;
use super::super::measure::{Pair, median_us};
use super::super::tasks::nothing;
use super::driver::{Driver, Order};
use super::nodes::Nodes;
use super::place::Place;
use super::stage::{Measured, Stage};
use super::wire::{MESSAGE_BYTES, latencies, ping_pong};

/// Nodes of the larger cluster whose messages are counted.
const MANY_NODES: usize = 8;

/// How long from the call of an empty task to its result, when the driver's node has no CPU and another one has?
pub(super) fn remote_task(stage: &Stage) -> Outcome<Measured> {
    let nodes = Nodes::start(stage, &[0.0, 1.0], None)?;
    let mut driver = Driver::attach(stage, &nodes, 0)?;
    let count = stage.size(3_000, 100);
    driver.ask(&Order::Sync { count: stage.size(500, 10) })?;
    let pairs = stage.measure(|_| {
        let ours = driver.number(&Order::Sync { count })?;
        Ok(Pair { ours, floor: ping_pong(stage, nodes.place(), [0, 1], MESSAGE_BYTES, count)? })
    })?;
    driver.end()?;
    let tls = nodes.status()?.security.mutual_tls;
    let floors = latencies(stage, nodes.place(), [0, 1], MESSAGE_BYTES, count)?;
    Ok(Measured::from(pairs).and("mutual_tls", tls).and("replicas", 0).and_latencies(floors))
}

/// How many TCP segments do all nodes of a cluster send for a task, against a cluster of two? It must not grow.
pub(super) fn messages(stage: &Stage) -> Outcome<Measured> {
    let mut cpus = vec![1.0; MANY_NODES];
    cpus[0] = 0.0;
    let (many, two) = (Nodes::start(stage, &cpus, None)?, Nodes::start(stage, &cpus[..2], None)?);
    let mut drivers = [Driver::attach(stage, &many, 0)?, Driver::attach(stage, &two, 0)?];
    let count = stage.size(3_000, 100);
    for driver in &mut drivers {
        driver.ask(&Order::Sync { count })?;
    }
    let mut bytes = 0.0;
    let pairs = stage.measure(|_| {
        let [ours, floor] = [(&many, 0), (&two, 1)].map(|(nodes, which)| -> Outcome<f64> {
            let before = Sent::of(nodes)?;
            drivers[which].ask(&Order::Sync { count })?;
            let after = Sent::of(nodes)?;
            bytes = (after.bytes - before.bytes) / count as f64;
            Ok((after.segments - before.segments) / count as f64)
        });
        Ok(Pair { ours: ours?, floor: floor? })
    })?;
    let [many_end, two_end] = drivers.map(Driver::end);
    many_end.and(two_end)?;
    Ok(Measured::from(pairs).and("nodes", MANY_NODES).and("bytes_among_two", bytes.round()))
}

/// What the hosts of a cluster have sent so far.
struct Sent {
    segments: f64,
    bytes: f64,
}

impl Sent {
    /// By the counters of each host; over loopback there is one.
    fn of(nodes: &Nodes) -> Outcome<Self> {
        let hosts = match nodes.place() {
            Place::Lab(_) => nodes.all(),
            Place::Loopback => &nodes.all()[..1],
        };
        let mut sent = Self { segments: 0.0, bytes: 0.0 };
        for host in hosts {
            let read = |name: &str| fs::read_to_string(format!("/proc/{}/net/{name}", host.process.id));
            sent.segments += counter(&read("snmp")?, "Tcp:", "OutSegs").ok_or("the kernel counts no segments")?;
            sent.bytes += counter(&read("netstat")?, "IpExt:", "OutOctets").ok_or("the kernel counts no bytes")?;
        }
        Ok(sent)
    }
}

/// A counter in a file of the kernel with two lines per protocol, names and values.
fn counter(text: &str, protocol: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)).map(str::split_whitespace);
    let at = lines.next()?.position(|word| word == name)?;
    lines.next()?.nth(at)?.parse().ok()
}

/// The driver's side: a task on each node, so that the program and a worker are there.
pub(super) fn visit(nodes: &[u32]) -> Outcome<Vec<f64>> {
    for node in nodes {
        let strategy = Strategy::Node { node: NodeId(*node), soft: false };
        nothing::options().strategy(strategy).remote().get()?;
    }
    Ok(Vec::new())
}

/// The driver's side: the median of calls.
pub(super) fn sync(count: usize) -> Outcome<Vec<f64>> {
    Ok(vec![median_us(count, || Ok(nothing::remote().get()?))?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text = "Ip: A B\nIp: 1 2\nTcp: InSegs OutSegs X\nTcp: 7 8 9\n";
        assert_eq!(counter(text, "Tcp:", "OutSegs"), Some(8.0));
        assert_eq!(counter(text, "Tcp:", "Missing"), None);
        assert_eq!(counter(text, "Udp:", "OutSegs"), None);
    }
}
