#[bireme::remote(stream)]
fn one(n: u64) -> u64 {
    n
}

#[bireme::remote(stream)]
fn nameless() -> impl ToString {
    1
}

#[bireme::remote(stream)]
fn borrowed() -> impl Iterator<Item = &'static str> {
    ["a"].into_iter()
}

#[bireme::remote(stream, returns = 2)]
fn pairs() -> impl Iterator<Item = (u64, u64)> {
    [(1, 2)].into_iter()
}

#[bireme::remote(stream(max_buffered_items = 0))]
fn stuck() -> impl Iterator<Item = u64> {
    0..1
}

#[bireme::remote(stream(items = 1))]
fn unknown() -> impl Iterator<Item = u64> {
    0..1
}

#[bireme::remote]
fn unmarked() -> impl Iterator<Item = u64> {
    0..1
}

struct Shelf;

#[bireme::actor]
impl Shelf {
    pub fn new() -> Self {
        Shelf
    }

    #[bireme::stream]
    pub fn books(&self) -> Vec<String> {
        Vec::new()
    }
}

struct Chest;

#[bireme::actor]
impl Chest {
    pub fn new() -> Self {
        Chest
    }

    #[bireme::stream]
    fn coins(&self) -> impl Iterator<Item = u64> {
        0..1
    }
}

fn main() {}
