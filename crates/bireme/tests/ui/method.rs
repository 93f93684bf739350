struct Boat;

impl Boat {
    #[bireme::remote]
    fn row(&self) {}
}

fn main() {}
