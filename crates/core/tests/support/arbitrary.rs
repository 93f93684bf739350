//! Every message, record, spec and value, drawn from a seed. Shared by the property tests and the fuzzer.

use std::collections::BTreeMap;
use std::sync::Arc;

use bireme_core::collective::{ArrayKind, Call, CollectiveId, Kind, Packet, Trouble, Word};
use bireme_core::failure::{Death, DeathCause, Failure};
use bireme_core::flow::Op;
use bireme_core::id::{ActorId, FunctionKey, GroupId, LeaseId, NodeId, ObjectId, ProcessId, TaskId};
use bireme_core::ledger::snapshot::{GroupRow, GroupStage, NodeRow, ResourcesRow};
use bireme_core::message::{Adoption, FromNode, Peer, ReduceInput, ToNode};
use bireme_core::record::Record;
use bireme_core::resources::{Amount, Resources};
use bireme_core::spec::{ActorOptions, GroupStrategy, Strategy, TaskKind, TaskOptions, TaskSpec};
use bireme_core::stream::Stream;
use bireme_core::time::Tick;
use bireme_core::value::{Body, Location, RefSpec, Value};

/// A small generator (splitmix64): equal seeds, equal draws.
pub struct Draw(pub u64);

impl Draw {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.number() % n.max(1)
    }

    fn small(&mut self) -> u32 {
        // Mostly small, sometimes at an edge.
        match self.below(8) {
            0 => u32::MAX,
            1 => 0,
            _ => self.below(1_000) as u32,
        }
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        let n = self.below(40);
        (0..n).map(|_| self.number() as u8).collect()
    }

    fn text(&mut self) -> String {
        ["", "work", "größe", "a longer name with spaces", "\u{0}\n\"quoted\""][self.below(5) as usize].into()
    }

    fn list<T>(&mut self, most: u64, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let n = self.below(most + 1);
        (0..n).map(|_| one(self)).collect()
    }

    fn task_id(&mut self) -> TaskId {
        TaskId::from_raw(u128::from(self.number()) << 64 | u128::from(self.number()))
    }

    fn process(&mut self) -> ProcessId {
        ProcessId { node: NodeId(self.small()), slot: self.small(), incarnation: self.small() }
    }

    fn object(&mut self) -> ObjectId {
        let task = self.task_id();
        if self.flag() { ObjectId::result(task, self.small()) } else { ObjectId::put(task, 3, self.number(), 1) }
    }

    fn reference(&mut self) -> RefSpec {
        RefSpec { object: self.object(), owner: self.process() }
    }

    fn location(&mut self) -> Location {
        Location {
            node: NodeId(self.small()),
            entry: self.small(),
            generation: self.small(),
            offset: self.number(),
            len: self.number(),
        }
    }

    fn resources(&mut self) -> Resources {
        let mut custom = BTreeMap::new();
        for _ in 0..self.below(3) {
            custom.insert(self.text(), Amount(self.number()));
        }
        let gpus = Amount(if self.flag() { 0 } else { self.number() });
        Resources { cpus: Amount(self.number()), gpus, memory_bytes: self.below(2) * 4096, custom }
    }

    fn death(&mut self) -> Death {
        let cause = match self.below(8) {
            7 => DeathCause::MemoryPressure { used: self.number(), limit: self.number(), node_used: self.number() },
            6 => DeathCause::NodeDied(self.text()),
            0 => DeathCause::Exited(self.number() as i32),
            1 => DeathCause::Signalled(9),
            2 => DeathCause::OutOfMemory,
            3 => DeathCause::Ended(self.text()),
            4 => DeathCause::Corrupt(self.text()),
            _ => DeathCause::NotStarted(self.text()),
        };
        let culprit = self.flag().then(|| self.task_id());
        Death {
            process: self.process(),
            pid: self.small(),
            cause,
            stderr_tail: self.text(),
            memory_peak_bytes: self.number(),
            culprit,
        }
    }

    fn failure(&mut self) -> Failure {
        let task = self.task_id();
        let (name, message) = (self.text(), self.text());
        match self.below(18) {
            17 => Failure::NotPassed { task, name, reason: message },
            16 => Failure::Reduce { object: self.object(), reason: message },
            14 => Failure::GroupUnplaceable { group: GroupId(task), reason: message },
            15 => Failure::GroupRemoved { group: GroupId(task), reason: message },
            12 => Failure::NameTaken { name, holder: ActorId(task) },
            13 => Failure::StreamEnded { task, items: self.small() },
            0 => Failure::Returned { task, name, type_name: self.text(), message },
            1 => Failure::Panicked { task, name, message, location: self.text() },
            2 => Failure::WorkerDied { task, name, death: Box::new(self.death()), attempts: self.small() },
            3 => Failure::Cancelled { task },
            4 => Failure::ActorDied { actor: ActorId(task), reason: message },
            5 => Failure::OwnerDied { object: self.object(), owner: self.process() },
            6 => Failure::ObjectLost { object: self.object(), reason: message },
            7 => Failure::Infeasible { asked: name, available: message },
            8 => Failure::UnknownFunction { task, name },
            9 => Failure::TypeMismatch { expected: name, found: message },
            10 => Failure::StoreFull { reason: message },
            _ => Failure::ShutDown,
        }
    }

    pub fn value(&mut self) -> Value {
        let body = match self.below(3) {
            0 => Body::Inline(self.bytes().into()),
            1 => Body::Stored(self.location()),
            _ => Body::Failed(Arc::new(self.failure())),
        };
        Value { body, nested: self.list(3, Self::reference) }
    }

    fn strategy(&mut self) -> Strategy {
        match self.below(4) {
            0 => Strategy::Spread,
            1 => Strategy::Node { node: NodeId(self.small()), soft: self.flag() },
            2 => Strategy::Group { group: self.group(), bundle: self.flag().then(|| self.small()) },
            _ => Strategy::Default,
        }
    }

    fn group(&mut self) -> GroupId {
        GroupId(self.task_id())
    }

    fn group_row(&mut self) -> GroupRow {
        let stage = match self.below(4) {
            0 => GroupStage::Waiting(self.text()),
            1 => GroupStage::Placed,
            2 => GroupStage::Failed(self.text()),
            _ => GroupStage::Removed,
        };
        GroupRow {
            group: self.group(),
            name: self.flag().then(|| self.text()),
            strategy: GroupStrategy::ALL[self.below(4) as usize],
            bundles: self.list(3, |draw| (draw.resources(), draw.flag().then(|| NodeId(draw.small())))),
            stage,
            detached: self.flag(),
            creator: self.process(),
        }
    }

    fn node_row(&mut self) -> NodeRow {
        NodeRow {
            node: NodeId(self.small()),
            address: self.text(),
            hostname: self.text(),
            role: self.text(),
            alive: self.flag(),
            draining: self.flag(),
            reason: self.flag().then(|| self.text()),
            total: self.resources(),
            free: self.resources(),
            labels: self.list(2, |draw| (draw.text(), draw.text())).into_iter().collect(),
        }
    }

    pub fn spec(&mut self) -> TaskSpec {
        let kind = match self.below(3) {
            0 => TaskKind::Plain,
            1 => {
                let name = self.flag().then(|| self.text());
                TaskKind::Create(ActorOptions {
                    name,
                    restarts_max: self.small(),
                    concurrency_max: self.small(),
                    detached: self.small().is_multiple_of(2),
                })
            }
            _ => TaskKind::Call { actor: ActorId(self.task_id()), caller: self.process(), sequence: self.number() },
        };
        let options = TaskOptions {
            name: self.text(),
            resources: self.resources(),
            retries_max: self.small(),
            retry_on: self.list(2, Self::text),
            environment: if self.flag() { self.number() } else { 0 },
            calls_max: if self.flag() { self.small() } else { 0 },
            threads_per_worker: if self.flag() { self.small() % 3 } else { 0 },
            strategy: self.strategy(),
            captures: self.flag(),
        };
        TaskSpec {
            id: self.task_id(),
            parent: self.task_id(),
            function: FunctionKey(self.number()),
            digest: self.number(),
            attempt: self.small(),
            lane: self.small(),
            depth: self.small(),
            returns: self.below(10_001) as u32,
            kind,
            stream: self.flag().then(|| Stream { items_max: self.small(), bytes_max: self.number() }),
            options: Arc::new(options),
            dependencies: self.list(3, Self::reference),
            nested: self.list(3, Self::reference),
            payload: self.bytes().into(),
        }
    }

    pub fn record(&mut self) -> Record {
        let (at, task, attempt) = (Tick(self.number()), self.task_id(), self.small());
        match self.below(7) {
            6 => Record::Yielded { task, attempt, index: self.small(), value: self.value() },
            0 => Record::Submitted { at, spec: Arc::new(self.spec()) },
            1 => Record::Started { at, task, attempt },
            2 => Record::Finished { at, task, attempt, values: self.list(3, Self::value) },
            3 => Record::Put { object: self.object(), digest: self.number(), value: self.value() },
            4 => Record::Freed { object: self.object() },
            _ => Record::Settled { task, value: self.value() },
        }
    }

    pub fn peer(&mut self) -> Peer {
        let (lease, task, object) = (LeaseId(self.number()), self.task_id(), self.object());
        match self.below(17) {
            16 => Peer::Call { number: lease.0, spec: Arc::new(self.spec()), resolved: self.list(3, Self::value) },
            15 => Peer::Collective(Box::new(self.packet())),
            14 => Peer::Closing { lease },
            13 => Peer::Item { task, attempt: self.small(), index: self.small(), value: self.value() },
            12 => Peer::Taken { task, items: self.small() },
            11 => Peer::Took { task, items: self.small() },
            10 => {
                let (spec, resolved) = (Arc::new(self.spec()), self.list(3, Self::value));
                Peer::RunAfter { lease, spec, resolved, ahead: self.list(3, Self::small) }
            }
            0 => Peer::Run { lease, spec: Arc::new(self.spec()), resolved: self.list(3, Self::value) },
            1 => {
                let (attempt, duration_us) = (self.small(), self.small());
                Peer::Reply { task, attempt, values: self.list(3, Self::value), duration_us }
            }
            2 => Peer::TakeBack { lease, keep: self.small() },
            3 => Peer::Returned { lease, tasks: self.list(4, Self::task_id), blocked: self.flag() },
            4 => Peer::Cancel { task, recursive: self.flag() },
            5 => Peer::Resolve { object },
            6 => Peer::Resolved { object, value: self.value() },
            7 => Peer::Lent { object, borrower: self.process(), count: self.small() },
            8 => Peer::GiveBack { object, count: self.small() },
            _ => Peer::CancelObject { object, force: self.flag(), recursive: self.flag() },
        }
    }

    fn packet(&mut self) -> Packet {
        let group = CollectiveId { home: NodeId(self.small()), name: self.task_id() };
        let array = ArrayKind { dtype: 11, shape: self.list(3, Self::number) };
        let call = Call { kind: Kind::AllReduce, op: Some(Op::Sum), root: None, array: Some(array) };
        let number = self.number();
        let word = match self.below(4) {
            0 => Word::Part { number, call },
            1 => Word::Note { number, call },
            2 => Word::Sent { tag: self.small(), number, call, streamed: self.flag() },
            _ => Word::Failed { number, trouble: Trouble::Misuse("no".into()) },
        };
        Packet { group, life: self.number(), from: self.small(), to: self.small(), word, bytes: self.bytes() }
    }

    pub fn request(&mut self) -> ToNode {
        let (lease, request, object) = (LeaseId(self.number()), self.number(), self.object());
        let (task, process) = (self.task_id(), self.process());
        let actor = ActorId(task);
        match self.below(39) {
            36 => ToNode::Reduce {
                target: object,
                op: bireme_core::flow::Op::Mean,
                total: self.small(),
                count: self.small(),
                options: bireme_core::reduce::Options::default(),
            },
            37 => {
                let inputs = self.list(3, |draw| {
                    let (index, object, at) = (draw.small(), draw.object(), draw.location());
                    ReduceInput { index, object, at, is_growing: draw.flag() }
                });
                ToNode::ReduceInputs { target: object, inputs, more: self.flag() }
            }
            38 => ToNode::EndReduce { target: object },
            30 => ToNode::QueryNodes { request },
            31 => ToNode::CreateGroup {
                group: self.group(),
                name: self.flag().then(|| self.text()),
                strategy: GroupStrategy::ALL[self.below(4) as usize],
                bundles: self.list(3, Self::resources),
                detached: self.flag(),
            },
            32 => ToNode::RemoveGroup { group: self.group() },
            33 => ToNode::FindGroup { request, name: self.text() },
            34 => ToNode::QueryGroups { request },
            35 => ToNode::WatchGroup { group: self.group() },
            29 => ToNode::Spent,
            28 => ToNode::QueryNames { request },
            27 => ToNode::QueryResources { request },
            26 => ToNode::Flushed { dead: process },
            25 => ToNode::ClaimArrived { object, home: process.node, lender: process },
            24 => ToNode::ClaimFor { object, home: process.node, holder: process },
            0 => ToNode::Hello,
            1 => {
                let (pool, count, depth) = (self.small(), self.small(), self.small());
                let (resources, environment) = (self.resources(), self.number());
                let shape = bireme_core::spec::Shape { resources, environment, ..Default::default() };
                ToNode::WantLeases { pool, shape, count, depth }
            }
            2 => ToNode::ReturnLease { lease },
            3 => ToNode::Blocked { lease },
            4 => ToNode::Unblocked { lease },
            5 => ToNode::CreateActor { spec: Arc::new(self.spec()), resolved: self.list(3, Self::value) },
            6 => ToNode::ActorConstructed { actor, value: self.value() },
            7 => ToNode::WatchActor { actor, manager: process.node },
            8 => ToNode::ReleaseActor { actor },
            9 => ToNode::KillActor { actor, manager: process.node, restart: self.flag() },
            10 => ToNode::FindActor { request, name: self.text() },
            11 => ToNode::Adopt { request, object, digest: self.number(), items: self.small() },
            12 => ToNode::Connect { peer: process },
            13 => ToNode::Resolve { object, home: process.node },
            14 => ToNode::Claim { object, home: process.node, count: self.number() as i64 },
            15 => ToNode::Settled { dead: process },
            16 => ToNode::KillWorker { worker: process, task },
            17 => ToNode::PeerCorrupt { peer: process, reason: self.text() },
            18 => ToNode::CreateObject { request, len: self.number() },
            19 => ToNode::AbortObject { at: self.location() },
            20 => ToNode::FreeObject { at: self.location() },
            21 => {
                let (lease, function) = (self.flag().then_some(lease), self.flag().then_some(FunctionKey(request)));
                let arriving_bytes = self.number();
                ToNode::Gather { request, lease, function, inputs: self.list(3, Self::location), arriving_bytes }
            }
            22 => ToNode::Explain { request, task },
            _ => ToNode::Goodbye,
        }
    }

    pub fn word(&mut self) -> FromNode {
        let (lease, request, pool) = (LeaseId(self.number()), self.number(), self.small());
        let (actor, process, object) = (ActorId(self.task_id()), self.process(), self.object());
        let (reason, incarnation) = (self.text(), self.small());
        match self.below(31) {
            30 => FromNode::Warning { text: reason },
            28 => FromNode::ReducePlaced { target: object, at: self.location(), to_readers: self.flag() },
            27 => {
                let result = if self.flag() { Ok(self.location()) } else { Err(reason) };
                FromNode::Reduced { target: object, result, used: self.list(3, Self::small) }
            }
            22 => FromNode::Nodes { request, rows: self.list(3, Self::node_row) },
            23 => FromNode::Refused { pool, failure: Box::new(self.failure()) },
            24 => {
                let nodes = self.list(3, |draw| NodeId(draw.small()));
                let result = if self.flag() { Ok(nodes) } else { Err(Box::new(self.failure())) };
                FromNode::GroupPlaced { group: self.group(), result }
            }
            25 => FromNode::GroupFound { request, found: self.flag().then(|| self.group_row()) },
            26 => FromNode::Groups { request, rows: self.list(3, Self::group_row) },
            21 => FromNode::ItemFound { request, index: self.small(), value: self.value() },
            20 => FromNode::Names { request, names: self.list(3, Self::text) },
            19 => {
                let (total, free) = (self.resources(), self.resources());
                let row = ResourcesRow { total, free, debt: Amount(request), queued: request };
                FromNode::Resources { request, row }
            }
            0 => FromNode::Granted { pool, lease, worker: process },
            1 => FromNode::LeaseOpened { lease, owner: process, gpus: self.list(3, Self::small) },
            2 => FromNode::LeaseClosed { lease },
            3 => FromNode::Infeasible { pool, asked: reason, available: self.text() },
            4 => FromNode::Reclaim { lease },
            5 => FromNode::ProcessDied(Box::new(self.death())),
            6 => {
                let (spec, resolved) = (Arc::new(self.spec()), self.list(3, Self::value));
                FromNode::Construct {
                    spec,
                    resolved,
                    incarnation,
                    lane: self.small(),
                    owner: process,
                    gpus: self.list(3, Self::small),
                }
            }
            7 => FromNode::ActorCreated { actor, value: self.value() },
            8 => FromNode::ActorAt { actor, process, incarnation, concurrency_max: self.small() },
            9 => FromNode::ActorRestarting { actor, reason, moved: self.flag() },
            10 => FromNode::ActorDead { actor, reason },
            11 if self.flag() => FromNode::End,
            11 => FromNode::Retire,
            12 => {
                let found = self.flag().then_some((actor, process, FunctionKey(request)));
                FromNode::ActorFound { request, found }
            }
            13 => {
                let adoption = match self.below(4) {
                    0 => Adoption::New,
                    1 => Adoption::Finished(self.list(3, Self::value)),
                    2 => Adoption::Running,
                    _ => Adoption::Different,
                };
                FromNode::Adopted { request, adoption, attempt: self.small(), started: self.below(2) == 0 }
            }
            14 => FromNode::Resolved { object, value: self.value(), home: process.node },
            15 => {
                let created = if self.flag() { Ok((self.location(), self.flag())) } else { Err(reason) };
                FromNode::ObjectCreated { request, created }
            }
            16 => {
                let located = if self.flag() { Ok(self.location()) } else { Err(reason) };
                FromNode::Located { request, located }
            }
            29 => {
                let located = self.list(3, |draw| draw.flag().then(|| draw.location()));
                FromNode::Gathered { request, located: if self.flag() { Ok(located) } else { Err(reason) } }
            }
            17 => FromNode::State { request, bytes: self.bytes(), last: self.flag() },
            _ => FromNode::Explained { request, text: reason },
        }
    }
}
