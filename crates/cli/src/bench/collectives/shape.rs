//! How many nodes, which links, how many bytes.

use bireme_netlab::Rate;

use super::super::cluster::stage::Stage;

/// What a row is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Nodes, each on a host of its own; the first has the driver.
    pub(crate) nodes: usize,
    /// Of each link, in each direction; none: as fast as the machine.
    pub(crate) megabits: Option<u64>,
    /// Of one object.
    pub(crate) bytes: usize,
    /// How long what comes to a node waits, in milliseconds.
    pub(crate) delay_ms: u32,
    /// Whether bytes of objects are encrypted, as they are unless that is switched off.
    pub(crate) encrypted: bool,
}

/// How many copies an operation takes at least that every link carries once.
pub(crate) fn one_copy(_: usize) -> f64 {
    1.0
}

/// The same for an `all_reduce` of so many: what every link has to carry in both directions.
pub(crate) fn ring_copies(nodes: usize) -> f64 {
    2.0 * (nodes - 1) as f64 / nodes as f64
}

/// The same where one node gets an object of each other.
pub(crate) fn gather_copies(nodes: usize) -> f64 {
    (nodes - 1) as f64
}

/// How many copies all links together carry where every node but one sends or gets one.
pub(crate) fn carried_once(nodes: usize) -> f64 {
    (nodes - 1) as f64
}

/// The same where every node but one sends one and gets one.
pub(crate) fn carried_twice(nodes: usize) -> f64 {
    2.0 * (nodes - 1) as f64
}

impl Shape {
    /// Two nodes for what goes from one to another.
    pub(crate) const PAIR: Self =
        Self { nodes: 2, megabits: Some(1_000), bytes: 100_000_000, delay_ms: 0, encrypted: true };
    /// Two nodes without a limit but the machine, for small messages.
    pub(crate) const NEAR: Self = Self { nodes: 2, megabits: None, bytes: 1_000, delay_ms: 0, encrypted: true };
    /// Four nodes.
    pub(crate) const FOUR: Self =
        Self { nodes: 4, megabits: Some(1_000), bytes: 100_000_000, delay_ms: 0, encrypted: true };
    /// Eight.
    pub(crate) const EIGHT: Self =
        Self { nodes: 8, megabits: Some(1_000), bytes: 50_000_000, delay_ms: 0, encrypted: true };
    /// Sixteen, with links that two cores can fill all at once.
    pub(crate) const SIXTEEN: Self =
        Self { nodes: 16, megabits: Some(200), bytes: 20_000_000, delay_ms: 0, encrypted: true };

    /// Eight with links that carry a small object in the time that it takes to hear of one.
    pub(crate) const FAR: Self = Self { nodes: 8, megabits: Some(200), bytes: 8_000_000, delay_ms: 0, encrypted: true };

    /// The same with bulk encryption off.
    pub(crate) const fn plain(self) -> Self {
        Self { encrypted: false, ..self }
    }

    /// The same with links of this delay.
    pub(crate) const fn after(self, delay_ms: u32) -> Self {
        Self { delay_ms, ..self }
    }

    /// The same with other objects.
    pub(crate) const fn of(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    /// The rate of the links.
    pub(crate) fn rate(self) -> Option<Rate> {
        self.megabits.map(Rate::megabits)
    }

    /// With small objects when it should be quick: never so small that they are no objects of the store.
    pub(crate) fn sized(self, stage: &Stage) -> Self {
        self.of(stage.size(self.bytes, (self.bytes / 25).max(self.bytes.min(400_000))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_keep_the_load_of_all_links_below_what_two_cores_carry() {
        for shape in [Shape::PAIR, Shape::FOUR, Shape::EIGHT, Shape::SIXTEEN, Shape::FAR] {
            let all = shape.megabits.map_or(0, |megabits| megabits * shape.nodes as u64);
            assert!((1..=8_000).contains(&all), "{shape:?}");
            assert!(shape.bytes % size_of::<f32>() == 0, "whole elements: {shape:?}");
            assert!(shape.encrypted && !shape.plain().encrypted, "the default is judged: {shape:?}");
        }
    }
    #[test]
    fn bounds_are_those_of_the_operations() {
        assert_eq!([one_copy(4), ring_copies(4), gather_copies(4)], [1.0, 1.5, 3.0]);
        assert_eq!([carried_once(4), carried_twice(4)], [3.0, 6.0]);
    }
}
