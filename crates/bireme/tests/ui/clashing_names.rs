struct Boat;

#[bireme::actor]
impl Boat {
    pub fn new() -> Self {
        Boat
    }

    pub fn remote(&self) -> bool {
        true
    }
}

struct Sail;

#[bireme::actor]
impl Sail {
    pub fn new() -> Self {
        Sail
    }

    pub fn with_options(&self) {}
}

fn main() {}
