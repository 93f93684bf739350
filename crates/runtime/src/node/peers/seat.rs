//! A node's seat in its cluster: with the head the controller, with a member its lease.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bireme_core::controller::members::Hold;
use bireme_core::controller::{Controller, Effect, Event, FromController, Tenure, ToController};
use bireme_core::id::NodeId;
use bireme_core::ledger::snapshot::GroupRow;
use bireme_core::message::Between;
use bireme_core::schedule::{Load, Row};
use bireme_core::time::Tick;

use super::{Incoming, Peers};
use crate::clock;
use crate::cluster::Membership;
use crate::cluster::gate::{Arrived, Gate};
use crate::cluster::hearts::MemberHeart;
use crate::cluster::join::{Answer, Seated};
use crate::cluster::security::Dialer;
use crate::error::Error;

/// What this node is in the cluster.
pub(super) enum SeatState {
    Head(Box<Head>),
    Member(Box<Member>),
    /// It lost its lease.
    Over,
}

pub(super) struct Head {
    controller: Controller,
    /// Joins that the controller has not answered, by their number there.
    joining: Vec<(u64, Sender<Answer>)>,
    next_link: u64,
    sequence: u64,
    /// When this node's own load is told next.
    beat_at: Tick,
    effects: Vec<Effect>,
}

pub(super) struct Member {
    tenure: Tenure,
    load: Arc<Mutex<Load>>,
    load_at: Tick,
    ending: bool,
    stop: Arc<AtomicBool>,
    heart: Option<JoinHandle<()>>,
}

impl SeatState {
    pub(super) fn head(controller: Controller) -> Self {
        Self::Head(Box::new(Head {
            controller,
            joining: Vec::new(),
            next_link: 0,
            sequence: 0,
            beat_at: Tick::default(),
            effects: Vec::new(),
        }))
    }

    pub(super) fn member(node: NodeId, gate: Arc<Gate>, dial: Dialer, membership: Membership) -> Result<Self, Error> {
        let Membership { head, sent, lease_us, members, total, heart: wire, .. } = membership;
        let head_identity = members.iter().find(|row| row.node == NodeId::HEAD).map_or(0, |row| row.identity);
        let (load, stop) = (Arc::new(Mutex::new(Load::idle(total))), Arc::new(AtomicBool::new(false)));
        let (told, stopped) = (Arc::clone(&load), Arc::clone(&stop));
        let heart = MemberHeart { gate, node, head, dial, head_identity, load: told, stop: stopped };
        let heart = crate::thread::spawn("bireme-heart", move || heart.run(wire))?;
        let tenure = Tenure::new(sent, lease_us);
        let (load_at, ending) = (Tick::default(), false);
        Ok(Self::Member(Box::new(Member { tenure, load, load_at, ending, stop, heart: Some(heart) })))
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        match self {
            Self::Head(head) => head.controller.deadline().into_iter().chain([head.beat_at]).min(),
            Self::Member(member) => {
                let tenure = if member.ending { member.tenure.over() } else { member.tenure.deadline() };
                // The load is told anew when something has woken the node, which alone can change it, or a renewal has.
                Some(tenure)
            }
            Self::Over => None,
        }
    }
}

impl Peers {
    /// Something that concerns the seat.
    pub(super) fn seat_arrived(&mut self, arrived: Arrived) {
        match arrived {
            Arrived::Join { join, reply } => {
                let SeatState::Head(head) = &mut self.seat else { return };
                head.next_link += 1;
                let link = head.next_link;
                head.joining.push((link, reply));
                self.step_controller(Event::JoinAsked { link, join });
            }
            Arrived::Beat { node, bytes, at } => self.beat(node, &bytes, at),
            Arrived::BeatSent { sequence, at } => {
                if let SeatState::Member(member) = &mut self.seat {
                    member.tenure.heartbeat_sent(sequence, at);
                }
            }
            Arrived::HeartLost { node, refused } => self.step_controller(Event::ConnectionLost { node, refused }),
            Arrived::Expelled { reason } => self.expelled(reason),
            Arrived::Unwanted { node, reason } => {
                eprintln!("bireme: {node} is expelled: {reason}");
                self.step_controller(Event::Expelled { node, reason });
            }
            Arrived::Control { .. } | Arrived::Dialled { .. } | Arrived::Bulk { .. } | Arrived::TicketWanted { .. } => {
            }
        }
    }

    /// A renewal counts from when it came: that this thread had other things to do until now is no silence of the head.
    fn beat(&mut self, node: NodeId, bytes: &[u8], at: Tick) {
        if let SeatState::Head(_) = self.seat {
            if let Ok(request) = postcard::from_bytes::<ToController>(bytes) {
                self.step_controller(Event::Asked { node, request: Box::new(request) });
            }
        } else if let Ok(message) = postcard::from_bytes::<FromController>(bytes) {
            if let (SeatState::Member(member), FromController::Renewed { sequence, lease_us, .. }) =
                (&mut self.seat, &message)
            {
                // Whether it holds is asked when the deadline comes.
                let _ = member.tenure.renewed(*sequence, *lease_us, at);
            }
            self.controller_says(message);
        }
    }

    /// What the controller's conversation is about that came over a control link.
    pub(in crate::node) fn controller_word(&mut self, from: NodeId, bytes: &[u8]) -> Vec<Incoming> {
        match &self.seat {
            SeatState::Head(_) => {
                if let Ok(request) = postcard::from_bytes::<ToController>(bytes) {
                    self.step_controller(Event::Asked { node: from, request: Box::new(request) });
                }
            }
            SeatState::Member(_) if from == NodeId::HEAD => {
                if let Ok(message) = postcard::from_bytes::<FromController>(bytes) {
                    self.controller_says(message);
                }
            }
            SeatState::Member(_) | SeatState::Over => {}
        }
        std::mem::take(&mut self.incoming)
    }

    /// Expels a member: it is out at once, and whoever has its certificate never comes in again.
    pub(in crate::node) fn expel(&mut self, node: NodeId) -> Result<(), String> {
        let SeatState::Head(_) = &self.seat else {
            return Err("only the head expels nodes: run the command on its machine".to_owned());
        };
        if node == self.me {
            return Err(format!(
                "{node} is the head, and what the cluster knows is there alone; `bireme stop` ends it"
            ));
        }
        let row = self.members.get(&node);
        let row = row.ok_or_else(|| format!("{node} is not a node of this cluster; `bireme status` shows them"))?;
        if let Some(book) = self.gate.book.get() {
            book.expel(row.identity).map_err(|error| error.to_string())?;
        }
        self.step_controller(Event::Expelled { node, reason: "the user of the head wanted it".to_owned() });
        Ok(())
    }

    /// Asks the controller, wherever it is.
    pub(in crate::node) fn ask_controller(&mut self, request: ToController) {
        match &self.seat {
            SeatState::Head(_) => {
                self.step_controller(Event::Asked { node: NodeId::HEAD, request: Box::new(request) });
            }
            SeatState::Member(_) => {
                let bytes = postcard::to_allocvec(&request).unwrap_or_default();
                self.tell(NodeId::HEAD, Between::Controller(bytes));
            }
            SeatState::Over => {}
        }
    }

    /// The placement groups of the cluster; none where the controller is not.
    pub(in crate::node) fn groups(&self) -> Vec<GroupRow> {
        match &self.seat {
            SeatState::Head(head) => head.controller.groups().table(),
            SeatState::Member(_) | SeatState::Over => Vec::new(),
        }
    }

    /// Tells the node's load, keeps the lease, and lets time go by for the controller.
    pub(super) fn keep_seat(&mut self, load: impl FnOnce() -> Load) {
        let now = clock::now();
        match &mut self.seat {
            SeatState::Head(head) => {
                let due = head.controller.deadline().is_some_and(|due| due <= now);
                let beats = head.beat_at <= now;
                if beats {
                    let load = Box::new(load());
                    head.beat_at = now.plus_us(self.gate.pace(&load).as_micros() as u64);
                    head.sequence += 1;
                    let sequence = head.sequence;
                    self.ask_controller(ToController::Heartbeat { sequence, load });
                }
                if due {
                    self.step_controller(Event::Ticked);
                }
            }
            SeatState::Member(member) => {
                if member.load_at <= now {
                    member.load_at = now.plus_us(self.gate.heartbeat().as_micros() as u64);
                    *member.load.lock().unwrap_or_else(PoisonError::into_inner) = load();
                }
                match member.tenure.hold(now) {
                    Hold::Held => {}
                    Hold::Ending if member.ending => {}
                    Hold::Ending => {
                        member.ending = true;
                        let reason = "the head has not renewed its lease";
                        self.incoming.push(Incoming::Expelled(reason.to_owned()));
                    }
                    Hold::Over => self.expelled("its lease is over".to_owned()),
                }
            }
            SeatState::Over => {}
        }
    }

    /// When this node has to end its workers, unless its lease is renewed before; none for the head.
    pub(in crate::node) fn lease_deadline(&self) -> Option<Tick> {
        match &self.seat {
            SeatState::Member(member) => Some(member.tenure.deadline()),
            SeatState::Head(_) | SeatState::Over => None,
        }
    }

    fn expelled(&mut self, reason: String) {
        if let SeatState::Member(member) = &self.seat {
            member.stop.store(true, Ordering::Release);
            self.seat = SeatState::Over;
            // Nobody lets this node in any more under its number.
            self.forget_everybody();
            self.incoming.push(Incoming::Expelled(reason));
        }
    }

    fn step_controller(&mut self, event: Event) {
        let SeatState::Head(head) = &mut self.seat else { return };
        let mut effects = std::mem::take(&mut head.effects);
        head.controller.step(event, clock::now(), &mut effects);
        for effect in effects.drain(..) {
            self.carry_out(effect);
        }
        if let SeatState::Head(head) = &mut self.seat {
            head.effects = effects;
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Welcome { link, node, lease_us, members, rows } => {
                let heartbeat_us = self.gate.heartbeat().as_micros() as u64;
                self.answer_join(link, Ok(Seated { node, lease_us, heartbeat_us, members, rows }));
            }
            Effect::TurnAway { link, reason } => self.answer_join(link, Err(reason)),
            Effect::Send { to: NodeId::HEAD, message } => self.controller_says(message),
            Effect::Send { to, message } => self.send_member(to, &message),
            Effect::SendAll(message) => {
                // Who has just died is told nothing, who has just joined knows the rest.
                let members: Vec<NodeId> = self.members.keys().copied().collect();
                for node in members {
                    self.send_member(node, &message);
                }
                self.controller_says(message);
            }
            Effect::Reject { node, reason } => {
                eprintln!("bireme: refused what came from {node}: {reason}");
                self.gate.stop_heart(node);
                self.peers.remove(&node);
            }
        }
    }

    fn answer_join(&mut self, link: u64, answer: Answer) {
        let SeatState::Head(head) = &mut self.seat else { return };
        if let Some(at) = head.joining.iter().position(|(number, _)| *number == link) {
            // Whoever does not wait any more will be heard of no more, and its lease ends.
            let _ = head.joining.swap_remove(at).1.send(answer);
        }
    }

    /// Renewals ride on heartbeats, everything else on the control link.
    fn send_member(&mut self, to: NodeId, message: &FromController) {
        let bytes = postcard::to_allocvec(message).unwrap_or_default();
        match message {
            FromController::Renewed { sequence, lease_us, rows } => {
                // What waits to be sent tells of loads that are told once: the next renewal takes them along.
                let waiting = self.gate.take_beat(to);
                let bytes = match postcard::from_bytes::<FromController>(&waiting) {
                    Ok(FromController::Renewed { rows: earlier, .. }) if !earlier.is_empty() => {
                        let rows = later_rows(earlier, rows);
                        let all = FromController::Renewed { sequence: *sequence, lease_us: *lease_us, rows };
                        postcard::to_allocvec(&all).unwrap_or_default()
                    }
                    _ => bytes,
                };
                self.gate.set_beat(to, bytes);
            }
            FromController::NodeDied { node, .. } if *node == to => {}
            _ => self.tell(to, Between::Controller(bytes)),
        }
    }

    /// The controller speaks to this node.
    fn controller_says(&mut self, message: FromController) {
        match message {
            FromController::Renewed { rows, .. } if rows.is_empty() => {}
            FromController::Renewed { rows, .. } => self.incoming.push(Incoming::Loads(rows)),
            FromController::NodeJoined(row) => self.member_joined(*row),
            FromController::NodeDied { node, departure } => self.member_died(node, departure),
            FromController::NodeDraining { node } => self.incoming.push(Incoming::Draining(node)),
            FromController::Drain { grace_us } => self.incoming.push(Incoming::Drain { grace_us }),
            FromController::Draining { request, refused } => {
                self.incoming.push(Incoming::DrainAnswered { request, refused });
            }
            FromController::Leave => self.incoming.push(Incoming::Leave),
            FromController::GroupAt { .. }
            | FromController::KeepGroup { .. }
            | FromController::GroupFound { .. }
            | FromController::GroupsListed { .. }
            | FromController::Prepare { .. }
            | FromController::Commit { .. }
            | FromController::Release { .. } => self.incoming.push(Incoming::Controller(message)),
        }
    }

    /// The node ends in good order: the controller hears of it, and the heart stops.
    pub(super) fn leave(&mut self) {
        if let SeatState::Member(_) = self.seat {
            self.ask_controller(ToController::Leave);
            // Before the heart stops, or the head would look whether the process is still there.
            self.flush();
        }
        if let SeatState::Member(member) = &mut self.seat {
            member.stop.store(true, Ordering::Release);
            self.gate.stop_hearts();
            if let Some(heart) = member.heart.take() {
                // A panic there has been printed.
                let _ = heart.join();
            }
        }
    }
}

/// All rows, of each node the last.
fn later_rows(mut earlier: Vec<Row>, later: &[Row]) -> Vec<Row> {
    earlier.retain(|row| later.iter().all(|other| other.node != row.node));
    earlier.extend_from_slice(later);
    earlier
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_that_were_not_sent_yet_go_with_the_next_renewal() {
        let row = |node: u32, age_us: u64| Row { node: NodeId(node), age_us, load: Load::default() };
        let rows = later_rows(vec![row(2, 9), row(3, 9)], &[row(3, 1), row(4, 1)]);
        let told: Vec<(u32, u64)> = rows.iter().map(|row| (row.node.0, row.age_us)).collect();
        assert_eq!(told, [(2, 9), (3, 1), (4, 1)]);
    }
}
