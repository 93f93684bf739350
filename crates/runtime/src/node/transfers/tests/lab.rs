//! A few nodes in one process: each has a store and its transfers, and reaches the others over loopback sockets through a
//! relay that a test can make wait or break after any number of bytes.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bireme_core::message::{FromNode, ToNode};
use bireme_net::bulk::HostMark;
use bireme_net::wire::PlainWire;
use bireme_net::{Fabric, Sleeper, SlotId};
use bireme_store::{Pinned, Sealed, SpillOptions, UnsealedLocation};

use super::super::*;
use crate::objects::to_store;

/// What a relay does after so many bytes: waits to be told, and goes on or, when nobody can tell any more, breaks.
pub(super) type Gate = (usize, Receiver<()>);

#[derive(Default)]
pub(super) struct Net {
    servers: BTreeMap<NodeId, BulkServer>,
    gates: VecDeque<Gate>,
    pub(super) dials: usize,
}

pub(super) struct TestNode {
    pub(super) id: NodeId,
    pub(super) objects: Objects,
    pub(super) transfers: Transfers,
    /// A process of the node that writes and reads objects.
    pub(super) reader: StoreClient,
    pub(super) events: Vec<TransferEvent>,
    /// Who sends what, one after another: the test is the owner's node.
    sources: BTreeMap<ObjectId, VecDeque<CopySource>>,
    /// Questions that wait for the next source.
    pub(super) asking: Vec<(ObjectId, u64)>,
    /// Senders that were lost.
    pub(super) lost: Vec<LostSender>,
    doorbell: Doorbell,
}

pub(super) struct Lab {
    pub(super) net: Arc<Mutex<Net>>,
    pub(super) nodes: Vec<TestNode>,
}

pub(super) fn object(number: u64) -> ObjectId {
    ObjectId::put(bireme_core::id::TaskId::root(1, ProcessId::DRIVER), 0, number, 0)
}

/// The object with an owner.
pub(super) fn spec(object: ObjectId) -> RefSpec {
    RefSpec { object, owner: ProcessId::DRIVER }
}

pub(super) fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ (at >> 9) ^ salt) as u8).collect()
}

impl Lab {
    /// Nodes with stores of so many mebibytes.
    pub(super) fn new(mebibytes: &[u64]) -> Self {
        Self::with(mebibytes, &SpillOptions::default())
    }

    pub(super) fn with(mebibytes: &[u64], spill: &SpillOptions) -> Self {
        Self::on_hosts(mebibytes, spill, |_| None)
    }

    /// Nodes that read each other's memory, but for those that are elsewhere.
    pub(super) fn near(mebibytes: &[u64], elsewhere: &[usize]) -> Self {
        let here = HostMark::of_this_process();
        Self::on_hosts(mebibytes, &SpillOptions::default(), |at| here.filter(|_| !elsewhere.contains(&at)))
    }

    fn on_hosts(mebibytes: &[u64], spill: &SpillOptions, host: impl Fn(usize) -> Option<HostMark>) -> Self {
        let net = Arc::new(Mutex::new(Net::default()));
        let sizes = mebibytes.iter().enumerate();
        let nodes = sizes.map(|(at, size)| node(NodeId(at as u32 + 1), size << 20, (spill, host(at)), &net)).collect();
        Self { net, nodes }
    }

    /// The next connection stops after so many bytes until it is told, or breaks when the sender is dropped.
    pub(super) fn gate(&self, bytes: usize) -> Sender<()> {
        let (tell, told) = channel();
        self.net.lock().unwrap().gates.push_back((bytes, told));
        tell
    }

    /// A connection to a node on which nothing is asked.
    pub(super) fn connect(&self, node: usize) -> TcpStream {
        let (near, far) = sockets();
        self.nodes[node].transfers.server().serve(Box::new(PlainWire::new(far).unwrap()), NodeId(99)).unwrap();
        near
    }

    pub(super) fn pass(&mut self) {
        for node in &mut self.nodes {
            node.doorbell.take_ready(|_| {});
            let _ = node.objects.progress();
            for event in node.transfers.progress(&mut node.objects) {
                match event {
                    TransferEvent::Wanted { number, object, lost, .. } => {
                        node.lost.extend(lost);
                        node.asking.push((object.object, number));
                    }
                    other => node.events.push(other),
                }
            }
            node.answer();
        }
    }

    /// Lets the nodes work until something is true.
    pub(super) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            self.pass();
            if done(self) {
                return;
            }
            assert!(Instant::now() < deadline, "waited too long for {what}");
            let doorbell = &self.nodes[0].doorbell;
            if doorbell.prepare_sleep(Sleeper::Pump) {
                doorbell.sleep(Sleeper::Pump, Some(Duration::from_millis(1)));
            }
        }
    }

    /// Fetches an object from the first place, and when that is lost from the next.
    pub(super) fn fetch_from(&mut self, node: usize, object: ObjectId, places: &[Location]) {
        let sources = places.iter().map(|at| CopySource { node: at.node, at: *at, is_complete: true });
        let node = &mut self.nodes[node];
        node.sources.insert(object, sources.collect());
        node.transfers.fetch(&mut node.objects, spec(object), places[0], None);
    }

    pub(super) fn fetch(&mut self, node: usize, object: ObjectId, at: Location) {
        self.fetch_from(node, object, &[at]);
    }

    /// Fetches an object by name from a node that fetches it too.
    pub(super) fn fetch_named(&mut self, node: usize, object: ObjectId, of: Location, sender: usize) {
        let source = CopySource { node: self.nodes[sender].id, at: of, is_complete: false };
        let node = &mut self.nodes[node];
        node.sources.insert(object, [source].into());
        node.transfers.fetch(&mut node.objects, spec(object), of, None);
    }

    /// Waits until a node has lost its sender and asks for another one.
    pub(super) fn asks(&mut self, node: usize, object: ObjectId) -> LostSender {
        self.until("a lost sender", |lab| {
            let node = &lab.nodes[node];
            !node.lost.is_empty() && node.asking.iter().any(|(asked, _)| *asked == object)
        });
        self.nodes[node].lost.remove(0)
    }

    /// Waits for the end of a fetch.
    pub(super) fn end(&mut self, node: usize, object: ObjectId) -> Result<Location, TransferError> {
        let mut end = None;
        self.until("the end of a fetch", |lab| {
            let events = &mut lab.nodes[node].events;
            let is_end =
                |event: &TransferEvent| matches!(event, TransferEvent::Ended { object: ended, .. } if ended.object == object);
            end = events.iter().position(is_end).map(|at| events.remove(at));
            end.is_some()
        });
        let Some(TransferEvent::Ended { result, .. }) = end else { unreachable!("the wait found an end") };
        result
    }

    /// Waits until an object has begun to arrive and has so many bytes.
    pub(super) fn arrived(&mut self, node: usize, object: ObjectId, bytes: u64) -> Location {
        let mut found = None;
        self.until("the first part of an object", |lab| {
            let node = &lab.nodes[node];
            let of = node.transfers.numbers.get(&object).and_then(|number| node.transfers.transfers.get(number));
            let of = of.map(|transfer| transfer.of);
            found = of.and_then(|of| node.transfers.shared.names.wait(object, of, Duration::ZERO).ok().flatten());
            let view = found.map(|at| node.reader.pin_growing(UnsealedLocation(to_store(at))));
            view.is_some_and(|view| view.is_ok_and(|view| view.watermark() >= bytes))
        });
        found.unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.transfers.stop();
        }
    }
}

impl TestNode {
    /// Answers the questions for which there is a source.
    fn answer(&mut self) {
        for (object, number) in std::mem::take(&mut self.asking) {
            match self.sources.get_mut(&object).and_then(VecDeque::pop_front) {
                Some(source) => self.transfers.assigned(&mut self.objects, number, Ok(source)),
                None => self.asking.push((object, number)),
            }
        }
    }

    /// Names another sender to who asks for one.
    pub(super) fn resume(&mut self, object: ObjectId, at: Location) {
        let source = CopySource { node: at.node, at, is_complete: true };
        self.sources.insert(object, [source].into());
    }

    /// Says that nobody sends it.
    pub(super) fn refuse(&mut self, object: ObjectId, why: &str) {
        let number = self.transfers.numbers[&object];
        self.asking.retain(|(_, asking)| *asking != number);
        self.transfers.assigned(&mut self.objects, number, Err(why.to_owned()));
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Location {
        let process = ProcessId::first_driver(self.id);
        let request = ToNode::CreateObject { request: 1, len: bytes.len() as u64 };
        let mut replies = self.objects.serve(process, request);
        let deadline = Instant::now() + Duration::from_secs(30);
        while replies.is_empty() {
            assert!(Instant::now() < deadline, "no room");
            if self.doorbell.prepare_sleep(Sleeper::Pump) {
                self.doorbell.sleep(Sleeper::Pump, Some(Duration::from_millis(1)));
            }
            self.doorbell.take_ready(|_| {});
            replies = self.objects.progress();
        }
        let Some((_, FromNode::ObjectCreated { created, .. })) = replies.pop() else { unreachable!("an answer") };
        let (at, _) = created.unwrap();
        let mut writer = self.reader.writer(UnsealedLocation(to_store(at))).unwrap();
        writer.copy_from(bytes).unwrap();
        writer.seal().unwrap();
        at
    }

    pub(super) fn pin(&self, at: Location) -> Result<Pinned, bireme_store::PinError> {
        self.reader.pin(Sealed(to_store(at)))
    }

    pub(super) fn free(&mut self, at: Location) {
        self.transfers.free(&mut self.objects, at);
    }
}

fn node(
    id: NodeId,
    capacity: u64,
    (spill, host): (&SpillOptions, Option<HostMark>),
    net: &Arc<Mutex<Net>>,
) -> TestNode {
    let (arena, table) = (Arc::new(Arena::create(capacity).unwrap()), Arc::new(Table::create().unwrap()));
    let fabric = Fabric::create().unwrap();
    let slot = SlotId::new(0).unwrap();
    fabric.claim_slot(slot, std::process::id());
    let doorbell = fabric.doorbell(slot);
    let mut objects = Objects::new(id, Arc::clone(&arena), Arc::clone(&table), spill.clone(), doorbell.clone());
    let process = ProcessId::first_driver(id);
    objects.admit(process);
    let reader = StoreClient::new(Arc::clone(&arena), Arc::clone(&table), ProcessSlot::new(process.slot).unwrap());
    let dialled = Arc::clone(net);
    let dial = move |peer: NodeId| dial(&dialled, id, peer);
    let options = BulkOptions { silence: Duration::from_secs(5), host, ..BulkOptions::default() };
    let transfers = Transfers::new(id, &mut objects, (arena, table), doorbell.clone(), options, dial);
    net.lock().unwrap().servers.insert(id, transfers.server());
    let (events, sources, asking, lost) = (Vec::new(), BTreeMap::new(), Vec::new(), Vec::new());
    TestNode { id, objects, transfers, reader, events, sources, asking, lost, doorbell }
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (out, listener.accept().unwrap().0)
}

fn dial(net: &Mutex<Net>, me: NodeId, peer: NodeId) -> Result<Box<dyn Wire>, String> {
    let mut net = net.lock().unwrap();
    net.dials += 1;
    let server = net.servers.get(&peer).ok_or_else(|| format!("{peer} is not there"))?.clone();
    let gate = net.gates.pop_front();
    drop(net);
    let (near, far) = sockets();
    let Some(gate) = gate else {
        server.serve(Box::new(PlainWire::new(far).unwrap()), me).map_err(|error| error.to_string())?;
        return Ok(Box::new(PlainWire::new(near).unwrap()));
    };
    let (relay, sender) = sockets();
    server.serve(Box::new(PlainWire::new(sender).unwrap()), me).map_err(|error| error.to_string())?;
    let (requests_in, requests_out) = (far.try_clone().unwrap(), relay.try_clone().unwrap());
    std::thread::spawn(move || pipe(requests_in, requests_out, None));
    std::thread::spawn(move || pipe(relay, far, Some(gate)));
    Ok(Box::new(PlainWire::new(near).unwrap()))
}

/// Copies one direction of a connection, and stops at the gate.
fn pipe(mut from: TcpStream, mut to: TcpStream, gate: Option<Gate>) {
    let mut go_on = true;
    if let Some((bytes, told)) = gate {
        // What cannot be passed on is lost with the connection, and so below.
        let _ = std::io::copy(&mut Read::by_ref(&mut from).take(bytes as u64), &mut to);
        let _ = to.flush();
        go_on = told.recv().is_ok();
    }
    if go_on {
        let _ = std::io::copy(&mut from, &mut to);
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
