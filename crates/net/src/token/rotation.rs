//! Replacing the authority, as the book has it: decided in `bireme_core::rotation`, written here.
//!
//! The book is what counts, and it is replaced as a whole. The new authority's file is there before the book speaks of it, and takes
//! the place of the old one's after the book has said so; after a crash in between, files that nobody speaks of are written
//! over, and those that are behind follow when they are read next ([`Authorities::load`]).

use std::path::Path;
use std::time::Duration;

use bireme_core::id::NodeId;
use bireme_core::rotation::{Effect, Event, Refusal};

use super::members::Contents;
use super::{TokenBook, TokenError};
use crate::tls::{Authorities, Authority};

/// What has come of a look at the members.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// The epoch of the cluster's keys.
    pub epoch: u64,
    /// Members that have not renewed in time.
    pub expelled: Vec<NodeId>,
}

impl TokenBook {
    /// The cluster's folder: the authority is there too.
    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or_else(|| Path::new("."))
    }

    /// The authorities as they are now.
    pub fn authorities(&self) -> Result<Authorities, TokenError> {
        let _lock = self.lock()?;
        let contents = self.read()?;
        Ok(Authorities::load(self.folder(), &contents.rotation, contents.authority)?)
    }

    /// Begins to replace the authority: the new one is made, and the old one is trusted for so long at most.
    pub fn rotate(&self, overlap: Duration, now: u64) -> Result<(), TokenError> {
        let _lock = self.lock()?;
        let mut contents = self.read()?;
        if contents.rotation.under_way().is_some() {
            return Err(Refusal::UnderWay.into());
        }
        // One that a crash left behind takes its place first.
        Authorities::load(self.folder(), &contents.rotation, contents.authority)?;
        let next = Authority::create_next(self.folder(), now)?;
        contents.authority = Some(next.fingerprint());
        self.step(contents, Event::Asked { overlap_s: overlap.as_secs() }, now).map(|_| ())
    }

    /// Has the old authority go as soon as those that are there have renewed; by force without those who do not soon.
    pub fn finish_rotation(&self, force: bool, now: u64) -> Result<(), TokenError> {
        let _lock = self.lock()?;
        self.step(self.read()?, Event::FinishAsked { force }, now).map(|_| ())
    }

    /// The head's process begins.
    pub fn head_started(&self, now: u64) -> Result<(), TokenError> {
        let _lock = self.lock()?;
        self.step(self.read()?, Event::Started, now).map(|_| ())
    }

    /// The head has looked who is there, itself included, and which epoch each has followed to.
    pub fn look(&self, members: Vec<(NodeId, u64)>, now: u64) -> Result<Looked, TokenError> {
        // Nearly always.
        let contents = self.read()?;
        if contents.rotation.under_way().is_none() {
            return Ok(Looked { epoch: contents.rotation.epoch(), expelled: Vec::new() });
        }
        let _lock = self.lock()?;
        let contents = self.read()?;
        let old_left = contents.old_left(now);
        self.step(contents, Event::Looked { members, old_left }, now)
    }

    /// Steps, and writes what has changed. The book is locked.
    fn step(&self, mut contents: Contents, event: Event, now: u64) -> Result<Looked, TokenError> {
        let before = contents.rotation.clone();
        let (of_tokens, of_certificates) = (before.token_epoch(), before.certificate_epoch());
        let (mut effects, mut expelled, mut retired) = (Vec::new(), Vec::new(), false);
        contents.rotation.step(event, now, &mut effects);
        for effect in effects {
            match effect {
                // Whoever looks at the book sees it.
                Effect::EpochBegan => {}
                Effect::Retire => {
                    contents.retire(of_tokens.unwrap_or(0), of_certificates.unwrap_or(0));
                    retired = true;
                }
                Effect::Expel { node } => expelled.push(node),
                Effect::Refuse(refusal) => return Err(refusal.into()),
            }
        }
        if contents.rotation != before {
            self.write(&contents)?;
        }
        if retired {
            // The old key leaves the disk.
            Authorities::load(self.folder(), &contents.rotation, contents.authority)?;
        }
        Ok(Looked { epoch: contents.rotation.epoch(), expelled })
    }
}
