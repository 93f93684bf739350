//! Placement groups: resources that are reserved together, for tasks and actors that have to run at the same time.

use std::time::Duration;

use bireme_runtime::core::id::{GroupId, NodeId};
use bireme_runtime::core::ledger::snapshot::{GroupRow, NodeRow};
use bireme_runtime::core::resources::{Amount, CUSTOM_RESOURCES_MAX, Resources};
use bireme_runtime::core::spec::{GroupStrategy, Strategy};
use bireme_runtime::{NewGroup, Runtime};
use serde::{Deserialize, Serialize};

use crate::{Error, ObjectRef, Result, codec, context};

/// What one bundle of a placement group reserves.
///
/// ```
/// let bundle = bireme::Bundle::cpus(2.0).gpus(0.5).resource("camera", 1.0);
/// # let _ = bundle;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Bundle {
    resources: Resources,
    error: Option<Error>,
}

impl Bundle {
    /// Nothing yet: a bundle without CPUs.
    pub fn new() -> Self {
        Self::default()
    }

    /// CPU cores, and what is added to them.
    pub fn cpus(cpus: f64) -> Self {
        let mut bundle = Self::default();
        bundle.resources.cpus = bundle.amount("cpus", cpus);
        bundle
    }

    /// GPUs: a fraction of one, or a whole number.
    pub fn gpus(mut self, gpus: f64) -> Self {
        self.resources.gpus = self.amount("gpus", gpus);
        self
    }

    /// Bytes of memory.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.resources.memory_bytes = bytes;
        self
    }

    /// A named amount.
    pub fn resource(mut self, name: &str, amount: f64) -> Self {
        let amount = self.amount(name, amount);
        self.resources.custom.insert(name.to_owned(), amount);
        if self.resources.custom.len() > CUSTOM_RESOURCES_MAX {
            let text = format!("a bundle has at most {CUSTOM_RESOURCES_MAX} named resources");
            self.error.get_or_insert(Error::BadArgument(text));
        }
        self
    }

    fn amount(&mut self, resource: &str, given: f64) -> Amount {
        Amount::from_f64(resource, given).unwrap_or_else(|error| {
            self.error.get_or_insert(error.into());
            Amount::default()
        })
    }
}

/// A placement group being chosen; made by [`PlacementGroup::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is reserved until `create` is called"]
pub struct PlacementGroupBuilder {
    wanted: NewGroup,
    error: Option<Error>,
}

impl PlacementGroupBuilder {
    /// Adds a bundle.
    pub fn bundle(mut self, bundle: Bundle) -> Self {
        if let Some(error) = bundle.error {
            self.error.get_or_insert(error);
        }
        self.wanted.bundles.push(bundle.resources);
        self
    }

    /// Adds several.
    pub fn bundles(self, bundles: impl IntoIterator<Item = Bundle>) -> Self {
        bundles.into_iter().fold(self, Self::bundle)
    }

    /// How the bundles lie on the nodes; [`GroupStrategy::Pack`] unless chosen.
    pub fn strategy(mut self, strategy: GroupStrategy) -> Self {
        self.wanted.strategy = strategy;
        self
    }

    /// The name under which [`get_placement_group`] finds it.
    pub fn name(mut self, name: &str) -> Self {
        if name.is_empty() {
            let text = "a placement group's name cannot be empty; leave it out".to_owned();
            self.error.get_or_insert(Error::BadArgument(text));
        }
        self.wanted.name = Some(name.to_owned());
        self
    }

    /// It outlives the actor or program that creates it, and ends only when it is removed.
    pub fn detached(mut self) -> Self {
        self.wanted.detached = true;
        self
    }

    /// Asks for the group. Bad choices are errors here; whether it can be placed is told by [`PlacementGroup::ready`].
    pub fn create(self) -> Result<PlacementGroup> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let bundles = self.wanted.bundles.clone();
        let id = context::runtime()?.create_group(self.wanted)?;
        Ok(PlacementGroup { id, bundles })
    }
}

/// Resources that are reserved together: all bundles of the group, or none.
///
/// It stays until it is removed, its program ends or, when an actor made it, that actor is dead. Dropping this value
/// changes nothing; it can be cloned and sent to tasks and actors.
///
/// ```
/// use bireme::{Bundle, PlacementGroup};
///
/// #[bireme::remote]
/// fn half(x: i64) -> i64 {
///     x / 2
/// }
///
/// let _context = bireme::init_with(bireme::Config::default().cpus(2.0))?;
/// let group = PlacementGroup::builder().bundles([Bundle::cpus(1.0), Bundle::cpus(1.0)]).create()?;
/// group.ready().get()?;
/// let in_first = half::options().strategy(group.bundle(0)?).remote(10);
/// let in_any = half::options().strategy(group.any_bundle()).remote(8);
/// assert_eq!((in_first.get()?, in_any.get()?), (5, 4));
/// group.remove()?;
/// # Ok::<(), bireme::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementGroup {
    id: GroupId,
    bundles: Vec<Resources>,
}

impl PlacementGroup {
    /// A group without bundles, to choose from.
    pub fn builder() -> PlacementGroupBuilder {
        PlacementGroupBuilder::default()
    }

    /// Its id.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// What its bundles reserve, in order.
    pub fn bundles(&self) -> &[Resources] {
        &self.bundles
    }

    /// Ready when every bundle is reserved; has [`Failure::GroupUnplaceable`](crate::Failure::GroupUnplaceable) when that
    /// can never be, and [`Failure::GroupRemoved`](crate::Failure::GroupRemoved) when the group is gone.
    pub fn ready(&self) -> ObjectRef<()> {
        let ready = || {
            let unit = codec::pack(())?;
            context::runtime()?.group_ready(self.id, unit.encoded)
        };
        match ready() {
            Ok(reference) => ObjectRef::live(reference),
            Err(error) => ObjectRef::refused(error),
        }
    }

    /// Waits until every bundle is reserved; says no when the time is over, and is an error when that can never be.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        match self.ready().get_timeout(timeout) {
            Ok(()) => Ok(true),
            Err(Error::Timeout { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The strategy of what runs in one of its bundles.
    pub fn bundle(&self, index: usize) -> Result<Strategy> {
        match u32::try_from(index) {
            Ok(at) if index < self.bundles.len() => Ok(Strategy::Group { group: self.id, bundle: Some(at) }),
            _ => {
                let most = self.bundles.len() - 1;
                Err(Error::BadArgument(format!("{} has no bundle {index}; give 0 to {most}", self.id)))
            }
        }
    }

    /// The strategy of what runs in whichever of its bundles has room.
    pub fn any_bundle(&self) -> Strategy {
        Strategy::Group { group: self.id, bundle: None }
    }

    /// Gives the group up. What runs in it is ended; what waits to run in it, and later tasks, fail.
    pub fn remove(&self) -> Result<()> {
        Runtime::current()?.remove_group(self.id)
    }

    fn of_row(row: GroupRow) -> Self {
        Self { id: row.group, bundles: row.bundles.into_iter().map(|(resources, _)| resources).collect() }
    }
}

/// The placement group with this name.
///
/// ```
/// use bireme::{Bundle, PlacementGroup};
///
/// let _context = bireme::init_with(bireme::Config::default().cpus(2.0))?;
/// let group = PlacementGroup::builder().bundle(Bundle::cpus(1.0)).name("trainers").create()?;
/// assert_eq!(bireme::get_placement_group("trainers")?, group);
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn get_placement_group(name: &str) -> Result<PlacementGroup> {
    let found = Runtime::current()?.find_group(name)?;
    found.map(PlacementGroup::of_row).ok_or_else(|| Error::NoSuchGroup(name.to_owned()))
}

/// The placement groups that there are, also the last ones that are gone: where their bundles lie, or what they wait for.
pub fn placement_groups() -> Result<Vec<GroupRow>> {
    Runtime::current()?.groups()
}

/// The placement group that the calling task or actor runs in.
pub fn current_placement_group() -> Result<Option<PlacementGroup>> {
    let runtime = Runtime::current()?;
    let Some(id) = runtime.current_group() else { return Ok(None) };
    Ok(runtime.groups()?.into_iter().find(|row| row.group == id).map(PlacementGroup::of_row))
}

/// The nodes of the cluster: what they have, what of it is free, and whether they are alive.
///
/// ```
/// let _context = bireme::init_with(bireme::Config::default().cpus(3.0))?;
/// let nodes = bireme::nodes()?;
/// assert_eq!((nodes.len(), nodes[0].total.cpus.as_f64()), (1, 3.0));
/// assert_eq!(nodes[0].node, bireme::node_id()?);
/// # Ok::<(), bireme::Error>(())
/// ```
pub fn nodes() -> Result<Vec<NodeRow>> {
    Runtime::current()?.nodes()
}

/// The node that the calling code runs on; for [`Strategy::Node`].
pub fn node_id() -> Result<NodeId> {
    Ok(Runtime::current()?.node_id())
}
