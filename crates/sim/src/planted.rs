//! Deliberate bugs in the simulator's own shell, to show that the invariants catch them.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A worker's reply leaves and its record only with the next turn.
    ReplyBeforeRecord,
    /// Grants are never given back.
    GiveBackDropped,
    /// A repeated task submits without asking what exists.
    AdoptNotAsked,
    /// The owner is not told when a borrowed reference is passed on.
    LentDropped,
    /// A worker runs a call a second time.
    DoubleExecution,
    /// A worker goes on to start what a dead owner had queued.
    DeadOwnerIgnored,
    /// The node tells a death before it has read what the dead process wrote.
    DeathNotDrained,
    /// An actor takes one call more at once than it was made for.
    OneCallTooMany,
    /// A link delivers frames that come twice twice.
    RepeatedFrameHeard,
    /// A node that lost its tenure ends its processes too late.
    FencedLate,
    /// Nodes other than the head do not hear of the death of a node.
    NodeDeathUntold,
    /// A node lets a bundle be used before all of its group are reserved.
    CommittedAtOnce,
    /// A node does not tell of its copies.
    CopyUntold,
    /// A node that is to be drained leaves with what it has.
    LeftUndrained,
    /// A stage goes on without a stream that broke.
    StreamLeftOut,
    /// A stage whose stream broke combines what it had of it a second time.
    TakenTwice,
    /// Who has lost the sender of a copy is told to take the rest from one that gets it from him.
    OwnDescendant,
    /// Who has lost the sender of a copy asks the next one for all of it.
    FromTheStart,
    /// A node reads all rings and drops what is for a node with too much queued.
    StalledDropped,
    /// A node takes what it has not read for never written: of a process that waits for another node.
    HeldRingForgotten,
    /// A task is tried again once more often than its program allows.
    OneRetryTooMany,
    /// A node gives out one CPU more than its machine has.
    OneCpuTooMany,
    /// An owner tells a borrower that an object went with a node, which was never there.
    LostWithoutCause,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::ReplyBeforeRecord,
        Self::GiveBackDropped,
        Self::AdoptNotAsked,
        Self::LentDropped,
        Self::DoubleExecution,
        Self::DeadOwnerIgnored,
        Self::DeathNotDrained,
        Self::OneCallTooMany,
        Self::RepeatedFrameHeard,
        Self::FencedLate,
        Self::NodeDeathUntold,
        Self::CommittedAtOnce,
        Self::CopyUntold,
        Self::LeftUndrained,
        Self::StreamLeftOut,
        Self::TakenTwice,
        Self::OwnDescendant,
        Self::FromTheStart,
        Self::StalledDropped,
        Self::HeldRingForgotten,
        Self::OneRetryTooMany,
        Self::OneCpuTooMany,
        Self::LostWithoutCause,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReplyBeforeRecord => "reply-before-record",
            Self::GiveBackDropped => "give-back-dropped",
            Self::AdoptNotAsked => "adopt-not-asked",
            Self::LentDropped => "lent-dropped",
            Self::DoubleExecution => "double-execution",
            Self::DeadOwnerIgnored => "dead-owner-ignored",
            Self::DeathNotDrained => "death-not-drained",
            Self::OneCallTooMany => "one-call-too-many",
            Self::RepeatedFrameHeard => "repeated-frame-heard",
            Self::FencedLate => "fenced-late",
            Self::NodeDeathUntold => "node-death-untold",
            Self::CommittedAtOnce => "committed-at-once",
            Self::CopyUntold => "copy-untold",
            Self::LeftUndrained => "left-undrained",
            Self::StreamLeftOut => "stream-left-out",
            Self::TakenTwice => "taken-twice",
            Self::OwnDescendant => "own-descendant",
            Self::FromTheStart => "from-the-start",
            Self::StalledDropped => "stalled-dropped",
            Self::HeldRingForgotten => "held-ring-forgotten",
            Self::OneRetryTooMany => "one-retry-too-many",
            Self::OneCpuTooMany => "one-cpu-too-many",
            Self::LostWithoutCause => "lost-without-cause",
        }
    }

    /// The bug of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|planted| planted.name() == name)
    }
}
