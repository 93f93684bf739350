//! What nodes say to each other over their control link: in order, once, until one of them is dead.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CONTROL, CopySource, CopyWish, FromNode, RequestId, ToNode, decode_control, encode_plain, longest_value};
use crate::codec::{Malformed, Reader, Write};
use crate::failure::{Death, Failure};
use crate::flow::{StageId, StageSpec};
use crate::id::{ActorId, FunctionKey, JobId, NodeId, ProcessId, TaskId};
use crate::schedule::Load;
use crate::session::Message;
use crate::shared::Shared;
use crate::spec::TaskSpec;
use crate::time::Tick;
use crate::value::{LONG_BYTES, Location, RefSpec, Value, decode_process, encode_process};
use crate::waits::Waits;

/// A node to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Between {
    /// A process says something to a process of yours.
    Relay {
        /// The sender.
        from: ProcessId,
        /// The receiver.
        to: ProcessId,
        /// The message, as [`Peer`](super::Peer) encodes it.
        bytes: Shared,
    },
    /// A process of mine asks you, as if you were its node.
    Asked {
        /// Who.
        process: ProcessId,
        /// Whose.
        job: JobId,
        /// What.
        request: Box<ToNode>,
    },
    /// I tell a process of yours, as if I were its node.
    Told {
        /// Whom.
        to: ProcessId,
        /// What.
        message: Box<FromNode>,
    },
    /// The driver of this job, a process of mine, is gone: end what is here of the job.
    JobEnded {
        /// Which.
        job: JobId,
        /// How it ended, for people.
        reason: String,
    },
    /// A process of mine died. All that it had said is before this. Answer [`Between::Settled`].
    ProcessDied(Box<Death>),
    /// All my processes have settled the death of this process of yours.
    Settled {
        /// The dead process.
        dead: ProcessId,
    },
    /// All your processes know of this death: have them read what was sent to them, then answer [`Between::Flushed`].
    Flush {
        /// The dead process.
        dead: ProcessId,
    },
    /// My processes have read what had been sent to them.
    Flushed {
        /// The dead process.
        dead: ProcessId,
    },
    /// A task of this dead process of yours runs on here; how it ends follows. Before [`Between::Settled`].
    Runs {
        /// Which.
        task: TaskId,
        /// Which run of it.
        attempt: u32,
        /// Who runs it.
        worker: ProcessId,
    },
    /// Every node has settled the death of this process of mine.
    Buried {
        /// The dead process.
        dead: ProcessId,
    },
    /// Be the host of this actor, which I manage.
    Host {
        /// The constructor's task.
        spec: Arc<TaskSpec>,
        /// Its arguments by reference.
        resolved: Vec<Value>,
        /// Counts the actor's lives from 0.
        incarnation: u32,
        /// The lane in which the constructor names what it makes.
        lane: u32,
        /// Who owns it.
        owner: ProcessId,
        /// Whose processes it lives in.
        job: JobId,
        /// It waits with you when there is no room in the bundle of its group; else say so.
        waits: bool,
    },
    /// The actor that you host is to end.
    Unhost {
        /// Which.
        actor: ActorId,
        /// The life of the actor.
        incarnation: u32,
        /// Why.
        reason: String,
    },
    /// The actor that you manage has a process here.
    Hosted {
        /// Which.
        actor: ActorId,
        /// The life of the actor.
        incarnation: u32,
        /// Where.
        process: ProcessId,
        /// How the constructor ended, once it has.
        value: Option<Value>,
    },
    /// The actor that you manage never had a process here and will not.
    Unhosted {
        /// Which.
        actor: ActorId,
        /// The life of the actor.
        incarnation: u32,
        /// Why.
        failure: Failure,
    },
    /// Give the actor that you were asked to host back, unless it has a process by now; answered by [`Between::Recalled`].
    Recall {
        /// Which.
        actor: ActorId,
        /// The life of the actor.
        incarnation: u32,
    },
    /// The actor that you manage does not wait here any more: it never had a process.
    Recalled {
        /// Which.
        actor: ActorId,
        /// The life of the actor.
        incarnation: u32,
    },
    /// Tell your load as it is now, by [`Between::GiveLoad`].
    WantLoad {
        /// Number of the question.
        request: u64,
    },
    /// The answer to [`Between::WantLoad`].
    GiveLoad {
        /// Number of the question.
        request: u64,
        /// The load.
        load: Box<Load>,
    },
    /// Tell what waits on your node, by [`Between::GiveWaits`].
    WantWaits {
        /// Number of the question.
        request: u64,
    },
    /// The answer to [`Between::WantWaits`].
    GiveWaits {
        /// Number of the question.
        request: u64,
        /// The tasks and processes that wait.
        waits: Box<Waits>,
    },
    /// This actor of mine takes a name; answered by [`Between::NameGiven`].
    TakeName {
        /// The name.
        name: String,
        /// Who takes it.
        actor: ActorId,
        /// Who owns the actor.
        owner: ProcessId,
        /// The function that makes it.
        function: FunctionKey,
    },
    /// The answer: nobody had the name, or who has it.
    NameGiven {
        /// For whom.
        actor: ActorId,
        /// Who has it, when that is another one.
        holder: Option<ActorId>,
    },
    /// This actor of mine needs its name no more.
    DropName {
        /// The name.
        name: String,
        /// Whose.
        actor: ActorId,
    },
    /// I have a copy of what lies at this place, which a process of yours owns.
    CopyMade {
        /// The place that its owner knows.
        of: Location,
        /// The copy.
        at: Location,
    },
    /// I have it no more.
    CopyDropped {
        /// The place that its owner knows.
        of: Location,
    },
    /// What you have as a copy is the only one that its owner knows now: keep it until it is freed.
    Promote {
        /// Where.
        at: Location,
    },
    /// Two drivers' nodes that nobody can dial speak through the head. The shells' business.
    Through {
        /// Who says it.
        from: NodeId,
        /// To whom.
        to: NodeId,
        /// What, encoded.
        bytes: Vec<u8>,
    },
    /// I am to run workers of this job of yours: what are they? The shells' business.
    WantProgram {
        /// Which.
        job: JobId,
    },
    /// What they are, or why that cannot be told.
    GiveProgram {
        /// Of which job.
        job: JobId,
        /// In the shells' encoding.
        parcel: Vec<u8>,
    },
    /// The executable of that job is not here yet: the piece that begins there.
    WantPiece {
        /// Of which job.
        job: JobId,
        /// Where it begins.
        from: u64,
    },
    /// The piece; an empty one when there is none.
    GivePiece {
        /// Of which job.
        job: JobId,
        /// Where it begins.
        from: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// What goes on with you? For people; the shells' business.
    WantStatus {
        /// The asker's number.
        request: u64,
    },
    /// What goes on with me.
    GiveStatus {
        /// The asker's number.
        request: u64,
        /// In the shells' encoding.
        bytes: Vec<u8>,
    },
    /// A worker of your job has written this, or lines of it were dropped. The shells' business.
    Lines {
        /// Whose worker.
        job: JobId,
        /// Its system process id.
        pid: u32,
        /// What it said that it runs.
        name: String,
        /// To standard error, else to standard output.
        is_error: bool,
        /// One line or more, with newlines between them.
        text: String,
        /// Lines that did not fit before these.
        dropped: u64,
    },
    /// No worker of your job will write anything more here that its driver has to see.
    LinesOver {
        /// Which.
        job: JobId,
    },
    /// I want to fetch bytes from you: give me the right to open a stream. The shells' business.
    WantTicket {
        /// The asker's number.
        number: u64,
    },
    /// The right, once.
    GiveTicket {
        /// The asker's number.
        number: u64,
        /// The ticket.
        ticket: [u8; 32],
    },
    /// I want to fetch bytes from you and cannot reach you: open a stream to me with this right.
    Come {
        /// The ticket.
        ticket: [u8; 32],
    },
    /// A node has room: what waits with you for one of your processes may go there.
    Idle {
        /// Which: the speaker, or who told the speaker.
        node: NodeId,
        /// Its load just now.
        load: Box<Load>,
    },
    /// Nobody can ask for what lies here any more.
    Free {
        /// Where.
        at: Location,
    },
    /// What the machine that is addressed decodes itself: the controller's own conversation.
    Controller(Vec<u8>),
    /// I end in good order: everything of mine is over.
    Leaving {
        /// Who.
        node: NodeId,
    },
    /// I am being drained: fetch this, which lies here, and keep it. Answered by [`Between::Kept`], from the owner's node, or
    /// [`Between::NotTaken`].
    Take {
        /// What, and who owns it.
        object: RefSpec,
        /// Where.
        at: Location,
    },
    /// I cannot keep it.
    NotTaken {
        /// The place with you.
        at: Location,
    },
    /// I keep what lay with a node that is being drained, and a process of yours owns.
    Moved {
        /// What.
        object: RefSpec,
        /// The place that its owner knows.
        of: Location,
        /// The new one.
        at: Location,
    },
    /// What lies with you and a process of mine owns is kept by another node too, or not needed.
    Kept {
        /// The place with you.
        of: Location,
        /// Who keeps it; nobody when it is not needed.
        by: Option<NodeId>,
    },
    /// A process of mine wants what lay on a node that is gone, and a process of yours owns. Answered by [`Between::Sought`].
    Seek {
        /// Who wants it.
        process: ProcessId,
        /// Its question.
        request: RequestId,
        /// What.
        object: RefSpec,
        /// Where it was.
        at: Location,
    },
    /// Where it is now, or why nowhere.
    Sought {
        /// Who wants it.
        process: ProcessId,
        /// Its question.
        request: RequestId,
        /// What.
        object: RefSpec,
        /// Where.
        found: Result<Location, String>,
    },
    /// I want a copy of what a process of yours owns: who sends it? Answered by [`Between::CopyFrom`].
    WantCopy(CopyWish),
    /// Who sends it, or why nobody does; also when it is freed while you fetch it.
    CopyFrom {
        /// The asker's number.
        number: u64,
        /// Who.
        from: Result<CopySource, String>,
    },
    /// Fetch this, whoever will want it with you.
    Prefetch {
        /// What, and who owns it.
        object: RefSpec,
        /// The place that the owner knows.
        of: Location,
    },
    /// Carry this stage of a reduce of mine out. A failure is told by [`Between::StageFailed`].
    RunStage(Box<StageSpec>),
    /// I do not want that stage any more.
    EndStage {
        /// Which.
        id: StageId,
        /// Why.
        reason: String,
    },
    /// A stage that you lead has failed here.
    StageFailed {
        /// Which.
        id: StageId,
        /// Why.
        reason: String,
        /// The node whose stream broke, when that is why.
        peer: Option<NodeId>,
    },
    /// Say this back at once: I measure how long messages take.
    Ping {
        /// When it was sent, by the clock of the sender.
        at: Tick,
    },
    /// What you said.
    Pong {
        /// When it was sent, by your clock.
        at: Tick,
    },
    /// I know all nodes up to this one, and what I say from here on may be about them.
    Knows {
        /// The one that joined last.
        newest: NodeId,
    },
}

const RELAY: u8 = 1;

/// What a message that is passed on gets behind it on its way between nodes.
const RELAY_BYTES: usize = 25;

impl Between {
    /// Appends the message. What it is stands behind it, so that a long one that is passed on needs no copy.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Between::Relay { from, to, bytes } => {
                out.extend_from_slice(bytes);
                end_relay(*from, *to, out);
            }
            other => {
                encode_plain(other, out);
                out.u8(CONTROL);
            }
        }
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (kind, bytes) = bytes.split_last().ok_or(Malformed::Short)?;
        match *kind {
            CONTROL => decode_control(bytes),
            RELAY => {
                let at = bytes.len().checked_sub(RELAY_BYTES - 1).ok_or(Malformed::Short)?;
                let (message, ends) = bytes.split_at(at);
                let mut ends = Reader::new(ends);
                let (from, to) = (decode_process(&mut ends)?, decode_process(&mut ends)?);
                Ok(Between::Relay { from, to, bytes: message.into() })
            }
            _ => Err(Malformed::Unknown("message kind")),
        }
    }
}

impl From<Between> for Message {
    fn from(message: Between) -> Self {
        let mut own = Vec::new();
        match message {
            Between::Relay { from, to, bytes: passed_on } => {
                own.reserve_exact(RELAY_BYTES);
                end_relay(from, to, &mut own);
                let value = if passed_on.len() >= LONG_BYTES { longest_value(&passed_on) } else { 0..0 };
                Self { passed_on, own, value }
            }
            other => {
                other.encode(&mut own);
                own.into()
            }
        }
    }
}

fn end_relay(from: ProcessId, to: ProcessId, out: &mut Vec<u8>) {
    encode_process(from, out);
    encode_process(to, out);
    out.u8(RELAY);
}
