//! Names of actors: in the namespace of the job, unless another one is given.

use bireme_core::id::{ActorId, FunctionKey};
use bireme_core::message::{FromNode, ToNode};
use bireme_core::names::{self, Namespace};
use bireme_core::value::RefSpec;

use crate::client::Runtime;
use crate::error::Error;
use crate::reference::Ref;

/// Where workers find the namespace of their job, as [`Namespace::to_text`] says it.
pub(crate) const VARIABLE: &str = "BIREME_JOB_NAMESPACE";

/// What the workers of a job are told.
pub(crate) fn for_workers(namespace: &Namespace) -> (String, String) {
    (VARIABLE.to_owned(), namespace.to_text())
}

/// In a worker: the namespace of its job. Without a word of it the worker is a test's, which has its node for itself.
pub(crate) fn told_to_worker() -> Namespace {
    let told = std::env::var(VARIABLE).ok();
    told.as_deref().and_then(Namespace::from_text).unwrap_or(Namespace::Alone)
}

impl Runtime {
    /// The namespace in which names of this job are looked up; empty when the job has its node for itself and chose none.
    pub fn namespace(&self) -> &str {
        &self.process.namespace
    }

    /// The name as the engine knows it: in this namespace, or in the job's.
    pub(crate) fn full_name(&self, name: &str, namespace: Option<&str>) -> Result<String, Error> {
        names::join(namespace.unwrap_or(&self.process.namespace), name)
            .map_err(|bad| Error::BadArgument(bad.to_string()))
    }

    /// The actor with this name in a namespace; in the job's when none is given.
    pub fn find_actor(&self, name: &str, namespace: Option<&str>) -> Result<(ActorId, FunctionKey, Ref), Error> {
        self.check_running()?;
        let full = self.full_name(name, namespace)?;
        let request = self.process.request_id();
        match self.process.ask(request, &ToNode::FindActor { request, name: full })? {
            FromNode::ActorFound { found: Some((actor, owner, function)), .. } => {
                let spec = RefSpec { object: actor.object(), owner };
                let handle = Ref::adopt(spec)?;
                self.process.borrow_unasked(spec);
                Ok((actor, function, handle))
            }
            _ => Err(Error::NoSuchActor(name.to_owned())),
        }
    }

    /// Namespace and name of the actors that have one, in order: of the job's namespace, or of all.
    pub fn named_actors(&self, all_namespaces: bool) -> Result<Vec<(String, String)>, Error> {
        self.check_running()?;
        let request = self.process.request_id();
        let FromNode::Names { names, .. } = self.process.ask(request, &ToNode::QueryNames { request })? else {
            return Err(Error::System { what: "listing names", reason: "the node answered something else".into() });
        };
        let pairs = names.iter().map(|full| {
            let (namespace, name) = names::split(full);
            (namespace.unwrap_or_default().to_owned(), name.to_owned())
        });
        Ok(pairs.filter(|(namespace, _)| all_namespaces || namespace == self.namespace()).collect())
    }
}
