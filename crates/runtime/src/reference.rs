//! A counted handle of an object.

use std::sync::Arc;

use bireme_core::id::ObjectId;
use bireme_core::owner::Event;
use bireme_core::value::RefSpec;

use crate::error::Error;
use crate::forked::{check_forked, is_forked};
use crate::process::{self, Process};

/// A handle of an object. Clones share it; dropping the last one gives the object back.
#[derive(Clone)]
pub struct Ref(Arc<Inner>);

struct Inner {
    spec: RefSpec,
    process: Arc<Process>,
}

impl Ref {
    /// A handle that the owner machine has counted already.
    pub(crate) fn counted(process: &Arc<Process>, object: ObjectId) -> Self {
        let spec = RefSpec { object, owner: process.me };
        Self(Arc::new(Inner { spec, process: Arc::clone(process) }))
    }

    /// The same for an object that another process may own.
    pub(crate) fn counted_as(process: &Arc<Process>, spec: RefSpec) -> Self {
        Self(Arc::new(Inner { spec, process: Arc::clone(process) }))
    }

    /// A handle for a reference that came out of bytes.
    pub fn adopt(spec: RefSpec) -> Result<Self, Error> {
        check_forked()?;
        let process = process::current().ok_or(Error::NotRunning("a reference was decoded outside of it"))?;
        process.own(Event::RefAdded(spec));
        Ok(Self(Arc::new(Inner { spec, process })))
    }

    /// The object and its owner.
    pub fn spec(&self) -> RefSpec {
        self.0.spec
    }

    /// The object.
    pub fn id(&self) -> ObjectId {
        self.0.spec.object
    }

    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.0.process
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A fork's handles are copies: only the original counts.
        if !is_forked() && !self.process.is_over() {
            self.process.own(Event::RefDropped(self.spec.object));
        }
    }
}

impl std::fmt::Debug for Ref {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.id())
    }
}
