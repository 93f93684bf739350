//! One member of one group as its process knows it: who the others are, what came from them, what is over.
//!
//! Calls are numbered from 1 in the order in which the member makes them. Each call tells the next rank what it is (a part of it,
//! or a note), so whenever members disagree two neighbours do, and the one that hears it tells all. A call that failed anywhere
//! fails under its number everywhere where it is not over, and the group goes on with the next one; only a member that is gone
//! breaks the group for good.
//!
//! No member is more than two times [`AHEAD_MAX`] calls ahead of another: every so many calls all wait for each other. So what
//! came too early is bounded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Call, CollectiveId, Packet, Seat, Trouble, Word};
use crate::id::{NodeId, ProcessId};

/// Every so many calls all members wait for each other.
pub const AHEAD_MAX: u64 = 32;
/// Arrays that one member may have sent to another that has not taken them; another send waits.
pub const SENT_MAX: u64 = 64;
/// Packets that come before the member knows its group; more are lost, and with them the call.
const EARLY_MAX: usize = 4_096;

/// The members of a group in the order of their ranks: where each is, and who.
pub type Peers = Vec<(ProcessId, String)>;

/// An array that came from another member.
#[derive(Clone, Debug, PartialEq)]
pub struct Came {
    /// Its number with its tag.
    pub number: u64,
    /// What it is.
    pub call: Call,
    /// The elements are streamed.
    pub streamed: bool,
    /// Else the elements.
    pub bytes: Vec<u8>,
}

/// One member of one group.
#[derive(Debug)]
pub struct Member {
    group: CollectiveId,
    rank: u32,
    size: u32,
    /// Which forming of the group, once it is formed.
    life: Option<u64>,
    peers: Peers,
    /// Why the group can do nothing more.
    broken: Option<Trouble>,
    /// Who left, after how many calls.
    left: BTreeMap<u32, u64>,
    /// Who sends nothing more: what it sent before has come.
    silent: BTreeSet<u32>,
    early: Vec<Packet>,
    begun: u64,
    current: Option<Call>,
    /// The last calls that are over, the newest last, and which of them failed.
    over: VecDeque<(u64, Call, bool)>,
    parts: BTreeMap<(u64, u32), VecDeque<Vec<u8>>>,
    /// What others called that this member has not begun.
    notes: BTreeMap<(u64, u32), Call>,
    /// The newest call in which each rank was heard to be.
    latest: BTreeMap<u32, u64>,
    failed: BTreeMap<u64, Trouble>,
    /// A mismatch that was found when the call was over here: the next one fails for it.
    late: Option<Trouble>,
    /// Arrays from others by rank and tag.
    came: BTreeMap<(u32, u32), VecDeque<Came>>,
    sent: BTreeMap<(u32, u32), u64>,
    /// Arrays that a rank has not taken.
    untaken: BTreeMap<u32, u64>,
    answers: Vec<(u32, Word)>,
}

impl Member {
    /// A member that has asked to join.
    pub fn new(group: CollectiveId, rank: u32, size: u32) -> Self {
        Self {
            group,
            rank,
            size,
            life: None,
            peers: Vec::new(),
            broken: None,
            left: BTreeMap::new(),
            silent: BTreeSet::new(),
            early: Vec::new(),
            begun: 0,
            current: None,
            over: VecDeque::new(),
            parts: BTreeMap::new(),
            notes: BTreeMap::new(),
            latest: BTreeMap::new(),
            failed: BTreeMap::new(),
            late: None,
            came: BTreeMap::new(),
            sent: BTreeMap::new(),
            untaken: BTreeMap::new(),
            answers: Vec::new(),
        }
    }

    /// All members are there.
    pub fn formed(&mut self, life: u64, peers: Peers) {
        if self.life.is_some() {
            return;
        }
        (self.life, self.peers) = (Some(life), peers);
        for packet in std::mem::take(&mut self.early) {
            self.heard(packet);
        }
    }

    /// The group will never be, or can do nothing more.
    pub fn broken(&mut self, trouble: Trouble) {
        self.broken.get_or_insert(trouble);
    }

    /// A member took part in so many calls and will not in another.
    pub fn left(&mut self, rank: u32, calls: u64) {
        self.left.entry(rank).or_insert(calls);
    }

    /// A process is dead.
    pub fn process_died(&mut self, dead: impl Fn(ProcessId) -> bool, why: &str) {
        let dead = |(rank, (process, _)): (u32, &(ProcessId, String))| dead(*process).then_some(rank);
        let gone: Vec<u32> = (0..).zip(&self.peers).filter_map(dead).collect();
        // What it had sent was read before its death was told.
        self.silent.extend(&gone);
        if let Some(rank) = gone.into_iter().find(|rank| !self.left.contains_key(rank)) {
            self.broken(Trouble::Lost { member: self.seat(rank), why: why.to_owned() });
        }
    }

    /// Which forming of the group this is; none before all members are there.
    pub fn life(&self) -> Option<u64> {
        self.life
    }

    /// Why nothing works any more.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.broken.as_ref()
    }

    /// The members, once all are there.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// So many calls it has begun.
    pub fn calls(&self) -> u64 {
        self.begun
    }

    /// The call that it is in, with the array that comes as soon as it was told.
    pub fn current(&self) -> Option<&Call> {
        self.current.as_ref()
    }

    /// A rank and who it is.
    pub fn seat(&self, rank: u32) -> Seat {
        let label = self.peers.get(rank as usize).map(|(_, label)| label.clone()).unwrap_or_default();
        Seat { rank, label }
    }

    /// All ranks, those of one node together.
    pub fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.size).collect();
        order.sort_by_key(|rank| self.peers.get(*rank as usize).map(|(process, _)| process.node));
        order
    }

    /// The ranks on a node.
    pub fn ranks_on(&self, node: NodeId) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.peers).filter(move |(_, (process, _))| process.node == node).map(|(rank, _)| rank)
    }

    /// The next call has to be one in which all wait for each other.
    pub fn needs_barrier(&self) -> bool {
        (self.begun + 1).is_multiple_of(AHEAD_MAX)
    }

    /// Begins a call. Gives its number.
    pub fn begin(&mut self, call: Call) -> u64 {
        self.begun += 1;
        let number = self.begun;
        let mut notes = self.notes.split_off(&(number, 0));
        self.notes = notes.split_off(&(number + 1, 0));
        self.current = Some(call.clone());
        if let Some(late) = self.late.take() {
            self.fail(number, late);
        }
        for ((_, from), theirs) in notes {
            self.compare(number, from, &call, &theirs);
        }
        number
    }

    /// Why this call has no result, whatever has come: members disagree, or one gave it up.
    pub fn failed(&self, number: u64) -> Option<Trouble> {
        self.failed.get(&number).cloned()
    }

    /// Why a call that was begun has no result, as far as that is known.
    pub fn failure(&self, number: u64) -> Option<Trouble> {
        let left = || self.left.iter().find(|(_, calls)| **calls < number);
        let gone = || left().map(|(rank, calls)| Trouble::Left { member: self.seat(*rank), calls: *calls });
        self.failed.get(&number).cloned().or_else(|| self.broken.clone()).or_else(gone)
    }

    /// A call has no result: all others hear it.
    pub fn fail(&mut self, number: u64, trouble: Trouble) {
        if self.failed.contains_key(&number) {
            return;
        }
        self.tell_others(&Word::Failed { number, trouble: trouble.clone() });
        self.failed.insert(number, trouble);
    }

    /// A call is over.
    pub fn end(&mut self, number: u64) {
        if let Some(call) = self.current.take() {
            self.over.push_back((number, call, self.failed.contains_key(&number)));
        }
        while self.over.len() as u64 > 2 * AHEAD_MAX {
            self.over.pop_front();
        }
        self.parts = self.parts.split_off(&(number + 1, 0));
        self.failed = self.failed.split_off(&(number + 1));
    }

    /// Elements that a rank sent in a call.
    pub fn take_part(&mut self, number: u64, from: u32) -> Option<Vec<u8>> {
        self.parts.get_mut(&(number, from))?.pop_front()
    }

    /// Asks all who have not been heard in this call whether they are in it.
    pub fn ask_around(&mut self, number: u64) {
        self.tell_others(&Word::Waiting { number });
    }

    /// Who has not begun a call, as far as it was heard.
    pub fn missing(&self, number: u64) -> Vec<Seat> {
        let absent = |rank: &u32| *rank != self.rank && self.latest.get(rank).is_none_or(|at| *at < number);
        (0..self.size).filter(absent).map(|rank| self.seat(rank)).collect()
    }

    /// The number of the next array with this tag to a rank.
    pub fn number_sent(&mut self, to: u32, tag: u32) -> u64 {
        *self.untaken.entry(to).or_insert(0) += 1;
        let number = self.sent.entry((to, tag)).or_insert(0);
        *number += 1;
        *number
    }

    /// Whether a rank has as many arrays as it may have that it has not taken.
    pub fn is_full(&self, to: u32) -> bool {
        self.untaken.get(&to).is_some_and(|untaken| *untaken >= SENT_MAX)
    }

    /// The next array with this tag from a rank. Its sender hears that it was taken.
    pub fn take_sent(&mut self, from: u32, tag: u32) -> Option<Came> {
        let queue = self.came.get_mut(&(from, tag))?;
        let came = queue.pop_front()?;
        if queue.is_empty() {
            self.came.remove(&(from, tag));
        }
        self.answers.push((from, Word::Took { tag, number: came.number }));
        Some(came)
    }

    /// Why an array can never be exchanged with a rank.
    pub fn failure_with(&self, rank: u32) -> Option<Trouble> {
        let gone = |calls: &u64| Trouble::Left { member: self.seat(rank), calls: *calls };
        // The word that it left comes by another way than what it sent, and may be faster.
        let left = self.left.get(&rank).filter(|_| self.silent.contains(&rank));
        self.broken.clone().or_else(|| left.map(gone))
    }

    /// Says to all others that nothing more will be sent.
    pub fn say_farewell(&mut self) {
        self.tell_others(&Word::Left);
    }

    /// What has to be sent because of what was heard or found, in order.
    pub fn take_answers(&mut self) -> Vec<Packet> {
        let answers = std::mem::take(&mut self.answers);
        answers.into_iter().filter_map(|(to, word)| self.packet(to, word, Vec::new())).collect()
    }

    /// A packet to another member; none before they are known.
    pub fn packet(&self, to: u32, word: Word, bytes: Vec<u8>) -> Option<Packet> {
        Some(Packet { group: self.group, life: self.life?, from: self.rank, to, word, bytes })
    }

    /// Another member spoke.
    pub fn heard(&mut self, packet: Packet) {
        let Some(life) = self.life else {
            if self.early.len() < EARLY_MAX {
                self.early.push(packet);
            }
            return;
        };
        let Packet { from, to, word, bytes, .. } = packet;
        if packet.life != life || to != self.rank || from >= self.size {
            return;
        }
        match word {
            Word::Part { number, call } => {
                if self.is_current_or_next(number) {
                    self.parts.entry((number, from)).or_default().push_back(bytes);
                }
                self.called(number, from, call);
            }
            Word::Note { number, call } => self.called(number, from, call),
            Word::Waiting { number } => {
                self.is_at(from, number);
                // Who is not there yet says so by silence.
                if self.begun >= number {
                    self.answers.push((from, Word::Here { number: self.begun }));
                }
            }
            Word::Here { number } => self.is_at(from, number),
            Word::Failed { number, trouble } => {
                self.is_at(from, number);
                if self.is_current_or_next(number) {
                    self.failed.entry(number).or_insert(trouble);
                }
            }
            Word::Sent { tag, number, call, streamed } => {
                let queue = self.came.entry((from, tag)).or_default();
                if (queue.len() as u64) < 2 * SENT_MAX {
                    queue.push_back(Came { number, call, streamed, bytes });
                }
            }
            Word::Left => {
                self.silent.insert(from);
            }
            Word::Took { .. } => {
                if let Some(untaken) = self.untaken.get_mut(&from) {
                    *untaken = untaken.saturating_sub(1);
                }
            }
        }
    }

    /// The call runs here, or will: not one that is over, nor one that nobody can be in.
    fn is_current_or_next(&self, number: u64) -> bool {
        let open = if self.current.is_some() { self.begun } else { self.begun + 1 };
        (open..=self.begun + 2 * AHEAD_MAX).contains(&number)
    }

    fn is_at(&mut self, rank: u32, number: u64) {
        let latest = self.latest.entry(rank).or_insert(0);
        *latest = (*latest).max(number);
    }

    /// A rank makes a call.
    fn called(&mut self, number: u64, from: u32, theirs: Call) {
        self.is_at(from, number);
        if number > self.begun {
            if self.is_current_or_next(number) {
                self.notes.insert((number, from), theirs);
            }
            return;
        }
        if number == self.begun
            && let Some(ours) = self.current.clone()
        {
            self.compare(number, from, &ours, &theirs);
            return;
        }
        // Of a call that failed, all were told: what comes late about it is no news, and no reason to fail another one.
        let known = self.over.iter().find(|(at, _, failed)| *at == number && !failed).map(|(_, ours, _)| ours.clone());
        if let Some(ours) = known.filter(|ours| !ours.matches(&theirs)) {
            let trouble = self.mismatch(number, from, &ours, &theirs);
            self.tell_others(&Word::Failed { number, trouble: trouble.clone() });
            self.late.get_or_insert(trouble);
        }
    }

    fn compare(&mut self, number: u64, from: u32, ours: &Call, theirs: &Call) {
        if !ours.matches(theirs) {
            let trouble = self.mismatch(number, from, ours, theirs);
            self.fail(number, trouble);
        } else if ours.array.is_none() && theirs.array.is_some() {
            // It is told what comes.
            self.current = Some(theirs.clone());
        }
    }

    fn mismatch(&self, number: u64, from: u32, ours: &Call, theirs: &Call) -> Trouble {
        let ours = (self.seat(self.rank), ours.to_string());
        Trouble::Mismatch { call: number, ours, theirs: (self.seat(from), theirs.to_string()) }
    }

    fn tell_others(&mut self, word: &Word) {
        let others = (0..self.size).filter(|rank| *rank != self.rank);
        self.answers.extend(others.map(|rank| (rank, word.clone())));
    }
}
