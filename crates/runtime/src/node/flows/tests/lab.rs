//! A few nodes in one process: each has a store, serves the others over loopback sockets, and carries out stages.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bireme_core::message::{FromNode, ToNode};
use bireme_net::bulk::HostMark;
use bireme_net::wire::PlainWire;
use bireme_net::{Fabric, Sleeper, SlotId};
use bireme_store::array::{ArrayHeader, Dtype};
use bireme_store::{Growing, Pinned, Sealed, SpillOptions, Unsealed, UnsealedLocation};

use super::super::super::transfers::{BulkServer, Transfers};
use super::super::*;
use crate::objects::to_store;

#[derive(Default)]
struct Net {
    servers: BTreeMap<NodeId, BulkServer>,
    /// After how many bytes the next connections break.
    breaks: VecDeque<u64>,
}

pub(super) struct TestNode {
    pub(super) id: NodeId,
    pub(super) objects: Objects,
    pub(super) stages: Stages,
    pub(super) events: Vec<StageEvent>,
    transfers: Transfers,
    reader: StoreClient,
    doorbell: Doorbell,
}

pub(super) struct Lab {
    net: Arc<Mutex<Net>>,
    pub(super) nodes: Vec<TestNode>,
}

/// An array of `f32` with a header, as it lies in an object.
pub(super) fn array(numbers: impl Iterator<Item = f32>) -> Vec<u8> {
    let elements: Vec<u8> = numbers.flat_map(f32::to_ne_bytes).collect();
    let header = ArrayHeader::new(Dtype::F32, &[elements.len() as u64 / 4]).unwrap();
    [header.encode().unwrap(), elements].concat()
}

impl Lab {
    /// So many nodes.
    pub(super) fn new(count: usize) -> Self {
        Self::on_host(count, None)
    }

    /// So many that read each other's memory.
    pub(super) fn near(count: usize) -> Self {
        Self::on_host(count, HostMark::of_this_process())
    }

    fn on_host(count: usize, host: Option<HostMark>) -> Self {
        let net = Arc::new(Mutex::new(Net::default()));
        let nodes = (1..=count).map(|id| node(NodeId(id as u32), host, &net)).collect();
        Self { net, nodes }
    }

    /// The next connections break after so many bytes each.
    pub(super) fn break_after(&self, bytes: &[u64]) {
        self.net.lock().unwrap().breaks.extend(bytes);
    }

    pub(super) fn pass(&mut self) {
        for node in &mut self.nodes {
            node.doorbell.take_ready(|_| {});
            let _ = node.objects.progress();
            let _ = node.transfers.progress(&mut node.objects);
            node.events.extend(node.stages.progress(&mut node.objects));
        }
    }

    /// Lets the nodes work until something is true.
    pub(super) fn until<R>(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Option<R>) -> R {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            self.pass();
            if let Some(found) = done(self) {
                return found;
            }
            let events: Vec<_> = self.nodes.iter().map(|node| &node.events).collect();
            assert!(Instant::now() < deadline, "waited too long for {what}: {events:?}");
            let doorbell = &self.nodes[0].doorbell;
            if doorbell.prepare_sleep(Sleeper::Pump) {
                doorbell.sleep(Sleeper::Pump, Some(Duration::from_millis(1)));
            }
        }
    }

    /// Starts a stage on the node with that index.
    pub(super) fn start(&mut self, node: usize, spec: StageSpec) {
        let node = &mut self.nodes[node];
        node.stages.start(&mut node.objects, spec);
    }

    pub(super) fn end(&mut self, node: usize, id: StageId, reason: &str) {
        let node = &mut self.nodes[node];
        node.stages.end(&mut node.objects, id, reason);
    }

    /// Waits for the end of a stage.
    pub(super) fn outcome(&mut self, node: usize, id: StageId) -> Result<Vec<Location>, (String, Option<NodeId>)> {
        self.until(&format!("the end of {id}"), |lab| {
            lab.nodes[node].events.iter().find_map(|event| match event {
                StageEvent::Done { id: done, at } if *done == id => Some(Ok(at.clone())),
                StageEvent::Failed { id: failed, reason, peer } if *failed == id => Some(Err((reason.clone(), *peer))),
                _ => None,
            })
        })
    }

    /// Waits for the place of an output.
    pub(super) fn placed(&mut self, node: usize, id: StageId) -> Location {
        self.until(&format!("the place of {id}"), |lab| {
            lab.nodes[node].events.iter().find_map(|event| match event {
                StageEvent::Placed { id: placed, at } if *placed == id => at.first().copied(),
                _ => None,
            })
        })
    }

    /// Waits until no node has a stage any more, so that all room that was lent is back.
    pub(super) fn settle(&mut self) {
        self.until("the end of all stages", |lab| {
            lab.nodes.iter().all(|node| node.stages.stages.is_empty()).then_some(())
        });
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            node.stages.stop();
            node.transfers.stop();
        }
    }
}

impl TestNode {
    fn room(&mut self, len: u64) -> Location {
        let request = ToNode::CreateObject { request: 1, len };
        let mut replies = self.objects.serve(ProcessId::first_driver(self.id), request);
        let Some((_, FromNode::ObjectCreated { created, .. })) = replies.pop() else { unreachable!("there is room") };
        created.unwrap().0
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Location {
        let at = self.room(bytes.len() as u64);
        let mut writer = self.reader.writer(UnsealedLocation(to_store(at))).unwrap();
        writer.copy_from(bytes).unwrap();
        writer.seal().unwrap();
        at
    }

    /// Room for an object that a process is writing.
    pub(super) fn begin_put(&mut self, len: u64) -> (Location, Unsealed) {
        let at = self.room(len);
        (at, self.reader.writer(UnsealedLocation(to_store(at))).unwrap())
    }

    /// Room that a process made for an output.
    pub(super) fn make_room(&mut self, len: u64) -> Location {
        self.room(len)
    }

    pub(super) fn pin(&self, at: Location) -> Pinned {
        self.reader.pin(Sealed(to_store(at))).unwrap()
    }

    pub(super) fn pin_growing(&self, at: Location) -> Growing {
        self.reader.pin_growing(UnsealedLocation(to_store(at))).unwrap()
    }

    /// Bytes of the store that are in use.
    pub(super) fn used(&mut self) -> u64 {
        let _ = self.objects.progress();
        self.objects.relieve(0);
        self.objects.stats().used
    }
}

fn node(id: NodeId, host: Option<HostMark>, net: &Arc<Mutex<Net>>) -> TestNode {
    let (arena, table) = (Arc::new(Arena::create(64 << 20).unwrap()), Arc::new(Table::create().unwrap()));
    let fabric = Fabric::create().unwrap();
    let slot = SlotId::new(0).unwrap();
    fabric.claim_slot(slot, std::process::id());
    let doorbell = fabric.doorbell(slot);
    let spill = SpillOptions::default();
    let mut objects = Objects::new(id, Arc::clone(&arena), Arc::clone(&table), spill, doorbell.clone());
    let process = ProcessId::first_driver(id);
    objects.admit(process);
    let reader = StoreClient::new(Arc::clone(&arena), Arc::clone(&table), ProcessSlot::new(process.slot).unwrap());
    let options = BulkOptions { silence: Duration::from_secs(5), host, ..BulkOptions::default() };
    let dialled = Arc::clone(net);
    let open = move |peer: NodeId| dial(&dialled, id, peer);
    let transfers = Transfers::new(id, &mut objects, (arena, table), doorbell.clone(), options.clone(), open.clone());
    net.lock().unwrap().servers.insert(id, transfers.server());
    let stages = Stages::new(id, transfers.client().clone(), &doorbell, transfers.offered(), options, open);
    TestNode { id, objects, stages, events: Vec::new(), transfers, reader, doorbell }
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (out, listener.accept().unwrap().0)
}

fn dial(net: &Mutex<Net>, me: NodeId, peer: NodeId) -> Result<Box<dyn Wire>, String> {
    let mut net = net.lock().unwrap();
    let server = net.servers.get(&peer).ok_or_else(|| format!("{peer} is not there"))?.clone();
    let breaks = net.breaks.pop_front();
    drop(net);
    let (near, mut far) = sockets();
    let Some(bytes) = breaks else {
        server.serve(Box::new(PlainWire::new(far).unwrap()), me).map_err(|error| error.to_string())?;
        return Ok(Box::new(PlainWire::new(near).unwrap()));
    };
    let (mut relay, sender) = sockets();
    server.serve(Box::new(PlainWire::new(sender).unwrap()), me).map_err(|error| error.to_string())?;
    let (mut requests, mut out) = (far.try_clone().unwrap(), relay.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut requests, &mut out));
    std::thread::spawn(move || {
        // What cannot be passed on is lost with the connection.
        let _ = std::io::copy(&mut Read::by_ref(&mut relay).take(bytes), &mut far);
        let _ = far.flush();
        let _ = (far.shutdown(Shutdown::Both), relay.shutdown(Shutdown::Both));
    });
    Ok(Box::new(PlainWire::new(near).unwrap()))
}
