//! Which node gets which bundle.
//!
//! Packing many kinds of things into many bins is hard, so `Pack` and `Spread` are good guesses; they never say that a
//! group is impossible when it is not, since [`impossible`] asks only what is certain. `StrictPack` and `StrictSpread`
//! are decided exactly.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Packing;
use crate::id::NodeId;
use crate::node::{fit_together, is_gpu_amount};
use crate::resources::Resources;

/// What is left of a node while bundles are put there.
struct Bin {
    node: NodeId,
    left: Resources,
    /// Bundles of this group that it has.
    bundles: u32,
}

/// The nodes for the bundles that are missing, when what is free will do. `used` counts the bundles of the group that
/// nodes have already.
pub(super) fn plan<'a>(
    packing: Packing,
    missing: &[(u32, &Resources)],
    free: impl Iterator<Item = (NodeId, &'a Resources)>,
    used: &BTreeMap<NodeId, u32>,
) -> Option<BTreeMap<u32, NodeId>> {
    let bin = |(node, free): (NodeId, &Resources)| Bin {
        node,
        left: free.clone(),
        bundles: used.get(&node).copied().unwrap_or(0),
    };
    let mut bins: Vec<Bin> = free.map(bin).collect();
    let mut bundles = missing.to_vec();
    bundles.sort_by_key(|(bundle, resources)| (Reverse(size(resources)), *bundle));
    match packing {
        Packing::StrictPack => {
            // With some placed, the rest belongs there; the tightest node else, so that large ones stay whole.
            let all = together(bundles.iter().map(|(_, resources)| *resources));
            let allowed = |bin: &&Bin| used.is_empty() || bin.bundles > 0;
            let fitting = bins.iter().filter(allowed).filter(|bin| bin.left.covers(&all));
            let node = fitting.min_by_key(|bin| (size(&bin.left), bin.node))?.node;
            Some(bundles.iter().map(|(bundle, _)| (*bundle, node)).collect())
        }
        Packing::StrictSpread => {
            bins.retain(|bin| bin.bundles == 0);
            bins.sort_by_key(|bin| (Reverse(size(&bin.left)), bin.node));
            let chosen = distinct(&bundles, &bins)?;
            Some(bundles.iter().zip(chosen).map(|((bundle, _), bin)| (*bundle, bins[bin].node)).collect())
        }
        Packing::Spread => spread(&bundles, &mut bins),
        Packing::Pack => pack(bundles, &mut bins),
    }
}

/// One after the other to the node that has the fewest of the group, and of these the one with most left.
fn spread(bundles: &[(u32, &Resources)], bins: &mut [Bin]) -> Option<BTreeMap<u32, NodeId>> {
    let mut picks = BTreeMap::new();
    for (bundle, resources) in bundles {
        let fitting = bins.iter_mut().filter(|bin| bin.left.covers(resources));
        let bin = fitting.min_by_key(|bin| (bin.bundles, Reverse(size(&bin.left)), bin.node))?;
        if !bin.left.try_take(resources) {
            return None;
        }
        bin.bundles += 1;
        picks.insert(*bundle, bin.node);
    }
    Some(picks)
}

/// Node after node, each time the one that takes most of what is left; those first that have some already.
fn pack(mut bundles: Vec<(u32, &Resources)>, bins: &mut [Bin]) -> Option<BTreeMap<u32, NodeId>> {
    let taken = |bin: &Bin, bundles: &[(u32, &Resources)]| {
        let mut left = bin.left.clone();
        bundles.iter().filter(|(_, resources)| left.try_take(resources)).count()
    };
    let mut picks = BTreeMap::new();
    while !bundles.is_empty() {
        let best = bins
            .iter_mut()
            .max_by_key(|bin| (bin.bundles > 0 && taken(bin, &bundles) > 0, taken(bin, &bundles), Reverse(bin.node)))?;
        let before = bundles.len();
        bundles.retain(|(bundle, resources)| {
            let fits = best.left.try_take(resources);
            if fits {
                picks.insert(*bundle, best.node);
            }
            !fits
        });
        if bundles.len() == before {
            return None;
        }
        // What did not fit there now will not later.
        best.bundles = 0;
    }
    Some(picks)
}

/// A node of its own for each bundle, when that is possible: augmenting paths.
fn distinct(bundles: &[(u32, &Resources)], bins: &[Bin]) -> Option<Vec<usize>> {
    fn place(
        at: usize,
        bundles: &[(u32, &Resources)],
        bins: &[Bin],
        holder: &mut [Option<usize>],
        tried: &mut [bool],
    ) -> bool {
        let fits = |number: &usize| bins[*number].left.covers(bundles[at].1);
        if let Some(number) = (0..bins.len()).filter(|number| holder[*number].is_none()).find(fits) {
            holder[number] = Some(at);
            return true;
        }
        for number in (0..bins.len()).filter(fits) {
            if std::mem::replace(&mut tried[number], true) {
                continue;
            }
            if holder[number].is_some_and(|other| place(other, bundles, bins, holder, tried)) {
                holder[number] = Some(at);
                return true;
            }
        }
        false
    }
    if bundles.len() > bins.len() {
        return None;
    }
    let mut holder = vec![None; bins.len()];
    for at in 0..bundles.len() {
        if !place(at, bundles, bins, &mut holder, &mut vec![false; bins.len()]) {
            return None;
        }
    }
    let mut chosen = vec![0; bundles.len()];
    for (number, bundle) in holder.into_iter().enumerate().filter_map(|(n, bundle)| Some((n, bundle?))) {
        chosen[bundle] = number;
    }
    Some(chosen)
}

/// Why nodes with these totals can never hold the group, when that is certain.
pub(super) fn impossible<'a>(
    packing: Packing,
    bundles: &[Resources],
    totals: impl Iterator<Item = (NodeId, &'a Resources)>,
) -> Option<String> {
    let totals: Vec<(NodeId, &Resources)> = totals.collect();
    if let Some(bundle) = bundles.iter().find(|bundle| !is_gpu_amount(bundle.gpus)) {
        return Some(format!("a bundle asks for {bundle}; above 1, GPUs are whole numbers"));
    }
    let largest = || match totals.iter().max_by_key(|(node, total)| (size(total), Reverse(*node))) {
        Some((node, total)) => format!("the largest, {node}, has {total}"),
        None => "there is no node that takes work".to_owned(),
    };
    if let Some(bundle) = bundles.iter().find(|bundle| !totals.iter().any(|(_, total)| total.covers(bundle))) {
        return Some(format!(
            "no node can ever give a bundle of {bundle}: {}; ask for less or start a node that has more",
            largest()
        ));
    }
    let all = together(bundles.iter());
    match packing {
        Packing::StrictPack if !totals.iter().any(|(_, total)| fit_together(bundles, total)) => Some(format!(
            "no node can ever give all bundles together ({all}), which a strict pack needs: {}",
            largest()
        )),
        Packing::StrictSpread => {
            let bin = |(node, total): &(NodeId, &Resources)| Bin { node: *node, left: (*total).clone(), bundles: 0 };
            let bins: Vec<Bin> = totals.iter().map(bin).collect();
            let wanted: Vec<(u32, &Resources)> = (0..).zip(bundles).collect();
            distinct(&wanted, &bins).is_none().then(|| {
                let (count, nodes) = (bundles.len(), totals.len());
                format!(
                    "a strict spread needs a node of its own for each of {count} bundles, and the {nodes} nodes of the \
                     cluster cannot give that"
                )
            })
        }
        Packing::Pack | Packing::Spread if !together(totals.iter().map(|(_, total)| *total)).covers(&all) => {
            Some(format!("all nodes together cannot give {all}; ask for less or start more nodes"))
        }
        Packing::Pack | Packing::Spread | Packing::StrictPack => None,
    }
}

fn together<'a>(all: impl Iterator<Item = &'a Resources>) -> Resources {
    let mut sum = Resources::default();
    for resources in all {
        sum.give(resources);
    }
    sum
}

/// Which is the larger: rare things count first.
fn size(resources: &Resources) -> (u64, u64, u64, u64) {
    let custom = resources.custom.values().map(|amount| amount.0).fold(0, u64::saturating_add);
    (resources.gpus.0, custom, resources.cpus.0, resources.memory_bytes)
}
