//! What a program can ask about the actor that lives in its process. Called by front ends; elsewhere there is none.

use bireme_core::id::{ActorId, FunctionKey};
use bireme_core::names;
use bireme_core::resources::Resources;
use bireme_core::spec::TaskKind;
use bireme_core::value::RefSpec;
use bireme_core::worker::Hosted;

use crate::client::Runtime;
use crate::error::Error;
use crate::process;
use crate::reference::Ref;

impl Runtime {
    /// A handle of the actor that lives in this process, with its id and its constructor's function.
    pub fn own_actor(&self) -> Result<Option<(ActorId, FunctionKey, Ref)>, Error> {
        self.check_running()?;
        let Some((task, function, owner)) = self.hosted(|hosted| (hosted.spec.id, hosted.spec.function, hosted.owner))
        else {
            return Ok(None);
        };
        let actor = ActorId(task);
        let spec = RefSpec { object: actor.object(), owner };
        let handle = Ref::adopt(spec)?;
        self.process.borrow_unasked(spec);
        Ok(Some((actor, function, handle)))
    }

    /// How often the actor that lives in this process was started again; 0 where none lives.
    pub fn actor_restarts(&self) -> u32 {
        self.hosted(|hosted| hosted.incarnation).unwrap_or(0)
    }

    /// The name of the actor that lives in this process, when it has one.
    pub fn actor_name(&self) -> Option<String> {
        self.hosted(|hosted| match &hosted.spec.kind {
            TaskKind::Create(options) => options.name.as_deref().map(|full| names::split(full).1.to_owned()),
            TaskKind::Plain | TaskKind::Call { .. } => None,
        })
        .flatten()
    }

    /// What the actor that lives in this process was given.
    pub fn actor_resources(&self) -> Option<Resources> {
        self.hosted(|hosted| hosted.spec.options.resources.clone())
    }

    /// Which GPUs the current task has, or the actor that lives in this process; none elsewhere.
    pub fn gpu_indices(&self) -> Vec<u32> {
        process::gpu_indices().or_else(|| self.hosted(|hosted| hosted.gpus.clone())).unwrap_or_default()
    }

    fn hosted<R>(&self, read: impl FnOnce(&Hosted) -> R) -> Option<R> {
        self.process.lock().hosted().map(read)
    }
}
