//! Replacing the authority of a cluster while it runs: which step may come when.
//!
//! Nodes know each other by certificates of one authority, so a new one cannot simply be used: whoever does not trust it yet would
//! refuse whoever shows a certificate of it already. A rotation has three steps, and each begins a new **epoch** of the cluster's keys:
//!
//! | epoch | certificates are made by | authorities that are trusted |
//! |---|---|---|
//! | before | the old authority | the old one |
//! | [`Stage::Announced`] | the old one | both |
//! | [`Stage::Issued`] | the new one | both |
//! | after | the new one | the new one |
//!
//! Every member is told the head's epoch with each heartbeat, renews its certificate when its own is another, and tells its own. The
//! next step comes when all that are there have followed, or when the time for it is over. Members that are away come back within the
//! overlap: they are shown a certificate of the old authority, and renew before they join.
//!
//! The shell keeps the state on the disk, makes the authorities, and says what time it is: in seconds since 1970, since a rotation
//! outlives the head's process.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::NodeId;

#[cfg(test)]
mod tests;

/// The shortest overlap: members need a moment to renew.
pub const OVERLAP_MIN_S: u64 = 10;
/// How long members have to renew when the rest of the overlap is cut off.
pub const FORCED_S: u64 = 10;
/// How long a head that was started again waits for members to come back before it distrusts the old authority.
pub const RETURN_S: u64 = 60;

/// Where a rotation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// All learn to trust the new authority; certificates are still of the old one.
    Announced,
    /// Certificates are of the new authority; those of the old one are still good.
    Issued,
}

/// A rotation that has begun and is not finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    /// Where it is.
    pub stage: Stage,
    /// When the old authority goes at the latest.
    pub until: u64,
    /// Nobody waits for those who are away.
    pub hurries: bool,
    /// Those that are there and have not followed yet.
    pub behind: Vec<NodeId>,
    /// When certificates of the new authority are made at the latest.
    issue_by: u64,
    /// The old authority does not go before this.
    not_before: u64,
}

/// The state of a cluster's keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    epoch: u64,
    under_way: Option<UnderWay>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The head's process began: members may be on their way back.
    Started,
    /// The user wants another authority.
    Asked {
        /// How long both are trusted at most.
        overlap_s: u64,
    },
    /// The user wants the old authority to go, without those who are away.
    FinishAsked {
        /// Nor with those who are there and do not follow soon.
        force: bool,
    },
    /// The shell has looked who is there.
    Looked {
        /// The head and all members, with the epoch that each has followed to.
        members: Vec<(NodeId, u64)>,
        /// Certificates and tokens of the old authority that could still be used.
        old_left: usize,
    },
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The keys have another epoch, which all are to follow to.
    EpochBegan,
    /// The old authority goes, with all that it made.
    Retire,
    /// A member has not renewed, and its certificate is worth nothing any more.
    Expel {
        /// Which.
        node: NodeId,
    },
    /// What the user wants cannot be.
    Refuse(Refusal),
}

/// Why the user's wish is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// One rotation at a time.
    UnderWay,
    /// There is nothing to finish.
    NotUnderWay,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Refusal::UnderWay => {
                "the authority is being replaced already: `bireme token list` shows how far that is, and `bireme token rotate \
                 --finish` ends it"
            }
            Refusal::NotUnderWay => "the authority is not being replaced: `bireme token rotate` begins it",
        })
    }
}

impl std::error::Error for Refusal {}

impl Rotation {
    /// The epoch of the keys; it only grows.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The rotation that has begun and is not finished.
    pub fn under_way(&self) -> Option<&UnderWay> {
        self.under_way.as_ref()
    }

    /// During a rotation: tokens of an earlier epoch name the old authority.
    pub fn token_epoch(&self) -> Option<u64> {
        self.under_way.as_ref().map(|under_way| match under_way.stage {
            Stage::Announced => self.epoch,
            Stage::Issued => self.epoch - 1,
        })
    }

    /// During a rotation: certificates of an earlier epoch are of the old authority.
    pub fn certificate_epoch(&self) -> Option<u64> {
        self.under_way.as_ref().map(|under_way| match under_way.stage {
            Stage::Announced => self.epoch + 1,
            Stage::Issued => self.epoch,
        })
    }

    /// Takes in what happened.
    pub fn step(&mut self, event: Event, now: u64, effects: &mut Vec<Effect>) {
        match (event, &mut self.under_way) {
            (Event::Asked { .. }, Some(_)) => effects.push(Effect::Refuse(Refusal::UnderWay)),
            (Event::Asked { overlap_s }, None) => {
                let overlap_s = overlap_s.max(OVERLAP_MIN_S);
                self.under_way = Some(UnderWay {
                    stage: Stage::Announced,
                    until: now.saturating_add(overlap_s),
                    hurries: false,
                    behind: Vec::new(),
                    issue_by: now.saturating_add(overlap_s / 2),
                    not_before: now,
                });
                self.begin_epoch(effects);
            }
            (Event::FinishAsked { .. }, None) => effects.push(Effect::Refuse(Refusal::NotUnderWay)),
            (Event::FinishAsked { force }, Some(under_way)) => {
                under_way.hurries = true;
                if force {
                    under_way.until = under_way.until.min(now.saturating_add(FORCED_S));
                    under_way.issue_by = under_way.issue_by.min(now.saturating_add(FORCED_S / 2));
                    under_way.not_before = now;
                }
            }
            (Event::Started, Some(under_way)) => {
                // Nobody could follow while there was no head.
                under_way.not_before = now.saturating_add(RETURN_S);
                under_way.until = under_way.until.max(under_way.not_before);
                under_way.issue_by = under_way.issue_by.max(now.saturating_add(RETURN_S / 2));
            }
            (Event::Looked { members, old_left }, Some(_)) => self.look(&members, old_left, now, effects),
            (Event::Started | Event::Looked { .. }, None) => {}
        }
    }

    fn look(&mut self, members: &[(NodeId, u64)], old_left: usize, now: u64, effects: &mut Vec<Effect>) {
        let Some(under_way) = &mut self.under_way else { return };
        let behind = members.iter().filter(|(_, epoch)| *epoch < self.epoch).map(|(node, _)| *node);
        under_way.behind = behind.collect();
        let followed = under_way.behind.is_empty();
        match under_way.stage {
            Stage::Announced if followed || now >= under_way.issue_by => {
                under_way.stage = Stage::Issued;
                // However late this step came, there is time for the next one.
                under_way.until = under_way.until.max(now.saturating_add(FORCED_S / 2));
                // Until the next look nobody has followed to what begins now.
                under_way.behind = members.iter().map(|(node, _)| *node).collect();
                self.begin_epoch(effects);
            }
            Stage::Announced => {}
            Stage::Issued => {
                let nothing_left = followed && (old_left == 0 || under_way.hurries) && now >= under_way.not_before;
                // The head makes its own certificates, so that it can only be a moment late.
                let head_followed = !under_way.behind.contains(&NodeId::HEAD);
                if nothing_left || (now >= under_way.until && head_followed) {
                    let behind = std::mem::take(&mut under_way.behind);
                    self.under_way = None;
                    effects.push(Effect::Retire);
                    effects.extend(behind.into_iter().map(|node| Effect::Expel { node }));
                    self.begin_epoch(effects);
                }
            }
        }
    }

    fn begin_epoch(&mut self, effects: &mut Vec<Effect>) {
        self.epoch += 1;
        effects.push(Effect::EpochBegan);
    }
}
