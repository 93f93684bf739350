//! What front ends call about the cluster: nodes, placement groups, and where the calling code runs.

use bireme_core::id::{GroupId, NodeId};
use bireme_core::ledger::snapshot::{GroupRow, NodeRow};
use bireme_core::message::{FromNode, ToNode};
use bireme_core::names;
use bireme_core::owner::Event;
use bireme_core::resources::Resources;
use bireme_core::spec::{BUNDLES_MAX, GroupStrategy};

use crate::client::{Put, Runtime};
use crate::error::Error;
use crate::function::Encoded;
use crate::process;
use crate::reference::Ref;

/// A placement group on its way in.
#[derive(Clone, Debug, Default)]
pub struct NewGroup {
    /// Name under which others of the job's namespace find it.
    pub name: Option<String>,
    /// How its bundles lie on the nodes.
    pub strategy: GroupStrategy,
    /// What to reserve.
    pub bundles: Vec<Resources>,
    /// It outlives its creator and ends only when it is removed.
    pub detached: bool,
}

impl Runtime {
    /// Asks for a placement group and gives its id at once. Whether it can be placed is told by [`Runtime::group_ready`].
    pub fn create_group(&self, wanted: NewGroup) -> Result<GroupId, Error> {
        self.check_running()?;
        check_bundles(&wanted.bundles)?;
        let NewGroup { name, strategy, bundles, detached } = wanted;
        if let Some(name) = &name
            && let Some(holder) = self.find_group(name)?
        {
            let text = format!("the name {name:?} belongs to {}; choose another or find that one", holder.group);
            return Err(Error::BadArgument(text));
        }
        let group = self.process.with_lane(|lane| {
            lane.advance();
            GroupId(lane.task_id())
        });
        let name = name.map(|name| self.full_name(&name, None)).transpose()?;
        self.process.tell(&ToNode::CreateGroup { group, name, strategy, bundles, detached });
        Ok(group)
    }

    /// An object that has this value once the group is placed, or the reason why it never will be. The value must hold no
    /// references.
    pub fn group_ready(&self, group: GroupId, value: Encoded) -> Result<Ref, Error> {
        self.check_running()?;
        let digest = group.0.raw() as u64;
        let object = match self.name_put(digest)? {
            Put::Adopted(adopted) => return Ok(adopted),
            Put::New(object) => object,
        };
        let value = self.process.store_value(&value)?;
        self.process.own(Event::GroupAwaited { group, object, digest, value });
        self.process.doorbell.ring_self();
        Ok(Ref::counted(&self.process, object))
    }

    /// Gives a placement group up; what runs in it is ended. One that is gone is left as it is.
    pub fn remove_group(&self, group: GroupId) -> Result<(), Error> {
        self.check_running()?;
        self.process.tell(&ToNode::RemoveGroup { group });
        Ok(())
    }

    /// The placement group with this name in the job's namespace.
    pub fn find_group(&self, name: &str) -> Result<Option<GroupRow>, Error> {
        self.check_running()?;
        let request = self.process.request_id();
        match self.process.ask(request, &ToNode::FindGroup { request, name: self.full_name(name, None)? })? {
            FromNode::GroupFound { found, .. } => Ok(found.map(with_short_name)),
            _ => Err(unexpected("finding a placement group")),
        }
    }

    /// All placement groups, also the last ones that are gone.
    pub fn groups(&self) -> Result<Vec<GroupRow>, Error> {
        self.check_running()?;
        let request = self.process.request_id();
        match self.process.ask(request, &ToNode::QueryGroups { request })? {
            FromNode::Groups { rows, .. } => Ok(rows.into_iter().map(with_short_name).collect()),
            _ => Err(unexpected("listing placement groups")),
        }
    }

    /// The placement group that the current task runs in, or the actor that lives in this process.
    pub fn current_group(&self) -> Option<GroupId> {
        self.process.with_lane(|_| ());
        process::current_place().map(|place| place.group)
    }

    /// The nodes of the cluster, dead ones too as long as they are remembered.
    pub fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        self.check_running()?;
        self.process.own(Event::FreeAsked);
        let request = self.process.request_id();
        match self.process.ask(request, &ToNode::QueryNodes { request })? {
            FromNode::Nodes { rows, .. } => Ok(rows),
            _ => Err(unexpected("listing nodes")),
        }
    }

    /// The node of this process.
    pub fn node_id(&self) -> NodeId {
        self.process.me.node
    }
}

/// A row for users, who say names without the namespace.
fn with_short_name(row: GroupRow) -> GroupRow {
    GroupRow { name: row.name.map(|full| names::split(&full).1.to_owned()), ..row }
}

fn check_bundles(bundles: &[Resources]) -> Result<(), Error> {
    let count = bundles.len();
    if count == 0 || count > BUNDLES_MAX {
        let text = format!("a placement group has 1 to {BUNDLES_MAX} bundles, not {count}");
        return Err(Error::BadArgument(text));
    }
    match bundles.iter().position(Resources::is_zero) {
        Some(at) => {
            Err(Error::BadArgument(format!("bundle {at} of the placement group reserves nothing; leave it out")))
        }
        None => Ok(()),
    }
}

fn unexpected(what: &'static str) -> Error {
    Error::System { what, reason: "the node answered something else".into() }
}
