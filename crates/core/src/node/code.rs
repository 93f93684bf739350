//! The table of code: who publishes it, who looks it up.
//!
//! The head has all code, every other node what its processes published or asked for. A worker may ask the head before the
//! publisher's word is there, since the two come from different nodes: it waits for it, up to [`CODE_WAIT_US`].

use super::{Effect, Node, send};
use crate::id::{FunctionKey, ProcessId};
use crate::message::{FromNode, RequestId};
use crate::time::Tick;

/// Code that is not there by then was never published.
pub const CODE_WAIT_US: u64 = 10_000_000;

impl Node {
    pub(super) fn publish(
        &mut self,
        process: ProcessId,
        request: RequestId,
        function: FunctionKey,
        code: Vec<u8>,
        effects: &mut Vec<Effect>,
    ) {
        for (asker, request, _) in self.awaited.remove(&function).unwrap_or_default() {
            let code = Some(code.clone());
            send(asker, FromNode::Code { request, function, code }, effects);
        }
        self.keep_code(process, function, code);
        if process.node == self.config.id {
            send(process, FromNode::Published { request }, effects);
        }
    }

    pub(super) fn lookup(
        &mut self,
        process: ProcessId,
        request: RequestId,
        function: FunctionKey,
        now: Tick,
        effects: &mut Vec<Effect>,
    ) {
        let code = self.code.get(&function).map(|code| code.bytes.clone());
        if code.is_none() && process.node != self.config.id {
            self.awaited.entry(function).or_default().push((process, request, now.plus_us(CODE_WAIT_US)));
            return;
        }
        send(process, FromNode::Code { request, function, code }, effects);
    }

    /// Who has waited for long enough hears that there is no such code.
    pub(super) fn give_up_on_code(&mut self, now: Tick, effects: &mut Vec<Effect>) {
        for (function, askers) in &mut self.awaited {
            askers.retain(|(asker, request, until)| {
                if *until <= now {
                    let (request, function) = (*request, *function);
                    send(*asker, FromNode::Code { request, function, code: None }, effects);
                }
                *until > now
            });
        }
        self.awaited.retain(|_, askers| !askers.is_empty());
    }
}
