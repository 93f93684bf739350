//! A cluster of many nodes on paper, to measure how many choices a node makes in a second.
//!
//! Time is the caller's: make a [`Trial`], take the time, [`Trial::run`] it, take the time again.

use super::{Ask, Choice, Digest, Input, Load};
use crate::id::NodeId;
use crate::resources::{Amount, Resources};
use crate::spec::Strategy;
use crate::time::Tick;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// One CPU, nothing to read.
    Plain,
    /// Four shapes in turns.
    Shapes,
    /// One CPU, and a 100 MB input that two nodes have.
    Inputs,
    /// One CPU, spread.
    Spread,
}

/// A digest and a stream of wishes.
pub struct Trial {
    digest: Digest,
    nodes: u32,
    random: u64,
    now: Tick,
}

/// Where the wishes went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// To the own node.
    pub here: u64,
    /// To others.
    pub there: u64,
    /// Nowhere yet.
    pub waiting: u64,
    /// Nowhere ever.
    pub never: u64,
}

impl Trial {
    /// So many nodes of 8 to 64 CPUs, each fourth with GPUs, with random loads. The own node is the first, and busy.
    pub fn new(nodes: u32) -> Self {
        let mut trial = Self { digest: Digest::new(), nodes, random: 0x9e37_79b9_7f4a_7c15, now: Tick(1_000_000) };
        for node in 1..=nodes {
            let load = trial.load(node);
            trial.digest.update(NodeId(node), load, 0, trial.now);
        }
        trial
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn load(&mut self, node: u32) -> Load {
        let cpus = 8 << self.draw(4);
        let total = Resources {
            cpus: Amount::whole(cpus),
            gpus: Amount::whole(if node.is_multiple_of(4) { 8 } else { 0 }),
            memory_bytes: cpus << 32,
            ..Resources::default()
        };
        let mut load = Load::idle(total);
        load.task_us = 1_000 + self.draw(50_000);
        load.bandwidth = 1_000_000_000 + self.draw(9_000_000_000);
        load.arena_free_bytes = 1 << 34;
        load.free.cpus = Amount::whole(if node == 1 { 0 } else { self.draw(cpus + 1) });
        if load.free.cpus.0 == 0 {
            let waiting = self.draw(cpus) as u32 + 1;
            load.enqueue(&Resources::cpus(Amount::whole(1)), waiting);
        }
        load
    }

    /// Makes so many choices, each counted at its node, while the nodes' loads come in: one for each ten choices, which is ten
    /// a second of each of 1,000 nodes when 100,000 choices are made in a second.
    pub fn run(&mut self, asks: u64, mix: Mix) -> Outcome {
        let one = Resources::cpus(Amount::whole(1));
        let two = Resources { cpus: Amount::whole(2), memory_bytes: 1 << 30, ..Resources::default() };
        let half = Resources::cpus(Amount(5_000));
        let gpu = Resources { gpus: Amount::whole(1), ..one.clone() };
        let mut outcome = Outcome::default();
        for number in 0..asks {
            if number % 10 == 0 {
                let node = 1 + (number / 10 % u64::from(self.nodes)) as u32;
                let load = self.load(node);
                self.digest.update(NodeId(node), load, 0, self.now);
            }
            self.now = self.now.plus_us(10);
            let at = [1 + self.draw(u64::from(self.nodes)) as u32, 1 + self.draw(u64::from(self.nodes)) as u32];
            let at = at.map(NodeId);
            let inputs = [Input { at: &at, bytes: 100_000_000 }];
            let resources = match (mix, number % 4) {
                (Mix::Shapes, 0) => &two,
                (Mix::Shapes, 1) => &half,
                (Mix::Shapes, 2) => &gpu,
                _ => &one,
            };
            let strategy = if mix == Mix::Spread { Strategy::Spread } else { Strategy::Default };
            let inputs: &[Input<'_>] = if mix == Mix::Inputs { &inputs } else { &[] };
            let ask = Ask { resources, strategy, inputs, own: NodeId(1), bundles: &[] };
            match self.digest.choose(&ask, self.now) {
                Choice::Here => outcome.here += 1,
                Choice::There(node) => {
                    outcome.there += 1;
                    self.digest.sent(node, resources, 1, self.now);
                }
                Choice::Wait(_) => outcome.waiting += 1,
                Choice::Never(_) => outcome.never += 1,
            }
        }
        outcome
    }
}
